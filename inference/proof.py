"""Is a captured length right, and is it faster? Tried when it is built, against the unpadded eager pass."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from contract import CaptureError
from inference.backends import Backend
from inference.calling import ModelCall
from inference.rung import Rung

SHARES = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}
"""How far rounding may move logits, root mean square over the vocabulary, as a share of their spread there.

Padding moved gpt2's by 2e-6 of the spread in fp32 and by 0.013 in bfloat16; a dropped sliding window or wrong
positions move the tiny models' by 0.3 to 1.4 of it. This is a test of structure, made where there is no fp32
reference; `inference.parity` is the strict one.
"""

TIMED_RUNS = 5
_UNTIMED_RUNS = 2
_ROWS = 64
"""Tokens compared at a time: all logits of a long prompt, in fp32, may not fit beside the model."""


@dataclass(frozen=True)
class Proof:
    """Whether all prompts tried gave eager's logits, and the largest absolute difference seen."""

    holds: bool
    largest_difference: float


@dataclass(frozen=True)
class Timing:
    """Medians in milliseconds: replay, eager at the whole length and at the shortest prompt served."""

    graph_ms: float
    eager_ms: float
    shortest_eager_ms: float
    length: int
    shortest: int

    def graph_from(self) -> int | None:
        """Tokens from which on the graph is faster, between the two by a straight line; None if nowhere."""
        if self.graph_ms >= self.eager_ms:
            return None
        if self.graph_ms < self.shortest_eager_ms:
            return self.shortest
        share = (self.graph_ms - self.shortest_eager_ms) / (self.eager_ms - self.shortest_eager_ms)
        return min(self.length, self.shortest + int(share * (self.length - self.shortest)) + 1)


def prove(call: ModelCall, rung: Rung, backend: Backend) -> Proof:
    """Compare a full prompt, then shorter ones over what it left behind, each of fresh random tokens."""
    generator = np.random.default_rng(rung.length)
    holds, largest = True, 0.0
    for n in dict.fromkeys((rung.length, 1, (rung.length + 1) // 2)):
        tokens = generator.integers(call.vocabulary, size=n, dtype=np.int64)
        rung.fill(tokens)
        rung.replay()
        found = rung.logits(n).reshape(-1, rung.output.shape[-1])
        wanted = call.eager(torch.from_numpy(tokens)[None].to(backend.device)).reshape(found.shape)
        for found_rows, wanted_rows in zip(found.split(_ROWS), wanted.split(_ROWS), strict=True):
            difference = (found_rows.float() - wanted_rows.float()).abs().max()
            holds = holds and _structurally_equal(found_rows, wanted_rows)
            largest = max(largest, float(difference.nan_to_num(torch.inf)))
    return Proof(holds, largest)


def _structurally_equal(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    share, eps = SHARES.get(wanted.dtype, SHARES[torch.bfloat16]), torch.finfo(wanted.dtype).eps
    found, wanted = found.float(), wanted.float()
    off = (found - wanted).square().mean(-1).sqrt()
    return bool((off <= share * wanted.std(-1) + eps * wanted.abs().amax(-1)).all())


def prove_same(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    """Compare what a compiled pass leaves behind with what the pass itself does: logits, keys, values.

    Each number may be off by what rounding in another order explains, of the largest in its tensor.

    Raises:
        CaptureError: one is not.
    """
    for index, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        share = SHARES.get(theirs.dtype, SHARES[torch.bfloat16])
        off = (mine.float() - theirs.float()).abs().max()
        if not off <= share * theirs.float().abs().max():
            what = "other keys or values" if index else "other logits"
            raise CaptureError(f"what Inductor compiled gives {what} (off by {float(off):.3g})")


def time_rung(call: ModelCall, rung: Rung, backend: Backend, shortest: int) -> Timing:
    """Time replay and eager turn by turn; the input copy is in neither."""
    prompts = [torch.zeros((1, n), dtype=torch.int64, device=backend.device) for n in (rung.length, shortest)]
    runs: list[Callable[[], object]] = [
        rung.replay,
        lambda: call.eager(prompts[0]),
        lambda: call.eager(prompts[1]),
    ]
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(_UNTIMED_RUNS + TIMED_RUNS):
        for run, times in zip(runs, samples, strict=True):
            backend.start_timer()
            run()
            backend.stop_timer()
            backend.synchronize()
            if turn >= _UNTIMED_RUNS:
                times.append(backend.elapsed_ms())
    graph_ms, eager_ms, shortest_ms = (statistics.median(times) for times in samples)
    return Timing(graph_ms, eager_ms, shortest_ms, rung.length, shortest)
