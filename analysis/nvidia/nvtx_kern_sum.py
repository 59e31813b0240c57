"""`nvtx_kern_sum`: kernels by the NVTX ranges that they were launched in; `nvtxkernsum` of nsys 2022."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import FIGURES, describe, durations_ns, process_id, thread_id
from analysis.nvidia.rows import ended_ranges, in_ranges, launched
from analysis.trace import Trace

COLUMNS = (
    *("NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst", "Total Time (ns)"),
    *FIGURES.values(),
    "Kernel Name",
)
_PARTS = {"range": "Int64", "thread": "Int64", "name": "object", "kernel": "int64", "kernel_ns": "int64"}
_KEYS = ["NVTX Range", "Style", "PID", "TID", "Kernel Name"]


def nvtx_kern_sum(trace: Trace) -> pd.DataFrame:
    """Kernels by range, process, thread and name; sorted by range, process and thread, most time first.

    A kernel counts for every range in which its launch call lies, so that nested ranges of one name count it
    twice in `Total Time`, though not in `Kern Inst`. Kernels launched outside of all ranges have no range
    (NA); those without a launch call have no thread either.
    """
    if trace.ranges.empty or trace.api_calls.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    rows = _kernels_in_ranges(trace)
    keys = [rows[key] for key in _KEYS]
    distinct = rows.groupby(keys, dropna=False)[["range", "kernel"]].nunique()
    figures = describe(rows["kernel_ns"], keys)
    titles = {"range": "NVTX Inst", "kernel": "Kern Inst", "total": "Total Time (ns)", **FIGURES}
    table = distinct.join(figures).rename(columns=titles).reset_index()[list(COLUMNS)]
    order = ["NVTX Range", "PID", "TID", "Total Time (ns)", "Style", "Kernel Name"]
    ascending = [title != "Total Time (ns)" for title in order]
    return table.sort_values(order, ascending=ascending, na_position="first", ignore_index=True)


def _kernels_in_ranges(trace: Trace) -> pd.DataFrame:
    """Every kernel once for each range around it, or once without one: `_KEYS`, kernel, range, kernel_ns."""
    kernels = trace.kernels.assign(kernel=trace.kernels.index, kernel_ns=durations_ns(trace.kernels))
    ranges = ended_ranges(trace)
    called = launched(kernels, trace.api_calls)
    inside = in_ranges(called, ranges, trace.api_calls)
    outside = called[~called["call"].isin(inside["call"])]
    uncalled = kernels[~kernels["kernel"].isin(called["kernel"])]
    # The nullable type holds an id of 64 bits beside an absent one; a float would not.
    parts = [part.reindex(columns=list(_PARTS)).astype(_PARTS) for part in (inside, outside, uncalled)]
    rows = pd.concat(parts, ignore_index=True)
    keys = {
        "NVTX Range": rows["range"].map(ranges["title"]).astype("object"),
        "Style": rows["range"].map(ranges["style"]).astype("object"),
        "PID": process_id(rows["thread"]),
        "TID": thread_id(rows["thread"]),
        "Kernel Name": rows["name"],
    }
    return pd.DataFrame({**keys, **{name: rows[name] for name in ("kernel", "range", "kernel_ns")}})
