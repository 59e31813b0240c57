"""The ways to run one forward pass, behind one interface, so that timing and checks are written once."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from contract import LaunchgapError, Strategy
from inference.backends import Backend
from inference.graphed import CapturedForward


class ForwardStrategy(Protocol):
    """Copy a prompt to the device, then run it. `run` may be called once per `copy_in`."""

    capture_s: float | None
    pool_bytes: int | None
    attention_mask: str | None

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """Take token ids, shape (1, n), from the host."""

    def run(self) -> torch.Tensor:
        """Logits, shape (1, n, vocabulary), valid until the next run."""

    def close(self) -> None:
        """Free what the strategy holds on the device."""


class EagerForward:
    """The model as transformers runs it, without a KV cache or a mask (checked with a wait)."""

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


class GraphForward:
    """A captured forward: at the exact prompt length, or padded with a static attention mask."""

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


def prepare(
    strategy: Strategy, model: nn.Module, backend: Backend, *, prompt_length: int, max_length: int
) -> ForwardStrategy:
    """Build a strategy, capturing where it captures.

    Raises:
        CaptureError: an operation that a graph cannot hold.
        torch.cuda.OutOfMemoryError: no memory for the capture.
    """
    if strategy is Strategy.EAGER:
        return EagerForward(model, backend)
    padded = strategy is Strategy.GRAPH_PADDED
    return GraphForward(model, max_length if padded else prompt_length, backend, padded=padded)


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
