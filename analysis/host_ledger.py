"""Where the time of each request went on the host's side: CUDA calls by what they are for, and all else.

    range = launches + synchronising + copies + allocations + other API + rest

Only the thread that the range was opened on is looked at: what its calls do not take is Python, the framework
and whatever kept the thread from running. docs/explain.md has the formulas.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.attribute import IntArray, RangeSelector, select_ranges
from analysis.containment import by_thread
from analysis.host_parts import HostPart
from analysis.intervals import running_end
from analysis.launches import LaunchKind, api_name, launch_kind
from analysis.ledger import bounds_of
from analysis.trace import Trace

HOST_PARTS = (*(f"{part}_ns" for part in HostPart), "rest_ns")
"""The parts that add up to `range_ns`."""

HOST_COLUMNS = ("request", "range_ns", *HOST_PARTS, *(f"{part}_calls" for part in HostPart))

_SYNCHRONISING = re.compile(r"cu(?:da)?(?:Device|Stream|Event|Ctx|Thread)Synchronize")
_ALLOCATION = re.compile(
    r"cuda(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemPool)\w*"
    # What asks about memory, or gives advice on it, allocates nothing.
    r"|cuMem(?!cpy|set|Get|Advise|Prefetch|RangeGet)\w*"
)


def host_part(recorded: str) -> HostPart:
    """What a call is for, by its recorded name.

    Launches are those of `analysis.launches`, but a copy without `Async` in its name waits for its end and is
    one of the copies. An asynchronous copy of pageable memory may wait as well; its name does not tell.
    """
    name = api_name(recorded)
    kind = launch_kind(recorded)
    if kind is LaunchKind.MEMCPY and "Async" not in name:
        return HostPart.COPIES
    if kind is not None:
        return HostPart.LAUNCHES
    if _SYNCHRONISING.fullmatch(name):
        return HostPart.SYNCHRONISING
    return HostPart.ALLOCATIONS if _ALLOCATION.fullmatch(name) else HostPart.OTHER_API


def host_ledger(trace: Trace, selector: RangeSelector) -> pd.DataFrame:
    """One row per selected range, in order of time; columns `HOST_COLUMNS`.

    Of calls inside calls (the runtime calls the driver) the outermost alone counts, so that no nanosecond
    counts twice. Of a call that crosses an end of the range the part inside it counts. The numbers of calls
    are of outermost calls that lie inside the range, both ends included.
    """
    requests = select_ranges(trace.ranges, selector.name, selector.domain)
    first, last = bounds_of(requests)
    columns = {name: np.zeros(first.size, dtype=np.int64) for name in HOST_COLUMNS}
    columns["request"] = np.arange(first.size)
    columns["range_ns"] = last - first
    threads = by_thread(requests["thread"].to_numpy(dtype=np.int64))
    calls = trace.api_calls[trace.api_calls["thread"].isin(threads)]
    pieces = _outermost(calls)
    own = by_thread(pieces.thread)
    for thread, rows in threads.items():
        there = own.get(thread, np.empty(0, dtype=np.int64))
        for number, part in enumerate(HostPart):
            of_part = there[pieces.part[there] == number]
            sides = (pieces.start[of_part], pieces.end[of_part], first[rows], last[rows])
            columns[f"{part}_ns"][rows], columns[f"{part}_calls"][rows] = _covered(*sides)
    spent = np.sum([columns[f"{part}_ns"] for part in HostPart], axis=0, dtype=np.int64)
    columns["rest_ns"] = columns["range_ns"] - spent
    return pd.DataFrame(columns, columns=list(HOST_COLUMNS))


class _Pieces(NamedTuple):
    """Time inside outermost calls, that of a thread in order and without overlap; shape (n,)."""

    thread: IntArray
    part: IntArray
    start: IntArray
    end: IntArray


def _outermost(calls: pd.DataFrame) -> _Pieces:
    """Outermost calls; of two that overlap without nesting, the later has what the first leaves."""
    thread, start = (calls[name].to_numpy(dtype=np.int64) for name in ("thread", "start_ns"))
    end = np.maximum(start, calls["end_ns"].to_numpy(dtype=np.int64))
    part = _parts_of(calls)
    order = np.lexsort((part, -end, start, thread))
    thread, part, start, end = thread[order], part[order], start[order], end[order]
    _, group = np.unique(thread, return_inverse=True)
    until = np.concatenate(([0], running_end(group.astype(np.int64), end)[:-1]))[: end.size]
    opens = np.ones(end.size, dtype=np.bool_)
    opens[1:] = thread[1:] != thread[:-1]
    begin = np.where(opens, start, np.maximum(start, until))
    kept = (begin < end) | ((begin == start) & (start == end))
    return _Pieces(thread[kept], part[kept], begin[kept], end[kept])


def _parts_of(calls: pd.DataFrame) -> IntArray:
    """Number of the `HostPart` of each call; a call without a name is of the other ones."""
    numbers = {part: number for number, part in enumerate(HostPart)}
    known = [numbers[host_part(name)] for name in calls["name"].cat.categories]
    # A missing name has the code -1, which is the added last place.
    table = np.array([*known, numbers[HostPart.OTHER_API]], dtype=np.int64)
    return table[calls["name"].cat.codes.to_numpy()]


def _covered(start: IntArray, end: IntArray, first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """Nanoseconds of each range that the pieces cover, and how many pieces lie inside it; shape (m,).

    The pieces from start to end, shape (n,), are in order and without overlap; the ranges from first to last,
    shape (m,), may overlap each other.
    """
    low = np.searchsorted(end, first, side="right")
    high = np.maximum(low, np.searchsorted(start, last, side="left"))
    total = np.concatenate(([0], np.cumsum(end - start)))
    covered = total[high] - total[low]
    some = high > low
    covered[some] -= np.maximum(first[some] - start[low[some]], 0)
    covered[some] -= np.maximum(end[high[some] - 1] - last[some], 0)
    inside = np.searchsorted(end, last, side="right") - np.searchsorted(start, first, side="left")
    return covered.astype(np.int64), np.maximum(inside, 0).astype(np.int64)
