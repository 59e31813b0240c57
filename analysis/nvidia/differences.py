"""Where launchgap counts otherwise than nsys on purpose: both numbers beside each other.

nsys charges the API time of a graph launch to every kernel of the graph (`cuda_kern_exec_sum`, node mode),
and leaves out the queue time of kernels that started before their launch call returned. launchgap charges a
call once and keeps negative delays. docs/nvidia-numbers.md says why.
"""

from __future__ import annotations

import pandas as pd

from analysis.launches import api_name
from analysis.nvidia.cuda_kern_exec_sum import kernel_launches
from analysis.trace import Trace


def launch_differences(trace: Trace) -> pd.DataFrame:
    """Launches of kernels by API call, suffixes aside, the most kernels first.

    Columns: API Name; Kernels, and Calls that launched them; Nsys API Time (ns), a call's time once per
    kernel, and Own API Time (ns), once per call; QCount, kernels that nsys takes into Nsys Queue Avg (ns);
    Own Queue Avg (ns) and Own Queue Min (ns), of all kernels. An average of none is NA.
    """
    rows = kernel_launches(trace)
    rows = rows.assign(
        api=rows["api"].astype("object").map(api_name),
        waited_ns=rows["queue_ns"].astype("Int64").mask(rows["queue_ns"] < 0),
    )
    nsys = rows.groupby("api").agg(
        **{
            "Kernels": ("call", "size"),
            "Calls": ("call", "nunique"),
            "Nsys API Time (ns)": ("api_ns", "sum"),
            "QCount": ("waited_ns", "count"),
            "Nsys Queue Avg (ns)": ("waited_ns", "mean"),
            "Own Queue Avg (ns)": ("queue_ns", "mean"),
            "Own Queue Min (ns)": ("queue_ns", "min"),
        }
    )
    once = rows.drop_duplicates("call").groupby("api")["api_ns"].sum()
    nsys.insert(3, "Own API Time (ns)", once)
    return nsys.reset_index(names="API Name").sort_values(
        ["Kernels", "API Name"], ascending=[False, True], ignore_index=True
    )
