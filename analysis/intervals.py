"""Arithmetic on time intervals: how long a set of them covers.

Intervals are closed at no end: they are spans of int64 nanoseconds, which may be negative and may overlap.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def union_by_group(group: IntArray, start_ns: IntArray, end_ns: IntArray, groups: int) -> IntArray:
    """Nanoseconds that the intervals of each group cover together, overlaps counted once.

    Args:
        group: group number of each interval, from 0 to groups - 1; shape (n,).
        start_ns: first nanosecond of each interval, shape (n,).
        end_ns: end of each, shape (n,); an interval that ends before it starts covers nothing.
        groups: how many groups there are; one without intervals covers 0.

    Returns:
        Covered nanoseconds, shape (groups,).
    """
    order = np.lexsort((start_ns, group))
    ids, starts, ends = group[order], start_ns[order], np.maximum(start_ns, end_ns)[order]
    covered_until = running_end(ids, ends)
    first = np.ones(ids.size, dtype=bool)
    first[1:] = ids[1:] != ids[:-1]
    # What an interval adds is the part of it after everything that started before it has ended.
    begin = np.where(first, starts, np.maximum(starts, np.concatenate(([0], covered_until[:-1]))[: ids.size]))
    added = np.maximum(ends - begin, 0)
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, ids, added)
    return total


def union_ns(start_ns: IntArray, end_ns: IntArray) -> int:
    """Nanoseconds that the intervals cover together, overlaps counted once."""
    return int(union_by_group(np.zeros(start_ns.size, dtype=np.int64), start_ns, end_ns, 1)[0])


def running_end(ids: IntArray, ends: IntArray) -> IntArray:
    """Largest end so far within each group, shape (n,); `ids` is sorted, shape (n,).

    Ranks of the ends, raised by a step that grows with the group, turn the running maximum of each group into
    one over the whole array, without the overflow that raising times themselves could meet.
    """
    if not ends.size:
        return ends
    values, ranks = np.unique(ends, return_inverse=True)
    steps = ids * np.int64(values.size)
    highest = np.maximum.accumulate(ranks.astype(np.int64) + steps) - steps
    return np.asarray(values[highest], dtype=np.int64)
