"""What a graph costs: making it, in host time and memory; each replay; and when that has paid.

`graph_cost` reads a trace, whose times hold what the profiler adds; `record_cost` reads a latency record,
measured without one. A trace that was started after the capture, as launchgap's own are, shows the nodes and
the NVTX range of the capture, but no call of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from analysis.attribute import NO_CALL, IntArray, call_of, select_ranges
from analysis.costs import pays_after_requests, set_up_s
from analysis.launches import LaunchKind, api_name, launch_calls
from analysis.schema import NO_ID
from analysis.trace import Trace
from contract import NVTX_DOMAIN, LatencyRecord, RangeName, Strategy


class Step(StrEnum):
    """One thing that a graph costs, in order of a graph's life."""

    CAPTURE_RANGE = "capture range"
    STREAM_CAPTURE = "stream capture"
    INSTANTIATE = "instantiate"
    UPDATE = "update"
    UPLOAD = "upload"
    FIRST_LAUNCH = "first launch"
    REPLAY_LAUNCH = "replay launch"
    DESTROY = "destroy"


COST_COLUMNS = ("step", "calls", "total_us", "mean_us", "median_us", "max_us")
RECORD_COLUMNS = (
    "strategy",
    "capture_s",
    "compile_s",
    "set_up_s",
    "graph_pool_bytes",
    "saved_ms_per_request",
    "pays_after_requests",
)

_BEGIN = re.compile(r"cu(?:da)?StreamBeginCapture\w*")
_END = re.compile(r"cu(?:da)?StreamEndCapture\w*")
_CALLS = {
    Step.INSTANTIATE: re.compile(r"cu(?:da)?GraphInstantiate\w*"),
    Step.UPDATE: re.compile(r"cu(?:da)?GraphExecUpdate\w*"),
    Step.UPLOAD: re.compile(r"cu(?:da)?GraphUpload\w*"),
    Step.DESTROY: re.compile(r"cu(?:da)?Graph(?:Exec)?Destroy\w*"),
}
_MAKING = (Step.STREAM_CAPTURE, Step.INSTANTIATE, Step.UPLOAD)
_NS_PER_US = 1_000.0


def graph_cost(trace: Trace) -> pd.DataFrame:
    """Host time of each step over the whole trace, one row per `Step`; columns `COST_COLUMNS`.

    A stream capture runs from the start of the call that begins it to the end of the call of the same thread
    that ends it, and holds whatever the thread did between. A first launch is the first of each graph that
    the GPU shows, or of a process whose graphs cannot be told apart; all others are replay launches. `calls`
    is NA for steps of making a graph where graphs run that were made before the recording began; 0 says that
    there was none.
    """
    calls = _outermost(trace.api_calls)
    first, later = _graph_launches(trace)
    spans = {
        Step.CAPTURE_RANGE: _lengths(select_ranges(trace.ranges, RangeName.CAPTURE.value, NVTX_DOMAIN)),
        Step.STREAM_CAPTURE: _captures(calls),
        Step.FIRST_LAUNCH: first,
        Step.REPLAY_LAUNCH: later,
        **{step: _lengths(calls[_named(calls, pattern)]) for step, pattern in _CALLS.items()},
    }
    is_unseen = first.size > 0 and not spans[Step.INSTANTIATE].size
    rows = [_row(step, spans[step], is_unseen and step in _MAKING) for step in Step]
    return pd.DataFrame(rows, columns=list(COST_COLUMNS)).astype({"calls": "Int64"})


def node_counts(trace: Trace) -> pd.DataFrame:
    """Nodes created in each graph: graph, nodes, clones, span_us; empty where the trace shows none.

    Clones are nodes that were copied from another graph's, as instantiation does. The span runs from the
    first creation to the last. The upper half of a node's id is the number of its graph.
    """
    columns = ["graph", "nodes", "clones", "span_us"]
    if trace.graph_nodes.empty:
        return pd.DataFrame({name: pd.Series(dtype="int64") for name in columns})
    nodes = trace.graph_nodes
    graph = nodes["graph_node"].to_numpy(dtype=np.int64) >> 32
    grouped = nodes.assign(graph=graph, clone=nodes["original"] != NO_ID).groupby("graph")
    table = grouped.agg(
        nodes=("graph_node", "nunique"),
        clones=("clone", "sum"),
        first=("start_ns", "min"),
        last=("start_ns", "max"),
    ).reset_index()
    return table.assign(span_us=(table["last"] - table["first"]) / _NS_PER_US)[columns]


def record_cost(record: LatencyRecord | Mapping[str, Any]) -> pd.DataFrame:
    """What each strategy that sets something up costs, from a latency record; columns `RECORD_COLUMNS`.

    Seconds and bytes are the record's own. Saved is eager's median wall time less the strategy's, so negative
    where it is slower. `pays_after_requests` is a number, "never", or None where it cannot be told.
    """
    rows = [
        _record_row(record, name, fields)
        for name, fields in record["strategies"].items()
        if set_up_s(fields) is not None
    ]
    return pd.DataFrame(rows, columns=list(RECORD_COLUMNS))


def _record_row(
    record: LatencyRecord | Mapping[str, Any], name: str, fields: Mapping[str, Any]
) -> dict[str, object]:
    eager = record["strategies"].get(Strategy.EAGER.value)
    both = [] if eager is None or record["simulated"] else [eager["wall_ms"], fields["wall_ms"]]
    return {
        "strategy": name,
        "capture_s": fields["capture_s"],
        "compile_s": fields.get("compile_s"),
        "set_up_s": set_up_s(fields),
        "graph_pool_bytes": fields.get("graph_pool_bytes"),
        "saved_ms_per_request": median(both[0]) - median(both[1]) if both and all(both) else None,
        "pays_after_requests": pays_after_requests(record, name),
    }


def _row(step: Step, lengths_ns: IntArray, is_unseen: bool) -> dict[str, object]:
    row: dict[str, object] = {"step": str(step), "calls": pd.NA if is_unseen else lengths_ns.size}
    if not lengths_ns.size:
        return row | dict.fromkeys(COST_COLUMNS[2:], np.nan)
    total, middle = int(lengths_ns.sum()), float(np.median(lengths_ns))
    figures = (total, total / lengths_ns.size, middle, int(lengths_ns.max()))
    return row | {name: value / _NS_PER_US for name, value in zip(COST_COLUMNS[2:], figures, strict=True)}


def _graph_launches(trace: Trace) -> tuple[IntArray, IntArray]:
    """Lengths of the first launch call of each graph, and of all others."""
    launches = launch_calls(trace.api_calls)
    launches = _outermost(launches[launches["kind"] == LaunchKind.GRAPH])
    graph = launches.index.map(_graph_of_call(trace)).to_numpy(dtype=np.float64)
    known = launches.assign(graph=graph).sort_values("start_ns", kind="stable")
    is_first = ~known.duplicated(["process", "graph"])
    return _lengths(known[is_first]), _lengths(known[~is_first])


def _graph_of_call(trace: Trace) -> dict[int, int]:
    """Number of the graph that each launch call ran, where the GPU's side shows it."""
    whole = trace.graph_launches
    found = [pd.Series(whole["graph"].to_numpy(), call_of(whole, trace.api_calls))]
    for table in (trace.kernels, trace.memcpys, trace.memsets):
        nodes = table[table["graph_node"] != NO_ID]
        graph = nodes["graph_node"].to_numpy(dtype=np.int64) >> 32
        found.append(pd.Series(graph, call_of(nodes, trace.api_calls)))
    both = pd.concat(found)
    both = both[(both.index != NO_CALL) & (both != NO_ID)]
    lowest = both.groupby(level=0).min()
    return dict(
        zip(lowest.index.to_numpy(np.int64).tolist(), lowest.to_numpy(np.int64).tolist(), strict=True)
    )


def _captures(calls: pd.DataFrame) -> IntArray:
    """Lengths of stream captures: a begin and the next mark of its thread, if that is an end."""
    begins, ends = _named(calls, _BEGIN), _named(calls, _END)
    marks = calls.assign(begins=begins)[begins | ends].sort_values(["thread", "start_ns"], kind="stable")
    starts, lasts, thread, opens = (
        marks[name].to_numpy() for name in ("start_ns", "end_ns", "thread", "begins")
    )
    pairs = np.flatnonzero(opens[:-1] & ~opens[1:] & (thread[:-1] == thread[1:]))
    return np.asarray(lasts[pairs + 1] - starts[pairs], dtype=np.int64)


def _outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls in order of thread and time, without driver calls that lie inside a call of the same thread."""
    ordered = calls.sort_values(
        ["thread", "start_ns", "end_ns"], ascending=[True, True, False], kind="stable"
    )
    until = ordered.groupby("thread")["end_ns"].cummax()
    before = until.groupby(ordered["thread"]).shift(1)
    return ordered[before.isna() | (ordered["end_ns"] > before)]


def _named(calls: pd.DataFrame, pattern: re.Pattern[str]) -> pd.Series[bool]:
    names = calls["name"].cat.categories
    wanted = [name for name in names if pattern.fullmatch(api_name(name))]
    return calls["name"].isin(wanted)


def _lengths(spans: pd.DataFrame) -> IntArray:
    return (spans["end_ns"] - spans["start_ns"]).to_numpy(dtype=np.int64)
