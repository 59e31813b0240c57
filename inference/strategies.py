"""The ways to run one forward pass, behind one interface, so that timing and checks are written once."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference.attention import UNMASKED, mask_is_redundant
from inference.backends import Backend
from inference.calling import Logits, ModelCall
from inference.graphed import CapturedForward


class ForwardStrategy(Protocol):
    """Copy a prompt to the device, then run it. `run` may be called once per `copy_in`.

    Attributes:
        logits: which ones `run` gives.
        compile_s: seconds that a compiler took, None where there is none.
        capture_s: seconds of captures with their warm-up, None where nothing is captured apart.
        pool_bytes: memory that graphs keep to themselves.
        attention_mask: see `StrategyFields`.
    """

    logits: Logits
    compile_s: float | None
    capture_s: float | None
    pool_bytes: int | None
    attention_mask: str | None

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """Take token ids, shape (1, n), from the host."""

    def run(self) -> torch.Tensor:
        """Logits, shape (1, n, vocabulary), or (1, vocabulary) for the last token's; until the next run."""

    def close(self) -> None:
        """Free what the strategy holds on the device."""


class EagerForward:
    """The model as transformers runs it, without a KV cache or a mask (checked with a wait)."""

    logits: Logits = "all"
    compile_s: float | None = None
    capture_s: float | None = None
    pool_bytes: int | None = None
    attention_mask: str | None = None

    def __init__(self, model: nn.Module, backend: Backend) -> None:
        self._model = model
        self._device = backend.device
        self._ids: torch.Tensor | None = None

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """See `ForwardStrategy.copy_in`."""
        self._ids = input_ids.to(self._device, non_blocking=True)

    @torch.no_grad()
    def run(self) -> torch.Tensor:
        """See `ForwardStrategy.run`."""
        if self._ids is None:
            raise LaunchgapError("no prompt was copied in; call copy_in first")
        logits = self._model(input_ids=self._ids, use_cache=False).logits
        assert isinstance(logits, torch.Tensor)
        return logits

    def close(self) -> None:
        """Nothing is held."""


class UnmaskedForward:
    """Eager without the question whether the prompt packs several sequences: nothing waits for its answer.

    A twin of the model runs it, the same weights under another attention implementation, since switching
    the model to and fro would cost each request more than the question does.
    """

    compile_s: float | None = None
    capture_s: float | None = None
    pool_bytes: int | None = None
    attention_mask: str | None = None

    def __init__(self, model: PreTrainedModel, length: int, backend: Backend, *, logits: Logits) -> None:
        """Try whether the mask is redundant for prompts of this many tokens.

        Raises:
            LaunchgapError: it is not.
        """
        self.logits: Logits = logits
        self._device = backend.device
        if not mask_is_redundant(model, torch.zeros((1, length), dtype=torch.int64, device=self._device)):
            raise LaunchgapError(
                f"{type(model).__name__} gives other logits without its attention mask, or attends otherwise "
                "than by sdpa; compare with eager"
            )
        self._call = ModelCall(_unmasked_twin(model), logits)
        self._ids: torch.Tensor | None = None

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """See `ForwardStrategy.copy_in`."""
        self._ids = input_ids.to(self._device, non_blocking=True)

    def run(self) -> torch.Tensor:
        """See `ForwardStrategy.run`."""
        if self._ids is None:
            raise LaunchgapError("no prompt was copied in; call copy_in first")
        logits = self._call.eager(self._ids)
        return logits[:, 0] if self.logits == "last" else logits

    def close(self) -> None:
        """Nothing is held: the weights are the model's."""


class GraphForward:
    """A captured forward: at the exact prompt length, or padded with a static attention mask."""

    logits: Logits = "all"
    compile_s: float | None = None

    def __init__(self, model: nn.Module, length: int, backend: Backend, *, padded: bool) -> None:
        self._captured = CapturedForward(model, length, backend, padded=padded)
        self.capture_s: float | None = self._captured.capture_s
        self.pool_bytes: int | None = self._captured.pool_bytes
        self.attention_mask: str | None = self._captured.attention_mask

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """See `ForwardStrategy.copy_in`."""
        self._captured.copy_in(input_ids)

    def run(self) -> torch.Tensor:
        """See `ForwardStrategy.run`."""
        return self._captured.replay()

    def close(self) -> None:
        """Free the graph."""
        self._captured.close()


def check_lengths(prompt_length: int, max_length: int, positions: int) -> None:
    """Refuse lengths that the model or the padded graph cannot hold.

    Raises:
        LaunchgapError: zero or negative, prompt above `max_length`, or more than the model's positions.
    """
    if prompt_length < 1:
        raise LaunchgapError(f"prompt length {prompt_length}: must be 1 or more")
    if prompt_length > positions:
        raise LaunchgapError(
            f"prompt length {prompt_length}: the model has {positions} positions; shorten the prompt"
        )
    if prompt_length > max_length:
        raise LaunchgapError(
            f"prompt length {prompt_length}: above the maximum length {max_length}; "
            "shorten the prompt or raise --max-length"
        )
    if max_length > positions:
        raise LaunchgapError(
            f"maximum length {max_length}: the model has {positions} positions; "
            f"use --max-length {positions} or less"
        )


def _unmasked_twin(model: PreTrainedModel) -> PreTrainedModel:
    """The model with a configuration of its own, and the very same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    twin: PreTrainedModel = copy.deepcopy(model, shared)
    twin.set_attn_implementation(UNMASKED)
    return twin
