"""`cuda_gpu_kern_gb_sum`: kernels of the trace by name, grid and block size; `gpukernsum` of nsys 2022."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import durations_ns, time_summary
from analysis.trace import Trace


def cuda_gpu_kern_gb_sum(trace: Trace) -> pd.DataFrame:
    """Kernels by demangled name and launch shape, most time first.

    `GridXYZ` and `BlockXYZ` are three numbers, each in a field of four characters.
    """
    kernels = trace.kernels
    by = {"GridXYZ": _sizes(kernels, "grid"), "BlockXYZ": _sizes(kernels, "block"), "Name": kernels["name"]}
    return time_summary(durations_ns(kernels), by, "Instances")


def _sizes(kernels: pd.DataFrame, kind: str) -> pd.Series[str]:
    """Each kernel's size as nsys prints it; only a few sizes occur, so each is formatted once."""
    axes = [f"{kind}_{axis}" for axis in "xyz"]
    number = kernels.groupby(axes, sort=False).ngroup()
    distinct = kernels[axes].drop_duplicates().itertuples(index=False)
    titles = dict(enumerate(" ".join(f"{size:4d}" for size in sizes) for sizes in distinct))
    return number.map(titles).astype("object")
