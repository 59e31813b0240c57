"""NVIDIA's own reports, computed from a `Trace`: the numbers to hold ours against.

One module per report, each with a function of the same name. A frame has the columns of
`nsys stats --report NAME` or `nsys analyze --rule NAME`, times in nanoseconds, unrounded where nsys prints
one decimal. A cell that nsys leaves empty is NA. Trace-wide, like nsys: cut the trace down first for less.

The definitions are those of the report scripts that ship with nsys (2022.4 and 2023.4 were read); the tests
run nsys itself on the same files and compare every cell. docs/nvidia-numbers.md says where launchgap's own
numbers differ from these, and why.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.nvidia.cuda_api_sum import cuda_api_sum
from analysis.nvidia.cuda_api_sync import cuda_api_sync
from analysis.nvidia.cuda_gpu_kern_gb_sum import cuda_gpu_kern_gb_sum
from analysis.nvidia.cuda_gpu_kern_sum import cuda_gpu_kern_sum
from analysis.nvidia.cuda_gpu_mem_time_sum import cuda_gpu_mem_time_sum
from analysis.nvidia.cuda_kern_exec_sum import cuda_kern_exec_sum
from analysis.nvidia.gpu_gaps import gpu_gaps
from analysis.nvidia.nvtx_gpu_proj_sum import nvtx_gpu_proj_sum
from analysis.nvidia.nvtx_gpu_proj_trace import nvtx_gpu_proj_trace
from analysis.nvidia.nvtx_kern_sum import nvtx_kern_sum
from analysis.trace import Trace

__all__ = [
    "REPORTS",
    "cuda_api_sum",
    "cuda_api_sync",
    "cuda_gpu_kern_gb_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_kern_exec_sum",
    "gpu_gaps",
    "nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace",
    "nvtx_kern_sum",
]

REPORTS: dict[str, Callable[[Trace], pd.DataFrame]] = {
    "cuda_gpu_kern_sum": cuda_gpu_kern_sum,
    "cuda_gpu_kern_gb_sum": cuda_gpu_kern_gb_sum,
    "cuda_api_sum": cuda_api_sum,
    "cuda_kern_exec_sum": cuda_kern_exec_sum,
    "cuda_gpu_mem_time_sum": cuda_gpu_mem_time_sum,
    "nvtx_gpu_proj_sum": nvtx_gpu_proj_sum,
    "nvtx_gpu_proj_trace": nvtx_gpu_proj_trace,
    "nvtx_kern_sum": nvtx_kern_sum,
    "gpu_gaps": gpu_gaps,
    "cuda_api_sync": cuda_api_sync,
}
"""NVIDIA's name of a report or rule -> the function that computes it from a trace."""
