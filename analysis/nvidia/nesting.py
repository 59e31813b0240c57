"""Which NVTX range lies in which, as NVIDIA's projection sees it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

NOWHERE = -1
"""Parent of a range that lies in no other."""


def parents_of(ranges: pd.DataFrame) -> npt.NDArray[np.int64]:
    """The shortest other range of the same thread that contains each range, both ends included.

    Ranges of the same span are each other's parents, and therefore have no level; nsys does the same.

    Args:
        ranges: start_ns, end_ns and thread; the index counts from 0.

    Returns:
        Index of each range's parent, or `NOWHERE`; shape (n,).
    """
    parents = np.full(len(ranges), NOWHERE, dtype=np.int64)
    ordered = ranges.sort_values(
        ["thread", "start_ns", "end_ns"], ascending=[True, True, False], kind="stable"
    )
    around: list[tuple[int, int, int]] = []
    last_thread = None
    columns = (ordered[name].tolist() for name in ("thread", "start_ns", "end_ns"))
    for number, thread, start_ns, end_ns in zip(ordered.index.tolist(), *columns, strict=True):
        open_still = [] if thread != last_thread else [one for one in around if one[1] >= start_ns]
        length_ns = end_ns - start_ns
        if containing := [one for one in open_still if one[1] >= end_ns]:
            shortest_ns, _, parent = min(containing)
            parents[number] = parent
            if shortest_ns == length_ns:
                parents[parent] = number
        around, last_thread = [*open_still, (length_ns, end_ns, number)], thread
    return parents


def stack_of(number: int, parents: npt.NDArray[np.int64]) -> list[int] | None:
    """A range and those around it, the outermost first; None where two of them have the same span."""
    stack = [number]
    while (parent := int(parents[stack[-1]])) != NOWHERE:
        if parent in stack:
            return None
        stack.append(parent)
    return stack[::-1]
