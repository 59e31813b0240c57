"""How many launches lie in the ranges of each group, and how much GPU work they started.

In a layer of calls (see `analysis.containment`) those inside a range are neighbours, so that two binary
searches and a running sum count them. Only where ranges of one group overlap, as a range inside another of
its name does, pairs are listed, so that a call counts once for the group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.containment import IntArray, Spans, bounds, by_thread, contained, layers
from analysis.intervals import running_end


@dataclass(frozen=True)
class RangeCounts:
    """Counts by group, each of shape (groups,).

    Attributes:
        launching: ranges of the group with a launch inside.
        launches: launch calls in any range of the group, each once.
        operations: GPU operations that these calls started.
    """

    launching: IntArray
    launches: IntArray
    operations: IntArray


def count_in_ranges(
    calls: Spans, operations: IntArray, ranges: Spans, group: IntArray, groups: int
) -> RangeCounts:
    """Count launches and their GPU work by the group of the ranges that they lie in.

    Args:
        calls: launch calls, n of them.
        operations: how many GPU operations each call started; shape (n,).
        ranges: ranges that ended on the thread they began on, m of them.
        group: number of each range's group, from 0 to groups - 1; shape (m,).
        groups: how many groups there are.
    """
    inside, started = np.zeros(group.size, dtype=np.int64), np.zeros(group.size, dtype=np.int64)
    own = by_thread(calls.thread)
    for thread, which in by_thread(ranges.thread).items():
        for layer in layers(own.get(thread, which[:0]), calls.start, calls.end):
            low, high = bounds(calls.start[layer], calls.end[layer], ranges.start[which], ranges.end[which])
            until = np.concatenate(([0], np.cumsum(operations[layer])))
            inside[which] += high - low
            started[which] += until[high] - until[low]
    launching = np.bincount(group[inside > 0], minlength=groups)
    sums = [np.zeros(groups, dtype=np.int64) for _ in range(2)]
    for total, part in zip(sums, (inside, started), strict=True):
        np.add.at(total, group, part)
    _count_once(calls, operations, ranges, group, sums)
    return RangeCounts(launching, *sums)


def _count_once(
    calls: Spans, operations: IntArray, ranges: Spans, group: IntArray, sums: list[IntArray]
) -> None:
    """Correct the sums of groups that have ranges which overlap or touch."""
    groups = sums[0].size
    mixed = np.zeros(groups, dtype=np.bool_)
    mixed[_overlapping(ranges, group)] = True
    which = np.flatnonzero(mixed[group])
    if not which.size:
        return
    call, place = contained(calls, Spans(*(part[which] for part in ranges)))
    # One number for group and call: both together are far from the limits of the type.
    pairs = np.unique(group[which][place] * np.int64(max(calls.start.size, 1)) + call)
    owner, call = np.divmod(pairs, max(calls.start.size, 1))
    for total, part in zip(sums, (np.ones(operations.size, dtype=np.int64), operations), strict=True):
        total[mixed] = 0
        np.add.at(total, owner, part[call])


def _overlapping(ranges: Spans, group: IntArray) -> IntArray:
    """Groups in which a range begins before, or just when, an earlier one of the same thread has ended."""
    _, thread = np.unique(ranges.thread, return_inverse=True)
    ids = group * np.int64(int(thread.max(initial=0)) + 1) + thread
    order = np.lexsort((ranges.start, ids))
    ids, starts, ends = ids[order], ranges.start[order], ranges.end[order]
    _, ids = np.unique(ids, return_inverse=True)
    until = running_end(ids, ends)
    close = (ids[1:] == ids[:-1]) & (starts[1:] <= until[:-1])
    return np.asarray(group[order][1:][close], dtype=np.int64)
