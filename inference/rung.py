"""One captured length of the ladder: static inputs, a graph, and its place in the shared output buffer."""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from inference.attention import as_captured
from inference.backends import Backend, Graph
from inference.calling import ModelCall
from inference.capture_guards import refusing_failures
from inference.fused import fuse
from inference.lanes import Pool
from inference.staging import PaddingSide, StaticInputs

Mask = Literal["none", "explicit", "static"]
"""What a graph holds: no mask, as eager; a causal mask built in the graph; or the padding mask it is fed."""


class Rung:
    """The forward pass captured at one length; shorter prompts are padded.

    The graph ends by copying its logits into `output`, which lies outside its memory pool like its inputs do:
    nothing in the pool outlives a replay, so graphs that share one may be replayed in any order.

    Attributes:
        length: tokens.
        attention_mask: see `Mask`.
        pool: what the graph was captured into, None in the simulation.
        pool_bytes: what this capture added to the pool.
        compile_s: seconds of compiling, None if it was not compiled.
        capture_s: seconds from the first warm-up call to the end of the first replay.
        inputs: static inputs.
        output: static logits, shape (1, 1 or length, vocabulary).
        graph: the capture.
    """

    def __init__(
        self,
        call: ModelCall,
        inputs: StaticInputs,
        output: torch.Tensor,
        backend: Backend,
        pool: Pool | None,
        mask: Mask,
        *,
        fused: bool = False,
    ) -> None:
        """Capture, with `fused` as `inference.fused` compiles it.

        Raises:
            CaptureError: the forward pass holds an operation that a graph cannot, or cannot be compiled.
            torch.cuda.OutOfMemoryError: the graph does not fit.
        """
        self.length, self.attention_mask = inputs.length, mask
        self.inputs, self.output, self.pool = inputs, output, pool
        self._last = output[:, 0] if call.wanted == "last" else None
        # A prompt that fills the length would let the warm-up skip the mask that the capture then builds.
        self.fill(np.zeros(max(1, self.length - 1), dtype=np.int64))
        self.compile_s: float | None = None

        def forward() -> torch.Tensor:
            return self._forward(call)

        with as_captured(call.model, masked=mask != "none"), refusing_failures():
            if fused:
                forward, self.compile_s = fuse(forward, backend)
            start_s = time.perf_counter()
            capture = backend.capture(forward, pool)
        self.capture_s = time.perf_counter() - start_s
        self.pool_bytes = capture.pool_bytes
        self.graph: Graph = capture.graph

    def fill(self, tokens: NDArray[np.int64], stream: torch.cuda.Stream | None = None) -> None:
        """Copy a prompt, shape (n,), into the static inputs."""
        self.inputs.fill(tokens, stream)

    def replay(self) -> None:
        """Launch the graph.

        Raises:
            CaptureError: in the simulation only, a tensor of the model lies elsewhere than at the capture.
        """
        self.graph.replay()

    def logits(self, n: int) -> torch.Tensor:
        """Where the logits of a prompt of n tokens are: (1, vocabulary), or (1, n, vocabulary) for all.

        A view of the output buffer, which the next replay of any length overwrites.
        """
        if self._last is not None:
            return self._last
        start = self.inputs.start(n)
        return self.output[:, start : start + n]

    def close(self) -> None:
        """Free the graph."""
        self.graph.reset()

    @torch.no_grad()
    def _forward(self, call: ModelCall) -> torch.Tensor:
        return self.output.copy_(call.static(self.inputs))


def static_inputs(length: int, device: torch.device, padding_side: PaddingSide, mask: Mask) -> StaticInputs:
    """The inputs that a graph with this mask reads."""
    return StaticInputs(length, device, padding_side, masked=mask == "static")
