"""Whole-trace summaries with the columns of `nsys stats`, to prove that the counting agrees with NVIDIA's.

`kernel_summary` is `cuda_gpu_kern_sum`; with `by_shape` it is `cuda_gpu_kern_gb_sum`, which `gpukernsum` of
2022 was. `api_summary` is `cuda_api_sum` (`cudaapisum`).

Columns: time_percent (of the total of all rows, not of any wall time), total_ns, instances, avg_ns, med_ns,
min_ns, max_ns, stddev_ns (of the sample; 0 for one instance).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.grouping import FIGURES, AnyIntArray, duration_figures
from analysis.trace import Trace

IntArray = npt.NDArray[np.int64]

SHAPE_COLUMNS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Launch shape of a kernel, by which `gpukernsum` of nsys 2022 divides the instances of a name."""


def kernel_summary(trace: Trace, *, by_shape: bool = False) -> pd.DataFrame:
    """Kernels of the whole trace by demangled name, most time first; `by_shape`: by name and launch shape."""
    if not by_shape:
        return _by_name(trace.kernels)
    keys = ["name", *SHAPE_COLUMNS]
    rows = trace.kernels
    group = rows.groupby(keys, observed=True, sort=False).ngroup().to_numpy()
    titles = rows[keys].drop_duplicates().reset_index(drop=True)
    return summary(group, durations_ns(rows), titles)


def api_summary(trace: Trace) -> pd.DataFrame:
    """CUDA API calls of the whole trace by recorded name, version suffix included, most time first."""
    return _by_name(trace.api_calls)


def range_summary(trace: Trace) -> pd.DataFrame:
    """NVTX ranges by domain and name, most time first; those that never ended are left out.

    `nvtx_sum` (`nvtxsum`), but for open ranges, which nsys lets run to the end of the trace.
    """
    rows = trace.ranges[trace.ranges["end_ns"].notna()].astype({"end_ns": "int64"})
    keys = ["domain", "name"]
    group = rows.groupby(keys, sort=False).ngroup().to_numpy()
    return summary(group, durations_ns(rows), rows[keys].drop_duplicates().reset_index(drop=True))


def summary(group: AnyIntArray, duration_ns: AnyIntArray, titles: pd.DataFrame) -> pd.DataFrame:
    """Figures of each group's durations under its titles, most time first.

    Args:
        group: group number of each duration; shape (n,).
        duration_ns: the durations; shape (n,).
        titles: what each group is called, a row each; groups without a duration are left out.
    """
    figures = duration_figures(group, duration_ns, len(titles))
    percent = figures["total_ns"] * 100.0 / max(int(figures["total_ns"].sum()), 1)
    keys = list(titles.columns)
    table = titles.loc[figures.index].assign(
        time_percent=percent, **{name: figures[name] for name in FIGURES}
    )
    table["name"] = table["name"].astype("object")
    order = ["total_ns", *keys]
    return table.sort_values(order, ascending=[False, *[True] * len(keys)], ignore_index=True)


def durations_ns(rows: pd.DataFrame) -> IntArray:
    """End minus start of each row; shape (n,)."""
    start, end = (rows[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    return np.asarray(np.subtract(end, start), dtype=np.int64)


def _by_name(rows: pd.DataFrame) -> pd.DataFrame:
    names = rows["name"].cat
    titles = pd.DataFrame({"name": names.categories.astype("object")})
    return summary(names.codes.to_numpy(), durations_ns(rows), titles)
