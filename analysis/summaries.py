"""Whole-trace summaries with the columns of `nsys stats`, to prove that the counting agrees with NVIDIA's.

`kernel_summary` is `cuda_gpu_kern_sum`; with `by_shape` it is `cuda_gpu_kern_gb_sum`, which `gpukernsum` of
2022 was. `api_summary` is `cuda_api_sum` (`cudaapisum`).

Columns: time_percent (of the total of all rows, not of any wall time), total_ns, instances, avg_ns, med_ns,
min_ns, max_ns, stddev_ns (of the sample; 0 for one instance).
"""

from __future__ import annotations

import pandas as pd

from analysis.trace import Trace

SHAPE_COLUMNS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Launch shape of a kernel, by which `gpukernsum` of nsys 2022 divides the instances of a name."""


def kernel_summary(trace: Trace, *, by_shape: bool = False) -> pd.DataFrame:
    """Kernels of the whole trace by demangled name, most time first; `by_shape`: by name and launch shape."""
    return _summary(trace.kernels, ["name", *(SHAPE_COLUMNS if by_shape else ())])


def api_summary(trace: Trace) -> pd.DataFrame:
    """CUDA API calls of the whole trace by recorded name, version suffix included, most time first."""
    return _summary(trace.api_calls, ["name"])


def _summary(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    duration_ns = (rows["end_ns"] - rows["start_ns"]).rename("duration_ns")
    grouped = duration_ns.groupby([rows[key] for key in keys], observed=True)
    table = grouped.agg(["sum", "count", "mean", "median", "min", "max", "std"])
    table.columns = pd.Index(["total_ns", "instances", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"])
    table["stddev_ns"] = table["stddev_ns"].fillna(0.0)
    table.insert(0, "time_percent", table["total_ns"] * 100.0 / max(int(table["total_ns"].sum()), 1))
    table = table.reset_index()
    table["name"] = table["name"].astype("object")
    order = ["total_ns", *keys]
    return table.sort_values(order, ascending=[False, *[True] * len(keys)], ignore_index=True)
