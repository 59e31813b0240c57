"""`gpu_gaps`: stretches of time in which a process let a GPU idle; `gpu-starv` of nsys 2022."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.nvidia.durations import process_id
from analysis.nvidia.extras import contexts, profiler_overheads
from analysis.nvidia.rows import gpu_work, join
from analysis.trace import Trace

THRESHOLD_NS = 500_000_000
"""What the rule takes unless told otherwise (`gap=500`, in milliseconds). A gap is longer than this."""

OVERHEADS = (
    "CUDA profiling data flush overhead",
    "CUDA profiling stop overhead",
    "CUDA profiling overhead",
)
"""What of the profiler's own time counts as busy. Other overheads, as 2025 names them, do not."""

_DEVICE = ["pid", "device"]


def gpu_gaps(trace: Trace, threshold_ns: int = THRESHOLD_NS) -> pd.DataFrame:
    """Gaps longer than the threshold, per process and device, the longest first.

    Busy are kernels, copies, fills and whole graph replays, and the profiler's overhead that lies within the
    device's first and last operation. As in the rule, operations that begin at or before time 0 do not count.
    Nothing is busy before the first operation nor after the last, so that is no gap.
    """
    work = gpu_work(trace)
    work = work[work["start_ns"] > 0]
    work = work.assign(pid=process_id(work["process"]), context=contexts(trace, work))
    gaps = _holes(pd.concat([work, _overheads(trace, work)], ignore_index=True))
    long = gaps[gaps["Duration (ns)"] > max(threshold_ns, 0)]
    found = long.sort_values(["Duration (ns)", "Start (ns)"], ascending=[False, True], ignore_index=True)
    found.insert(0, "Row#", found.index + 1)
    return found


def _holes(busy: pd.DataFrame) -> pd.DataFrame:
    """From each end to the next start on its device, both in order of time; below 0 where work overlaps.

    With as many operations ended as begun, nothing runs until the next one begins.
    """
    starts = busy.sort_values([*_DEVICE, "start_ns"], kind="stable", ignore_index=True)
    ends = busy.sort_values([*_DEVICE, "end_ns"], kind="stable", ignore_index=True)
    same = (starts[_DEVICE] == starts[_DEVICE].shift(1)).all(axis=1)
    following_ns = starts.loc[same, "start_ns"].to_numpy()
    before = ends.iloc[np.flatnonzero(same) - 1].reset_index(drop=True)
    return pd.DataFrame(
        {
            "Duration (ns)": following_ns - before["end_ns"],
            "Start (ns)": before["end_ns"],
            "PID": before["pid"],
            "Device ID": before["device"],
            "Context ID": before["context"],
        }
    )


def _overheads(trace: Trace, work: pd.DataFrame) -> pd.DataFrame:
    """The profiler's overhead, once for each device of its process; it holds up all of them."""
    every = profiler_overheads(trace)
    found = every.assign(pid=process_id(every["thread"]))[every["name"].isin(OVERHEADS)]
    spans = work.groupby(_DEVICE, as_index=False).agg(
        first_ns=("start_ns", "min"), last_ns=("end_ns", "max"), context=("context", "last")
    )
    spread = join(found, spans, on=["pid"])
    return spread[(spread["start_ns"] > spread["first_ns"]) & (spread["end_ns"] < spread["last_ns"])]
