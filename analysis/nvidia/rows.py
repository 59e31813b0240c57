"""The joins that the reports share: GPU work with its launch call, launch calls with their NVTX ranges."""

from __future__ import annotations

import pandas as pd

from analysis.attribute import calls_in_ranges, has_time
from analysis.nvidia.extras import styles
from analysis.schema import NO_ID
from analysis.trace import Trace

_UNNAMED_DOMAIN = r"\(domain \d+\)"
_WORK = ["start_ns", "end_ns", "process", "device", "stream", "correlation"]


def launched(operations: pd.DataFrame, api_calls: pd.DataFrame) -> pd.DataFrame:
    """Operations with the call that launched each, by correlation id and process, as nsys joins them.

    Args:
        operations: rows of a table of GPU work.
        api_calls: the trace's API calls.

    Returns:
        One row per pair: the operation's columns and call (index in `api_calls`), call_start_ns, call_end_ns,
        thread and api. An operation without a call is left out; should a correlation id repeat within a
        process, the operation appears once for each call.
    """
    calls = api_calls.assign(call=api_calls.index)[api_calls["correlation"] != NO_ID]
    titles = {"start_ns": "call_start_ns", "end_ns": "call_end_ns", "name": "api"}
    wanted = ["process", "correlation", "call", "thread", *titles.values()]
    return join(operations, calls.rename(columns=titles)[wanted], on=["process", "correlation"])


def gpu_work(trace: Trace) -> pd.DataFrame:
    """Kernels, copies, fills and whole graph replays of a trace.

    Columns: start_ns, end_ns, process, device, stream, correlation. Whole replays are what graph mode records
    in place of kernels; nsys 2022.4 and 2023.4 overlook them. One that the driver gave no time is left out.
    """
    replays = trace.graph_launches[has_time(trace.graph_launches)]
    tables = (trace.kernels, trace.memcpys, trace.memsets, replays)
    return pd.concat([table[_WORK] for table in tables], ignore_index=True)


def ended_ranges(trace: Trace) -> pd.DataFrame:
    """NVTX ranges that nsys looks at: those that did not end on another thread. An open one is given an end.

    Columns: start_ns, end_ns, thread, title (`domain:name`, as nsys 2024 and newer show it), style. The index
    counts from 0 in order of start. An open range ends when the last range of the trace begins or ends.
    """
    ranges = trace.ranges
    kept = ranges[ranges["same_thread"]].reset_index(drop=True)
    last_ns = pd.concat([ranges["start_ns"], ranges["end_ns"].dropna()]).max()
    # A domain whose name the export does not tell has none in nsys's titles.
    domain = kept["domain"].mask(kept["domain"].str.fullmatch(_UNNAMED_DOMAIN), "")
    return pd.DataFrame(
        {
            "start_ns": kept["start_ns"],
            "end_ns": kept["end_ns"].fillna(last_ns).astype("int64"),
            "thread": kept["thread"],
            "title": domain + ":" + kept["name"],
            "style": styles(trace, kept),
        }
    )


def in_ranges(rows: pd.DataFrame, ranges: pd.DataFrame, api_calls: pd.DataFrame) -> pd.DataFrame:
    """Launched operations once for each range in which their call lies, both ends included.

    Args:
        rows: what `launched` gave.
        ranges: what `ended_ranges` gave.
        api_calls: the trace's API calls.

    Returns:
        The rows with `range` (index in `ranges`) added; those in no range are left out.
    """
    calls = api_calls.loc[rows["call"].unique()]
    return join(rows, calls_in_ranges(calls, ranges), on=["call"])


def join(left: pd.DataFrame, right: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    """Inner join that keeps the types of its columns; pandas makes floats of integers if no row is left."""
    joined = left.merge(right, on=on)
    return joined.astype({**dict(right.dtypes), **dict(left.dtypes)})
