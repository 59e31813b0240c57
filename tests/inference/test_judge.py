"""When an answer in half precision is right: near fp32 as eager is, or eager's over harmless padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeTopKRouter

from inference.battery import OVER_PADDING, run_battery
from inference.calling import ModelCall
from inference.correctness import HALF_TOLERANCE_FACTOR
from inference.families import FAMILIES, find_family, tiny_model, verdict
from inference.judge import _NEXT_TO_NOTHING, Judge, Verdict
from inference.loading import float32_copy
from inference.proof import Proof
from inference.rung import Rung
from inference.staging import PaddingSide, StaticInputs
from inference.subject import Check

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTH, N = 16, 9
PROMPT = torch.arange(1, N + 1)[None]

Offset = Callable[[torch.Tensor], float]
"""What moves a model's logits, by the hidden states that its head is given."""


class Court:
    """A judge, and a model whose logits move over padding as they would by another choice of expert.

    On a CPU a row's rounding does not depend on how many rows there are, so no such choice comes by itself.
    """

    def __init__(self, off: Offset, side: PaddingSide = "right") -> None:
        model = tiny_model(FAMILIES[0], dtype=torch.bfloat16)
        reference = float32_copy(model)
        for one in (model, reference):
            head = one.get_output_embeddings()
            assert isinstance(head, nn.Module)
            head.register_forward_hook(lambda _, given, logits: logits + off(given[0]))
        self.judge = Judge(model, reference, "all")
        self.judge.calibrate([PROMPT])
        self.error = self.judge._eager_error
        self.padded = StaticInputs(LENGTH, torch.device("cpu"), side, masked=side == "left")
        self.padded.fill(PROMPT[0].numpy())
        self.call, self.reference = ModelCall(model, "all"), ModelCall(reference, "all")

    def over_padding(self) -> torch.Tensor:
        """What eager says over the padding, and so would a graph."""
        start = self.padded.start(N)
        return self.call.static(self.padded)[:, start : start + N].float()

    def judged(self, answer: torch.Tensor) -> tuple[bool, bool]:
        assert not self.judge.compare(PROMPT, answer).by_padding
        found = self.judge.compare(PROMPT, answer, lambda: self.padded)
        return found.passed, found.by_padding


def is_padded(hidden: torch.Tensor) -> bool:
    return hidden.shape[1] == LENGTH


def in_half(hidden: torch.Tensor) -> float:
    return 0.5 * (is_padded(hidden) and hidden.dtype is torch.bfloat16)


@pytest.mark.parametrize("side", ["right", "left"])
def test_an_answer_that_is_eagers_over_the_same_padding_is_right(side: PaddingSide) -> None:
    court = Court(in_half, side)
    assert court.judged(court.over_padding()) == (True, True)
    assert court.judged(court.over_padding() + 0.9 * court.error) == (True, True)


@pytest.mark.parametrize("side", ["right", "left"])
def test_another_answer_that_is_as_far_off_is_wrong(side: PaddingSide) -> None:
    court = Court(in_half, side)
    right = court.over_padding()
    for wrong in (right + 2 * court.error, right.roll(1, 1), torch.zeros_like(right), right * torch.nan):
        assert court.judged(wrong) == (False, False)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_no_number_is_never_right(value: float) -> None:
    court = Court(lambda hidden: value if in_half(hidden) else 0.0)
    assert court.judged(court.over_padding()) == (False, False)


def test_what_the_padding_does_in_fp32_as_well_is_wrong() -> None:
    court = Court(lambda hidden: 0.5 * is_padded(hidden))
    assert court.judged(court.over_padding()) == (False, False)


@pytest.mark.parametrize(("share", "right"), [(0.5, True), (2.0, False)])
def test_in_fp32_the_padding_may_change_next_to_nothing(share: float, right: bool) -> None:
    moved = share * _NEXT_TO_NOTHING * Court(in_half).error
    court = Court(lambda hidden: in_half(hidden) or moved * is_padded(hidden))
    assert court.judged(court.over_padding()) == (right, right)


@pytest.mark.parametrize(("share", "right"), [(0.95, True), (1.05, False)])
def test_an_answer_near_fp32_needs_no_padding(share: float, right: bool) -> None:
    court = Court(lambda _: 0.0)
    exact = court.reference.eager(PROMPT)
    assert court.judged(exact + share * HALF_TOLERANCE_FACTOR * court.error) == (right, False)


def test_fp32_is_judged_by_eager_alone() -> None:
    judge = Judge(tiny_model(FAMILIES[0]), None, "last")
    exact = ModelCall(tiny_model(FAMILIES[0]), "last").eager(PROMPT)[:, 0]
    assert judge.compare(PROMPT, exact) == Verdict(0.0, passed=True)
    assert not judge.compare(PROMPT, exact + 1e-3).passed


@pytest.fixture
def mixture(monkeypatch: pytest.MonkeyPatch) -> PreTrainedModel:
    """A mixture of experts whose router rounds by how many rows it is given, as products on a GPU do."""
    route = Qwen2MoeTopKRouter.forward

    def rounded(self: Any, hidden: torch.Tensor) -> Any:  # noqa: ANN401 - transformers' own
        if hidden.dtype is torch.bfloat16:
            rows = hidden.reshape(-1, hidden.shape[-1]).shape[0]
            places = torch.arange(hidden.shape[-1], device=hidden.device)
            hidden = hidden * (1 + 2**-5 * torch.cos(places * rows)).to(hidden.dtype)
        return route(self, hidden)

    monkeypatch.setattr(Qwen2MoeTopKRouter, "forward", rounded)
    return tiny_model(find_family("Qwen2-MoE"), dtype=torch.bfloat16)


def test_a_mixture_of_experts_passes_and_says_why(mixture: PreTrainedModel) -> None:
    checks = run_battery(mixture, (LENGTH,))
    by_padding = [check for check in checks if check.rule.endswith(OVER_PADDING)]
    assert by_padding
    assert all("are eager's over the same padding" in check.notes[0] for check in by_padding)
    assert [check for check in checks if not check.passed] == []


def test_the_table_of_families_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("last, right", "fresh inputs", "5 prompts", 0.1, "rule" + OVER_PADDING, passed=True)
    monkeypatch.setattr("inference.families.check_runner", lambda *_: [check])
    assert verdict(tiny_model(FAMILIES[0]), "right") == "works; rounding chooses"


def test_a_runner_whose_tokens_are_not_those_asked_for_fails_although_rounding_chooses(
    mixture: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = Rung.fill
    monkeypatch.setattr("inference.ladder.prove", lambda *_: Proof(holds=True, largest_difference=0.0))
    monkeypatch.setattr(Rung, "fill", lambda rung, tokens, stream=None: fill(rung, tokens[::-1], stream))
    failed = {check.name for check in run_battery(mixture, (LENGTH,)) if not check.passed}
    assert {"fresh inputs", "mixed lengths, random order"} <= failed


def test_not_most_answers_of_a_check_may_be_right_for_their_padding_alone(
    mixture: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.battery.MOST_BY_PADDING", 0.0)
    assert [check for check in run_battery(mixture, (LENGTH,)) if not check.passed] != []
