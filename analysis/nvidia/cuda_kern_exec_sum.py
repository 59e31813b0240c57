"""`cuda_kern_exec_sum`: how long kernels took to launch, waited and ran; `kernexecsum` of nsys 2022.

In node mode every kernel of a graph has the one launch of the replay, whose API time nsys repeats for each of
them. Queue times below zero, of kernels that started before their launch call returned, are left out.
`analysis.nvidia.differences` shows what launchgap does instead, and by how much it differs.
"""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import api_titles, describe, durations_ns, process_id, thread_id
from analysis.nvidia.rows import launched
from analysis.trace import Trace

_KEYS = ("PID", "TID", "DevId", "API Name", "Kernel Name")
_PHASES = {"T": "total_ns", "A": "api_ns", "Q": "queue_ns", "K": "kernel_ns"}
_FIGURES = {"avg": "Avg", "med": "Med", "min": "Min", "max": "Max", "std": "StdDev"}


def kernel_launches(trace: Trace) -> pd.DataFrame:
    """One row per kernel and its launch call; kernels without one are left out.

    Columns: call (index in `trace.api_calls`), process, thread, device, api (as recorded), name, api_ns (of
    the call), queue_ns (kernel start minus end of the call; negative when the kernel did not wait for it),
    kernel_ns, total_ns (start of the call to the later one of its end and the kernel's).
    """
    rows = launched(trace.kernels, trace.api_calls)
    last_ns = rows["end_ns"].where(rows["end_ns"] > rows["call_end_ns"], rows["call_end_ns"])
    phases = {
        "api_ns": rows["call_end_ns"] - rows["call_start_ns"],
        "queue_ns": rows["start_ns"] - rows["call_end_ns"],
        "kernel_ns": durations_ns(rows),
        "total_ns": last_ns - rows["call_start_ns"],
    }
    return rows[["call", "process", "thread", "device", "api", "name"]].assign(**phases)


def cuda_kern_exec_sum(trace: Trace) -> pd.DataFrame:
    """Kernels by process, thread, device, launching call and name, the longest mean total time first.

    T is the whole, A the API call, Q the wait in the queue, K the kernel. QCount of Count kernels did not
    start before their call returned. Only they count in the Q columns; without any, these are NA and the
    deviation 0.
    """
    rows = kernel_launches(trace)
    keys = (
        process_id(rows["thread"]),
        thread_id(rows["thread"]),
        rows["device"],
        api_titles(rows["api"]),
        rows["name"],
    )
    named = pd.DataFrame(dict(zip(_KEYS, keys, strict=True)))
    group = named.groupby(list(_KEYS), observed=True, sort=False).ngroup()
    rows["queue_ns"] = rows["queue_ns"].astype("Int64").mask(rows["queue_ns"] < 0)
    phases = {letter: describe(rows[column], [group]) for letter, column in _PHASES.items()}
    columns = {"Count": phases["T"]["count"], "QCount": phases["Q"]["count"]}
    for letter, figures in phases.items():
        columns |= {f"{letter}{title} (ns)": figures[name] for name, title in _FIGURES.items()}
    # Groups are numbered in the order in which they first appear.
    table = named.drop_duplicates(ignore_index=True).join(pd.DataFrame(columns))
    table = table.astype({"API Name": "object", "Kernel Name": "object"})
    ordered = table.sort_values(["TAvg (ns)", *_KEYS], ascending=[False, *[True] * 5], ignore_index=True)
    return ordered[[*_KEYS[:3], *columns, *_KEYS[3:]]]
