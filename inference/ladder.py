"""Captured lengths, built from the largest to the smallest in one memory pool, each proved and timed.

A length is left eager, and the ledger says why, where a graph cannot hold the model, there is no memory for
it, its logits are not eager's, or it is not faster. Nothing is assumed of the model: with padding on the
right the graph is tried without a mask, then with a causal one built inside, then with a padding mask that it
is fed, and the first whose logits agree with the unpadded eager pass is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from contract import CaptureError, LaunchgapError
from inference.attention import mask_is_redundant
from inference.backends import Backend
from inference.blame import root_cause
from inference.calling import ModelCall
from inference.proof import Proof, prove, time_rung
from inference.rung import Mask, Rung, static_inputs
from inference.staging import PaddingSide, StreamOrder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LadderOptions:
    """How to build.

    `fused` captures what Inductor compiles, and the plain pass where it cannot. `timed` leaves a length eager
    whose graph is not faster; `strict` raises where one would be left eager for any other reason, or plain.
    """

    lengths: Sequence[int]
    padding_side: PaddingSide = "right"
    strict: bool = False
    timed: bool = True
    fused: bool = False


@dataclass(frozen=True)
class LedgerEntry:
    """What became of one length.

    Attributes:
        length: captured length, tokens.
        path: `graph`, or `eager` for the reason given.
        attention_mask: `none` (as eager), `explicit` (causal, built in the graph) or `static` (fed to it).
        capture_s: seconds of warm-up, capture and first replay.
        pool_bytes: what the capture added to the shared pool; lengths are captured from the largest down.
        largest_difference: between the graph's logits and those of the unpadded eager pass, absolute.
        eager_ms: eager at the whole length, median; None where it was not timed, as on the simulation.
        shortest_eager_ms: eager at the shortest prompt that this length serves, median.
        graph_ms: replay, median.
        graph_from: shortest prompt that the graph serves, tokens; eager is faster below it.
        compile_s: seconds that Inductor took; None for a plain graph.
        not_fused: why a graph is plain that was to be compiled.
    """

    length: int
    path: Literal["graph", "eager"]
    reason: str | None = None
    attention_mask: Mask | None = None
    capture_s: float | None = None
    pool_bytes: int | None = None
    largest_difference: float | None = None
    eager_ms: float | None = None
    shortest_eager_ms: float | None = None
    graph_ms: float | None = None
    graph_from: int | None = None
    compile_s: float | None = None
    not_fused: str | None = None


class Ladder:
    """The captured lengths of one model on one device.

    Attributes:
        rungs: graphs by length.
        ledger: one entry for each length asked for, ascending.
        longest: the largest length asked for.
        backend: what the graphs were captured with.
    """

    def __init__(self, call: ModelCall, backend: Backend, options: LadderOptions) -> None:
        """Capture every length. Frees what was captured, and leaves the model as it was, if that breaks off.

        Raises:
            CaptureError: with `strict`, an operation that a graph cannot hold.
            LaunchgapError: with `strict`, no memory, or logits that are not eager's.
        """
        self.rungs: dict[int, Rung] = {}
        self.ledger: tuple[LedgerEntry, ...] = ()
        self._call, self.backend, self._options = call, backend, options
        self._pool = backend.new_pool()
        self._order = StreamOrder(backend.device)
        self.longest = max(options.lengths)
        self._served: list[tuple[int, int]] = []
        try:
            self._build(sorted(set(options.lengths)))
        except BaseException:
            self.close()
            raise

    def find(self, n: int) -> Rung | None:
        """The graph that serves a prompt of n tokens, None where eager does."""
        for length, graph_from in self._served:
            if n <= length:
                return self.rungs[length] if n >= graph_from else None
        return None

    def fill(self, rung: Rung, tokens: NDArray[np.int64]) -> None:
        """Copy the prompt, shape (n,), in."""
        rung.fill(tokens, self._order.enter())

    def eager(self, tokens: NDArray[np.int64]) -> torch.Tensor:
        """Logits of the unpadded eager pass, in the shape that a graph gives."""
        ids = torch.from_numpy(tokens)[None].to(self._call.model.device)
        logits = self._call.eager(ids)
        return logits[:, 0] if self._call.wanted == "last" else logits

    def close(self) -> None:
        """Free all graphs and their pool. May be called twice."""
        if not self.rungs:
            return
        self.backend.synchronize()
        for rung in self.rungs.values():
            rung.close()
        self.rungs.clear()
        self._served.clear()
        self._empty_cache()

    def _build(self, lengths: Sequence[int]) -> None:
        output = self._output(lengths[-1])
        entries = []
        for index, length in reversed(list(enumerate(lengths))):
            shortest = lengths[index - 1] + 1 if index else 1
            place = output if self._call.wanted == "last" else output[:, :length]
            entries.append(self._entry(length, shortest, place))
            if entries[-1].path == "eager":
                logger.warning("length %d is left eager: %s", length, entries[-1].reason)
        self.ledger = tuple(reversed(entries))
        self._served = [(e.length, e.graph_from or e.length + 1) for e in self.ledger]

    def _output(self, longest: int) -> torch.Tensor:
        """The one buffer that all graphs copy their logits into, (1, 1 or longest, vocabulary)."""
        one = self._call.eager(torch.zeros((1, 1), dtype=torch.int64, device=self.backend.device))
        rows = 1 if self._call.wanted == "last" else longest
        try:
            return one.new_zeros((1, rows, one.shape[-1]))
        except torch.cuda.OutOfMemoryError as error:
            raise LaunchgapError(
                f"length {longest}: no GPU memory for all its logits; ask for the last alone, or be shorter"
            ) from error

    def _empty_cache(self) -> None:
        if not self.backend.simulated:
            torch.cuda.empty_cache()

    def _entry(self, length: int, shortest: int, output: torch.Tensor) -> LedgerEntry:
        """Capture one length and decide on it."""
        refusals = []
        for fused in (True, False) if self._options.fused else (False,):
            try:
                rung, proof = self._proved_rung(length, output, fused=fused)
            except (LaunchgapError, torch.cuda.OutOfMemoryError) as error:
                refusals.append(self._refused(length, error))
            else:
                return self._decided(rung, proof, shortest, *refusals)
        return LedgerEntry(length, "eager", refusals[-1])

    def _refused(self, length: int, error: LaunchgapError | torch.cuda.OutOfMemoryError) -> str:
        """Why a length cannot be captured, on one line.

        Raises:
            LaunchgapError: the same, with `strict`.
        """
        if isinstance(error, CaptureError) and not isinstance(root_cause(error), Exception):
            raise root_cause(error) from None  # an interruption, which a broken capture hides
        if isinstance(error, torch.cuda.OutOfMemoryError):
            error = LaunchgapError(f"length {length}: out of GPU memory; capture fewer or shorter lengths")
        if self._options.strict:
            raise error
        # A capture that broke may hold on to its pool for good; the graphs to come shall not share that fate.
        self._pool = self.backend.new_pool()
        self._empty_cache()
        return " ".join(str(error).split())

    def _decided(self, rung: Rung, proof: Proof, shortest: int, not_fused: str | None = None) -> LedgerEntry:
        self.rungs[rung.length] = rung
        timing = time_rung(self._call, rung, self.backend, shortest) if self._options.timed else None
        graph_from = shortest if timing is None else timing.graph_from()
        reason = None
        if timing is not None and graph_from is None:
            reason = f"the graph takes {timing.graph_ms:.3g} ms, eager {timing.eager_ms:.3g} ms"
            self.rungs.pop(rung.length).close()
        return LedgerEntry(
            rung.length,
            "graph" if reason is None else "eager",
            reason,
            rung.attention_mask,
            rung.capture_s,
            rung.pool_bytes,
            proof.largest_difference,
            timing.eager_ms if timing else None,
            timing.shortest_eager_ms if timing else None,
            timing.graph_ms if timing else None,
            graph_from,
            rung.compile_s,
            not_fused,
        )

    def _proved_rung(self, length: int, output: torch.Tensor, *, fused: bool) -> tuple[Rung, Proof]:
        """The first capture whose logits are eager's.

        Raises:
            CaptureError: an operation that a graph cannot hold.
            LaunchgapError: no capture agrees with eager.
        """
        proof = None
        for mask in self._masks(length):
            rung = self._capture(length, output, mask, fused=fused)
            try:
                proof = prove(self._call, rung, self.backend)
                if proof.holds:
                    return rung, proof
            except BaseException:
                rung.close()
                raise
            rung.close()
        assert proof is not None
        raise LaunchgapError(
            f"length {length}: no padded graph gives eager's logits (off by {proof.largest_difference:.3g}); "
            "capture exact lengths, or use the other padding side"
        )

    def _masks(self, length: int) -> Iterator[Mask]:
        if self._options.padding_side == "left":
            yield "static"
            return
        device = self.backend.device
        ids = torch.zeros((1, length), dtype=torch.int64, device=device)
        # The trial draws tokens; a caller's own random numbers shall not depend on it.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            redundant = mask_is_redundant(self._call.model, ids)
        if redundant:
            yield "none"
        yield "explicit"
        yield "static"

    def _capture(self, length: int, output: torch.Tensor, mask: Mask, *, fused: bool) -> Rung:
        inputs = static_inputs(length, self.backend.device, self._options.padding_side, mask)
        return Rung(self._call, inputs, output, self.backend, self._pool, mask, fused=fused)
