"""`cuda_gpu_mem_time_sum`: copies and fills of the whole trace by kind, by time."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import durations_ns, time_summary
from analysis.trace import Trace

MEMSET = "[CUDA memset]"

_DIRECTIONS = (
    "Unknown",
    "Host-to-Device",
    "Device-to-Host",
    "Host-to-Array",
    "Array-to-Host",
    "Array-to-Array",
    "Array-to-Device",
    "Device-to-Array",
    "Device-to-Device",
    "Host-to-Host",
    "Peer-to-Peer",
    "Unified Host-to-Device",
    "Unified Device-to-Host",
    "Unified Device-to-Device",
)
# The labels of ENUM_CUDA_MEMCPY_OPER, which is the same in every export that has the table (3.7 to 3.20).


def cuda_gpu_mem_time_sum(trace: Trace) -> pd.DataFrame:
    """Copies by direction and fills, most time first; directions are named as from nsys 2023 on.

    A kind of copy that is not known here keeps its number; nsys leaves one out that the export does not name.
    """
    tables = (trace.memcpys, trace.memsets)
    names = [_operations(trace.memcpys["copy_kind"]), trace.memsets["bytes"].map(lambda _: MEMSET)]
    durations = pd.concat([durations_ns(table) for table in tables], ignore_index=True)
    name = pd.concat([part.astype("object") for part in names], ignore_index=True)
    return time_summary(durations, {"Operation": name}, "Count")


def _operations(kinds: pd.Series[int]) -> pd.Series[str]:
    known = dict(enumerate(_DIRECTIONS))
    titles = {kind: f"[CUDA memcpy {known.get(kind, f'kind {kind}')}]" for kind in kinds.unique()}
    return kinds.map(titles)
