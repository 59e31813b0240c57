"""Attention in a capture: the mask that is built on the device is transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    causal_mask_function,
    eager_mask,
    sliding_window_causal_mask_function,
)

from contract import CaptureError
from inference.attention import as_captured
from inference.families import FAMILIES, find_family, tiny_model
from inference.forward import GraphedForward
from inference.generator import GraphedGenerator
from inference.staging import PaddingSide


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny_model(next(family for family in FAMILIES if family.attention == "eager"))


def mask_within(model: PreTrainedModel, **more: Any) -> torch.Tensor:  # noqa: ANN401 - transformers' own
    with as_captured(model, masked=True):
        mask: torch.Tensor = ALL_MASK_ATTENTION_FUNCTIONS["eager"](1, 5, 8, q_offset=3, **more)
    return mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [causal_mask_function, sliding_window_causal_mask_function(3)])
@pytest.mark.parametrize("hidden", [0, 2])
def test_the_mask_is_that_of_transformers(
    model: PreTrainedModel,
    dtype: torch.dtype,
    shape: Callable[..., Any],
    hidden: int,
) -> None:
    seen = torch.arange(8)[None] >= hidden
    more: dict[str, Any] = {
        "mask_function": shape,
        "attention_mask": seen,
        "dtype": dtype,
        "allow_is_causal_skip": True,
    }
    wanted = eager_mask(1, 5, 8, q_offset=3, **more)
    assert torch.equal(mask_within(model, **more), wanted)
    assert wanted.unique().numel() == 2


def test_it_is_put_back_after_the_last_capture_of_any_thread(model: PreTrainedModel) -> None:
    inside, outside = Barrier(2), Barrier(2)

    def other() -> None:
        with as_captured(model, masked=True):
            inside.wait(10)
            outside.wait(10)

    thread = Thread(target=other)
    thread.start()
    inside.wait(10)
    with pytest.raises(CaptureError), as_captured(model, masked=True):
        raise CaptureError("broken off")
    assert ALL_MASK_ATTENTION_FUNCTIONS["eager"] is not eager_mask
    outside.wait(10)
    thread.join()
    assert ALL_MASK_ATTENTION_FUNCTIONS["eager"] is eager_mask


def test_a_mask_that_someone_else_has_put_there_stays(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others(*_: object, **__: object) -> None:
        """Nobody's mask."""

    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS, "eager", others)
    with as_captured(model, masked=True):
        assert ALL_MASK_ATTENTION_FUNCTIONS["eager"] is others
    assert ALL_MASK_ATTENTION_FUNCTIONS["eager"] is others


@pytest.mark.parametrize("name", ["GPT-J", "GPT-OSS", "Llama", "Gemma 2", "Mistral"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_models_with_attention_of_transformers_are_served_by_graphs(name: str, side: PaddingSide) -> None:
    family = find_family(name)
    model = tiny_model(family, attn_implementation="eager")
    ids = torch.randint(1, 96, (1, 9))
    with GraphedForward(model, (16,), padding_side=side, strict=True) as forward:
        torch.testing.assert_close(forward(ids), model(input_ids=ids).logits[:, -1], atol=1e-5, rtol=1e-5)
    with GraphedGenerator(model, max_length=32, strict=True) as generator:
        assert generator.compare_with_generate(ids, 12).first_divergence is None
        assert not generator.refusals


def test_a_model_that_fails_on_a_mask_is_served_eagerly_and_says_where(model: PreTrainedModel) -> None:
    def fails(_: nn.Module, __: object, kwargs: dict[str, Any]) -> None:
        if kwargs.get("attention_mask") is not None:
            raise ValueError("no masks here")

    model.register_forward_pre_hook(fails, with_kwargs=True)
    ids = torch.arange(1, 5)[None]
    with GraphedForward(model, (8,), padding_side="left") as forward:
        assert "test_attention.py" in (forward.ledger[0].reason or "")
        assert "ValueError: no masks here" in (forward.ledger[0].reason or "")
        torch.testing.assert_close(forward(ids), model(input_ids=ids).logits[:, -1])
    with pytest.raises(CaptureError, match="no masks here"):
        GraphedForward(model, (8,), padding_side="left", strict=True)
