"""The gaps of one request's ledger one by one; `analysis.ledger` gives their sums and defines them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.attribute import Attributed
from analysis.ledger import bounds_of, timed_work


class GapKind(StrEnum):
    """Why the GPU had nothing to do, by the ledger's rule."""

    LAUNCH_BOUND = "launch-bound"
    DEVICE = "device"


@dataclass(frozen=True)
class Gap:
    """A pause of all devices between two operations; nanoseconds from the start of the request's range."""

    kind: GapKind
    start_ns: int
    duration_ns: int


def gaps_of_request(attributed: Attributed, request: int) -> tuple[Gap, ...]:
    """Every gap of a request in order of time: what `gpu_ledger` sums up and counts, by its very rule."""
    first, last = (int(edge[request]) for edge in bounds_of(attributed.requests))
    work = timed_work(attributed)
    work = work[work["request"] == request]
    start, end, submitted = (
        work[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns", "submitted_ns")
    )
    low, high = np.maximum(start, first), np.minimum(end, last)
    inside = (low < high) | ((low == high) & (start == end))
    low, high, submitted = low[inside], high[inside], submitted[inside]
    # Of operations that start together the one that was submitted first decides.
    order = np.lexsort((submitted, low))
    low, high, submitted = low[order], high[order], submitted[order]
    before = np.maximum.accumulate(high)[:-1] if high.size else high
    places = np.flatnonzero(low[1:] > before)
    return tuple(
        Gap(
            GapKind.LAUNCH_BOUND if submitted[place + 1] > before[place] else GapKind.DEVICE,
            int(before[place]) - first,
            int(low[place + 1] - before[place]),
        )
        for place in places
    )
