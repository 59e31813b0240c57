"""`nvtx_gpu_proj_trace`: NVTX ranges as the GPU ran what was launched in them; `nvtxgpuproj` of nsys 2022."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import durations_ns, process_id, thread_id
from analysis.nvidia.nesting import parents_of, stack_of
from analysis.nvidia.rows import ended_ranges, gpu_work, in_ranges, launched
from analysis.trace import Trace


def nvtx_gpu_proj_trace(trace: Trace) -> pd.DataFrame:
    """One row for each range in which GPU work was launched, in order of that work.

    The projection runs from the first start to the last end of the work that was launched in the range on the
    same thread. `NumGPUOps` counts distinct correlation ids, so that a graph launch is one. `NumChild` counts
    ranges directly inside that have GPU work as well, `Lvl` those around, with or without. `RangeId` numbers
    the trace's ranges in order of start, where nsys shows the row of its table.
    """
    ranges = ended_ranges(trace)
    rows = in_ranges(launched(gpu_work(trace), trace.api_calls), ranges, trace.api_calls)
    work = rows.groupby("range").agg(
        first_ns=("start_ns", "min"), last_ns=("end_ns", "max"), calls=("correlation", "nunique")
    )
    own = ranges.loc[work.index]
    table = pd.DataFrame(
        {
            "Name": own["title"],
            "Projected Start (ns)": work["first_ns"],
            "Projected Duration (ns)": work["last_ns"] - work["first_ns"],
            "Orig Start (ns)": own["start_ns"],
            "Orig Duration (ns)": durations_ns(own),
            "Style": own["style"],
            "PID": process_id(own["thread"]),
            "TID": thread_id(own["thread"]),
            "NumGPUOps": work["calls"],
        }
    )
    table = pd.concat([table, _places(ranges, work.index)], axis=1)
    order = ["Projected Start (ns)", "Projected Duration (ns)", "RangeId"]
    return table.sort_values(order, ascending=[True, False, True], ignore_index=True)


def _places(ranges: pd.DataFrame, shown: pd.Index[int]) -> pd.DataFrame:
    """Where the ranges to be shown lie among all ranges: Lvl, NumChild, RangeId, ParentId and RangeStack."""
    parents = parents_of(ranges)
    stacks = [stack_of(int(number), parents) or [] for number in shown]
    children = pd.Series(parents[shown.to_numpy()]).value_counts()
    around = [stack[-2] if len(stack) > 1 else None for stack in stacks]
    return pd.DataFrame(
        {
            "Lvl": pd.array([len(stack) - 1 if stack else None for stack in stacks], dtype="Int64"),
            "NumChild": children.reindex(shown, fill_value=0).to_numpy(),
            "RangeId": shown,
            "ParentId": pd.array(around, dtype="Int64"),
            "RangeStack": [":" + ":".join(map(str, stack)) if stack else None for stack in stacks],
        },
        index=shown,
    )
