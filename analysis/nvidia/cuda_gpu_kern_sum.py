"""`cuda_gpu_kern_sum`: kernels of the whole trace by name. nsys 2022.4 has it by launch shape only."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import durations_ns, time_summary
from analysis.trace import Trace


def cuda_gpu_kern_sum(trace: Trace) -> pd.DataFrame:
    """Kernels by demangled name, most time first.

    Percentages are of the kernel time of the trace, not of any wall time.
    """
    return time_summary(durations_ns(trace.kernels), {"Name": trace.kernels["name"]}, "Instances")
