"""One step of generation as a request: the phase `decode`, beside the forward pass over a whole prompt.

A cache at fixed addresses holds the keys and values of a context, the same for every request. A request is
the next token: it is copied in with its position, the model runs over it, and the token after it is chosen.
Run eagerly and captured, a step is the same operations on the same storage.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from transformers import PreTrainedModel

from contract import CaptureError, LaunchgapError
from inference.backends import Backend, Capture
from inference.calling import Logits, ModelCall
from inference.decode import RUNS_AT_CAPTURE, Decoder
from inference.decode_proof import prove_decoder
from inference.sampling import GreedyChooser
from inference.side_by_side import lay_side_by_side
from inference.staging import StaticInputs

CONTEXT_SEED = 0


class DecodeStep:
    """A `ForwardStrategy` whose run is one step, eager, as a graph, or as a graph of what Inductor compiles.

    Attributes:
        model: the model given.
        context: the token ids before every request's, shape (length - 1,).
        logits: `all`, of the request's one token.
        compile_s, capture_s, pool_bytes, attention_mask: see `ForwardStrategy`.
    """

    logits: Logits = "all"

    def __init__(
        self,
        model: PreTrainedModel,
        length: int,
        slots: int,
        backend: Backend,
        *,
        graph: bool,
        fused: bool = False,
    ) -> None:
        """Fill a cache of `slots` tokens for a step on token number `length`, and capture it.

        Raises:
            CaptureError: the model is not right over a static cache, or its step cannot be captured.
            LaunchgapError: no context, or no room for it.
            torch.cuda.OutOfMemoryError: the cache does not fit.
        """
        check_slots(length, slots)
        self.model, self._backend, self._chooser = model, backend, GreedyChooser()
        self._slots, self._length = slots, length
        call = ModelCall(model, "last")
        if fused:
            lay_side_by_side(model)
        with torch.inference_mode(False), torch.no_grad():
            self._decoder = Decoder(call, slots, backend, fused=fused)
            prove_decoder(self._decoder, call, slots, backend)
        self._cache = self._decoder.store.token_view(slots, self._decoder.state.position)
        self.compile_s: float | None = None
        self.capture_s: float | None = None
        self.pool_bytes: int | None = None
        self.attention_mask: str | None = None
        self._capture = self._captured(fused=fused) if graph else None
        self._is_graph = graph
        self.context = np.random.default_rng(CONTEXT_SEED).integers(0, call.vocabulary, length - 1)
        self._fill_context()
        self._staged = backend.host_buffer(2)

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """Copy the last of these token ids, shape (1, length), and its position; the context stays."""
        self._backend.synchronize()  # the host buffer may still be on its way
        self._staged[0], self._staged[1] = input_ids[0, -1], self._length - 1
        self._decoder.state.token.copy_(self._staged[:1].view(1, 1), non_blocking=True)
        self._decoder.state.position.copy_(self._staged[1:], non_blocking=True)

    def run(self) -> torch.Tensor:
        """Logits after the token copied in, shape (1, 1, vocabulary); until the next run.

        Raises:
            LaunchgapError: the graph was closed.
        """
        if self._capture is not None:
            self._capture.graph.replay()
            return self._capture.output[:, None]
        if self._is_graph:
            raise LaunchgapError("this graph was closed; capture a new one")
        with torch.no_grad():
            mask = self._decoder.step_mask(self._slots)
            return self._decoder.step(self._cache, self._slots, mask, self._chooser)[:, None]

    def close(self) -> None:
        """Free the graph."""
        if self._capture is not None:
            self._backend.synchronize()
            self._capture.graph.reset()
            self._capture = None

    def _captured(self, *, fused: bool) -> Capture:
        start_s = time.perf_counter()
        piece = self._decoder.capture_steps(self._slots, self._chooser, 1, self._backend.new_pool())
        if fused and piece.not_fused is not None:
            raise CaptureError(piece.not_fused)
        self.compile_s, self.pool_bytes = piece.compile_s, piece.capture.pool_bytes
        self.capture_s = time.perf_counter() - start_s - (piece.compile_s or 0.0)
        self.attention_mask = piece.attention_mask
        return piece.capture

    @torch.no_grad()
    def _fill_context(self) -> None:
        """Run the context, for captures have left their own steps in the cache."""
        inputs = StaticInputs(self._length - 1, self._backend.device, "right", masked=False)
        inputs.fill(self.context)
        self._decoder.prompt(inputs, self._decoder.store.prompt_view())
        self._backend.synchronize()


def check_slots(length: int, slots: int) -> None:
    """Refuse a step without a context, or one that the cache has no room for.

    Raises:
        LaunchgapError: the same.
    """
    if length < 2:
        raise LaunchgapError(f"prompt length {length}: a decode step needs a token before it; give 2 or more")
    if slots < max(length, RUNS_AT_CAPTURE):
        raise LaunchgapError(
            f"maximum length {slots}: a cache for token {length} needs {max(length, RUNS_AT_CAPTURE)} slots; "
            "raise --max-length"
        )
