"""Count, total, median and the like of the durations of each group, for tens of millions of them.

One sort of group and duration together puts every group's durations in order, side by side; all figures are
then sums over neighbours or single elements. docs/trace-reader.md has what it costs beside pandas and SQL.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

AnyIntArray = npt.NDArray[np.integer]

FIGURES = ("total_ns", "instances", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns")
"""Columns of a summary of durations, as `nsys stats` defines them; the deviation is of the sample."""

_LIMIT = 2**63 - 1


def duration_figures(group: AnyIntArray, duration_ns: AnyIntArray, groups: int) -> pd.DataFrame:
    """`FIGURES` of each group's durations, one row per group; the index is the number of the group.

    Args:
        group: group number of each duration, from 0 to groups - 1; shape (n,).
        duration_ns: the durations; shape (n,).
        groups: how many groups there are; those without a duration are left out.
    """
    if not duration_ns.size:
        return pd.DataFrame({name: pd.Series(dtype=_kind(name)) for name in FIGURES})
    ordered, first = _sorted(group, duration_ns, groups)
    count = np.diff(np.append(first, ordered.size))
    index = np.flatnonzero(count)
    first, count = first[index], count[index]
    total = np.add.reduceat(ordered, first)
    mean = total / count
    squares = np.add.reduceat((ordered - np.repeat(mean, count)) ** 2, first)
    middle = ordered[first + (count - 1) // 2] + ordered[first + count // 2]
    figures = (
        *(total, count, mean, middle / 2.0, ordered[first], ordered[first + count - 1]),
        np.sqrt(squares / np.maximum(count - 1, 1)),
    )
    return pd.DataFrame(dict(zip(FIGURES, figures, strict=True)), index=index)


def _sorted(
    group: AnyIntArray, duration_ns: AnyIntArray, groups: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Durations in order of group and length, and where each group begins."""
    low, high = int(duration_ns.min()), int(duration_ns.max())
    width = high - low + 1
    edges = np.arange(groups)
    if width * groups > _LIMIT:
        order = np.lexsort((duration_ns, group))
        return duration_ns[order].astype(np.int64), np.searchsorted(group[order], edges)
    key = group.astype(np.int64)
    key *= width
    key += duration_ns
    key -= low
    key.sort()
    first = np.searchsorted(key, edges * width)
    key -= np.repeat(edges * width, np.diff(np.append(first, key.size)))
    key += low
    return key, first


def _kind(name: str) -> str:
    return "int64" if name in {"total_ns", "instances", "min_ns", "max_ns"} else "float64"
