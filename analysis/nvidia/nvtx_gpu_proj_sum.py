"""`nvtx_gpu_proj_sum`: NVTX ranges as the GPU ran their launches, by name. nsys 2022.4 lacks it."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import describe
from analysis.nvidia.nvtx_gpu_proj_trace import nvtx_gpu_proj_trace
from analysis.trace import Trace

_FIGURES = {
    "total": "Total Proj Time (ns)",
    "range_ns": "Total Range Time (ns)",
    "count": "Range Instances",
    "avg": "Proj Avg (ns)",
    "med": "Proj Med (ns)",
    "min": "Proj Min (ns)",
    "max": "Proj Max (ns)",
    "std": "Proj StdDev (ns)",
}
_KEYS = ["Range", "Style"]


def nvtx_gpu_proj_sum(trace: Trace) -> pd.DataFrame:
    """Ranges with GPU work by name and style, the longest total projection first."""
    rows = nvtx_gpu_proj_trace(trace).rename(columns={"Name": "Range"})
    keys = [rows[key] for key in _KEYS]
    figures = describe(rows["Projected Duration (ns)"], keys)
    others = rows.groupby(keys, dropna=False).agg(
        **{
            "range_ns": ("Orig Duration (ns)", "sum"),
            "Total GPU Ops": ("NumGPUOps", "sum"),
            "Avg GPU Ops": ("NumGPUOps", "mean"),
            "Avg Range Lvl": ("Lvl", "mean"),
            "Avg Num Child": ("NumChild", "mean"),
        }
    )
    table = figures.join(others).rename(columns=_FIGURES).reset_index()
    ordered = table.sort_values(
        ["Total Proj Time (ns)", *_KEYS], ascending=[False, True, True], ignore_index=True
    )
    return ordered[[*_KEYS, *_FIGURES.values(), *others.columns[1:]]]
