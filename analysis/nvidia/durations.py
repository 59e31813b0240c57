"""The figures that every summary of `nsys stats` gives of a set of durations, and how it cuts names and ids.

nsys prints averages, medians, deviations and percentages with one decimal; here they are not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

FIGURES = {
    "avg": "Avg (ns)",
    "med": "Med (ns)",
    "min": "Min (ns)",
    "max": "Max (ns)",
    "std": "StdDev (ns)",
}
_SUFFIX = len("_v7000")
_ID = 1 << 24  # a serialized id holds process and thread in 24 bits each


def describe(durations: pd.Series[int], by: Sequence[pd.Series[Any]]) -> pd.DataFrame:
    """Count, total, avg, med, min, max and std of the durations of each group, one row per group.

    The index holds the groups, those without a name (NA) included. A duration that is NA does not count.
    `std` is of the sample, and 0 of fewer than two; of none, all other figures are NA.
    """
    grouped = durations.groupby(list(by), observed=True, dropna=False)
    table = grouped.agg(["count", "sum", "mean", "median", "min", "max", "std"])
    table.columns = pd.Index(["count", "total", "avg", "med", "min", "max", "std"])
    return table.assign(std=table["std"].mask(table["count"] < 2, 0.0))


def time_summary(durations: pd.Series[int], by: dict[str, pd.Series[Any]], counted: str) -> pd.DataFrame:
    """The columns of `cuda_gpu_kern_sum` and its like, most time first.

    Args:
        durations: nanoseconds of every event, shape (n,).
        by: titles of the last columns and what they hold of every event, shape (n,); it is grouped by them.
        counted: title of the column with the number of events.
    """
    figures = describe(durations, [values.rename(title) for title, values in by.items()]).reset_index()
    figures = figures.astype(dict.fromkeys(by, "object"))
    total_ns = int(figures["total"].sum())
    figures["percent"] = figures["total"] * 100.0 / total_ns if total_ns else math.nan
    ordered = figures.sort_values(["total", *by], ascending=[False] + [True] * len(by), ignore_index=True)
    titles = {"percent": "Time (%)", "total": "Total Time (ns)", "count": counted, **FIGURES}
    return ordered.rename(columns=titles)[[*titles.values(), *by]]


def durations_ns(rows: pd.DataFrame) -> pd.Series[int]:
    """End minus start of each row."""
    return rows["end_ns"] - rows["start_ns"]


def process_id(serialized: pd.Series[int]) -> pd.Series[int]:
    """The operating system's process id in a serialized process or thread id."""
    return serialized // _ID % _ID


def thread_id(serialized: pd.Series[int]) -> pd.Series[int]:
    """The operating system's thread id in a serialized thread id."""
    return serialized % _ID


def api_title(recorded: str) -> str:
    """An API call's name as nsys shows it: `_v7000` is taken off, `_v10000` and `_ptsz` are not.

    Only a suffix of `_v` and four more characters goes; `analysis.launches.api_name` takes off every version.
    """
    return (
        recorded[:-_SUFFIX] if recorded[-_SUFFIX:].startswith("_v") and len(recorded) >= _SUFFIX else recorded
    )


def api_titles(recorded: pd.Series[str]) -> pd.Series[str]:
    """`api_title` of a whole column of names."""
    return recorded.map({name: api_title(str(name)) for name in recorded.unique()})
