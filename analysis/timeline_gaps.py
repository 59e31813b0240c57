"""The gaps of one request's ledger one by one; `analysis.ledger` gives their sums and defines them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.attribute import Attributed, IntArray, has_time
from analysis.ledger import bounds_of
from analysis.schema import HOST_DEVICE

_ALWAYS = np.iinfo(np.int64).min


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
    start, end, submitted = _work(attributed, request)
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


def _work(attributed: Attributed, request: int) -> tuple[IntArray, IntArray, IntArray]:
    """Start, end and end of the call of each operation that has a time; shape (n,) each.

    The call of an operation that another one of the same call was there before counts as ended long ago, as
    does a call that is no known launch.
    """
    found = attributed.operations
    found = found[(found["request"] == request) & has_time(found) & (found["device"] != HOST_DEVICE)]
    calls = attributed.launches.drop_duplicates("call").set_index("call")["end_ns"]
    known = found["call"].isin(calls.index).to_numpy()
    submitted = found["call"].map(calls).where(known, _ALWAYS).to_numpy(dtype=np.int64)
    start = found["start_ns"].to_numpy(dtype=np.int64)
    first = found.groupby("call")["start_ns"].transform("min").to_numpy(dtype=np.int64)
    end = np.maximum(start, found["end_ns"].to_numpy(dtype=np.int64))
    return start, end, np.where(start > first, _ALWAYS, submitted)
