"""What excuses a graph in half precision, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from inference.calling import ModelCall
from inference.families import FAMILIES, tiny_model
from inference.judge import Judge, Verdict
from inference.loading import float32_copy
from inference.staging import PaddingSide, StaticInputs

LENGTH, N = 16, 9
SMALL = 1e-4


def judged(off: Callable[[torch.Tensor], float], side: PaddingSide = "right") -> Verdict:
    """The verdict on what a half-precision model says over padding, where its logits move by `off`.

    It stands for another choice of expert, which on a CPU, where a row's rounding does not depend on how many
    rows there are, does not come by itself.
    """
    model = tiny_model(next(f for f in FAMILIES if f.name == "Qwen2-MoE"), dtype=torch.bfloat16)
    reference = float32_copy(model)
    for one in (model, reference):
        head = one.get_output_embeddings()
        assert isinstance(head, nn.Module)
        head.register_forward_hook(lambda _, given, logits: logits + off(given[0]))
    judge = Judge(model, reference, "all")
    prompt = torch.arange(1, N + 1)[None]
    judge.calibrate([prompt])
    padded = StaticInputs(LENGTH, torch.device("cpu"), side, masked=side == "left")
    padded.fill(prompt[0].numpy())
    answer = ModelCall(model, "all").static(padded)[:, padded.start(N) : padded.start(N) + N]
    without = judge.compare(prompt, answer)
    assert not without.over_padding
    verdict = judge.compare(prompt, answer, padded)
    assert verdict.difference == without.difference
    assert verdict.passed == without.passed or verdict.over_padding
    return verdict


def is_padded(hidden: torch.Tensor) -> bool:
    return hidden.shape[1] == LENGTH


@pytest.mark.parametrize("side", ["right", "left"])
def test_what_eager_does_over_the_same_padding_is_excused(side: PaddingSide) -> None:
    verdict = judged(lambda x: 0.5 * (is_padded(x) and x.dtype is torch.bfloat16), side)
    assert (verdict.passed, verdict.over_padding) == (True, True)
    assert verdict.difference == pytest.approx(0.5, abs=0.1)


def test_what_the_padding_does_in_fp32_as_well_is_not_excused() -> None:
    verdict = judged(lambda x: 0.5 * is_padded(x))
    assert (verdict.passed, verdict.over_padding) == (False, False)


def test_an_answer_within_eagers_own_error_needs_no_excuse() -> None:
    verdict = judged(lambda x: SMALL * is_padded(x))
    assert (verdict.passed, verdict.over_padding) == (True, False)


def test_an_answer_that_eager_does_not_give_is_not_excused() -> None:
    model = tiny_model(FAMILIES[0], dtype=torch.bfloat16)
    judge = Judge(model, float32_copy(model), "last")
    prompt = torch.arange(1, N + 1)[None]
    judge.calibrate([prompt])
    padded = StaticInputs(LENGTH, torch.device("cpu"), "right", masked=False)
    padded.fill(prompt[0].numpy())
    answer = ModelCall(model, "last").static(padded)[:, 0]
    assert judge.compare(prompt, answer, padded).passed
    for wrong in (answer + 1, answer * torch.nan):
        assert not judge.compare(prompt, wrong, padded).passed
