"""Which intervals lie inside which others of the same thread, both ends included, for millions of them.

The inner intervals of a thread, in order of start, are dealt into layers in which ends never fall: of
calls, each layer holds those of one depth. In such a layer the intervals inside an outer one are
neighbours: they begin with the first that does not start too early, and end with the last that does not end
too late. Two binary searches per layer find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

IntArray = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Intervals of several threads: three arrays of shape (n,), times in nanoseconds."""

    thread: IntArray
    start: IntArray
    end: IntArray

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Spans:
        """The intervals in the columns thread, start_ns and end_ns."""
        return cls(*(rows[name].to_numpy(dtype=np.int64) for name in ("thread", "start_ns", "end_ns")))


def contained(inner: Spans, outer: Spans) -> tuple[IntArray, IntArray]:
    """Positions of an inner and an outer interval for every pair of which the one lies in the other.

    Pairs of one layer are in order of the outer ones; there is no order between layers and threads.
    """
    pairs = []
    own = by_thread(inner.thread)
    for thread, outside in by_thread(outer.thread).items():
        first, last = outer.start[outside], outer.end[outside]
        for layer in layers(own.get(thread, outside[:0]), inner.start, inner.end):
            place, owner = _expanded(*bounds(inner.start[layer], inner.end[layer], first, last))
            pairs.append((layer[place], outside[owner]))
    if not pairs:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def layers(which: IntArray, start: IntArray, end: IntArray) -> Iterator[IntArray]:
    """Deal the intervals at the positions `which` into layers in which starts and ends both never fall."""
    starts = start[which]
    left = which if (starts[1:] >= starts[:-1]).all() else which[np.lexsort((-end[which], starts))]
    while left.size:
        ends = end[left]
        top = ends >= np.maximum.accumulate(ends)
        yield left[top]
        left = left[~top]


def bounds(start: IntArray, end: IntArray, first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """Places of the intervals of one layer that lie inside each outer one: from `low` to before `high`.

    Args:
        start: starts of the layer's intervals, never falling; shape (n,).
        end: their ends, never falling either; shape (n,).
        first: first nanosecond of each outer interval; shape (m,).
        last: last nanosecond of each; shape (m,).
    """
    low = np.searchsorted(start, first, side="left")
    high = np.searchsorted(end, last, side="right")
    return low, np.maximum(low, high)


def sorting(major: IntArray, minor: IntArray) -> IntArray | None:
    """The order by two keys; None where it is that already."""
    step, inner = np.diff(major), np.diff(minor)
    if ((step > 0) | ((step == 0) & (inner >= 0))).all():
        return None
    return np.lexsort((minor, major))


def by_thread(thread: IntArray) -> dict[int, IntArray]:
    """Positions of each thread's intervals, in their order."""
    if not thread.size:
        return {}
    if (thread == thread[0]).all():
        return {int(thread[0]): np.arange(thread.size)}
    order = np.argsort(thread, kind="stable")
    values, starts = np.unique(thread[order], return_index=True)
    return dict(zip(values.tolist(), np.split(order, starts[1:]), strict=True))


def _expanded(low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
    """All places from each `low` to before its `high`, and the number of the pair that each is of."""
    counts = high - low
    owner = np.repeat(np.arange(counts.size), counts)
    before = np.cumsum(counts) - counts
    return np.arange(owner.size) + (low - before)[owner], owner
