"""One captured forward pass of a fixed length: copy new tokens into static storage, replay, read logits."""

from __future__ import annotations

import time
from typing import Literal

import torch
from torch import nn

from contract import LaunchgapError
from inference.attention import as_captured, mask_is_redundant
from inference.backends import Backend, Graph


class CapturedForward:
    """A causal LM's forward pass at one length, captured once.

    Everything the graph reads or writes has a fixed address: `input_ids` and, when padded, `attention_mask`
    are copied into and never rebound. Prompts shorter than `length` are padded on the right, which a causal
    model's real positions never see.

    Attributes:
        length: captured sequence length, tokens.
        capture_s: seconds from the first warm-up call to the end of the first replay.
        attention_mask: `none` where eager needs none either, `explicit` where one is built in the graph,
            `static` for the one that a padded graph is fed.
        pool_bytes: memory that the graph keeps to itself.
    """

    def __init__(self, model: nn.Module, length: int, backend: Backend, *, padded: bool) -> None:
        """Allocate static inputs and capture.

        Raises:
            CaptureError: the forward pass holds an operation that a graph cannot.
            torch.cuda.OutOfMemoryError: the graph's pool does not fit.
        """
        self.length = length
        self._backend = backend
        self._ids = torch.zeros((1, length), dtype=torch.int64, device=backend.device)
        self._mask = torch.ones_like(self._ids) if padded else None
        self._prompt_length = length
        start_s = time.perf_counter()
        self.attention_mask = self._which_mask(model)
        with as_captured(model, masked=self.attention_mask != "none"):
            capture = backend.capture(lambda: self._forward(model))
        self.capture_s = time.perf_counter() - start_s
        self.pool_bytes = capture.pool_bytes
        self._graph: Graph | None = capture.graph
        self._logits = capture.output

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """Copy token ids, shape (1, n), into the static storage, with the mask that goes with them.

        Raises:
            LaunchgapError: n is not the captured length, or above it when padded.
        """
        n = input_ids.shape[-1]
        if n > self.length or (self._mask is None and n != self.length):
            raise LaunchgapError(
                f"prompt of {n} tokens: the graph was captured for {self.length}; "
                "capture another length or use the padded graph"
            )
        self._ids[:, :n].copy_(input_ids, non_blocking=True)
        if self._mask is not None:
            self._ids[:, n:].zero_()
            self._mask[:, :n].fill_(1)
            self._mask[:, n:].zero_()
        self._prompt_length = n

    def replay(self) -> torch.Tensor:
        """Logits of the tokens last copied in, shape (1, n, vocabulary).

        A view of the graph's one result buffer, which the next replay overwrites: clone it to keep it.

        Raises:
            LaunchgapError: the graph was closed.
        """
        if self._graph is None:
            raise LaunchgapError("this graph was closed; capture a new one")
        self._graph.replay()
        return self._logits[:, : self._prompt_length]

    def __call__(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Copy in, replay, and return a copy of the logits that later calls leave alone."""
        self.copy_in(input_ids)
        return self.replay().clone()

    def close(self) -> None:
        """Free the graph and its memory pool."""
        if self._graph is not None:
            self._backend.synchronize()
            self._graph.reset()
            self._graph = None
            del self._logits

    def _which_mask(self, model: nn.Module) -> Literal["none", "explicit", "static"]:
        if self._mask is not None:
            return "static"
        return "none" if mask_is_redundant(model, self._ids) else "explicit"

    @torch.no_grad()
    def _forward(self, model: nn.Module) -> torch.Tensor:
        logits = model(input_ids=self._ids, attention_mask=self._mask, use_cache=False).logits
        assert isinstance(logits, torch.Tensor)
        return logits
