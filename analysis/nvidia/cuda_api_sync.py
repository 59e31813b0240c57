"""`cuda_api_sync`: calls that block the host until the GPU is done; `cuda-sync-api` of nsys 2022."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import durations_ns, process_id, thread_id
from analysis.trace import Trace

BLOCKING = ("cudadevicesynchronize", "cudastreamsynchronize")
"""Beginnings, in lower case, of the names that the rule looks for: runtime calls only, no event waits."""


def cuda_api_sync(trace: Trace) -> pd.DataFrame:
    """Every call to cudaDeviceSynchronize or cudaStreamSynchronize, longest first.

    nsys shows 50 of them unless told otherwise (`rows=-1`).
    """
    names = trace.api_calls["name"].cat.categories
    blocking = [name for name in names if name.lower().startswith(BLOCKING)]
    calls = trace.api_calls[trace.api_calls["name"].isin(blocking)]
    table = pd.DataFrame(
        {
            "Duration (ns)": durations_ns(calls),
            "Start (ns)": calls["start_ns"],
            "PID": process_id(calls["thread"]),
            "TID": thread_id(calls["thread"]),
            "API Name": calls["name"].astype("object"),
        }
    )
    return table.sort_values(
        ["Duration (ns)", "Start (ns)"], ascending=[False, True], kind="stable", ignore_index=True
    )
