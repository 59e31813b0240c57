"""Which NVTX range a launch call, and the GPU work it started, belongs to.

The rule is that of NVIDIA's own projection (`nvtx_gpu_proj_sum`): an operation belongs to every range of the
launching thread in which its launch call lies, both ends included. Operations find their call by correlation
id and process together, because correlation ids repeat between processes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.launches import LaunchKind, launch_calls
from analysis.schema import NO_ID
from analysis.trace import Trace
from contract import NVTX_DOMAIN, RangeName

IntArray = npt.NDArray[np.int64]

NO_CALL = -1
"""`call` of an operation whose launch call is not in the trace."""


@dataclass(frozen=True)
class RangeSelector:
    """Which NVTX ranges are the requests; launchgap's own unless a foreign trace is read."""

    name: str = RangeName.REQUEST.value
    domain: str = NVTX_DOMAIN


@dataclass(frozen=True)
class Attributed:
    """A trace's launches and GPU operations, each with the request it belongs to.

    Attributes:
        requests: the ranges in order of time, numbered by the index from 0; start_ns, end_ns, thread.
        launches: launch calls inside a request; request, api, kind, start_ns, end_ns, answered (the GPU shows
            work of this call), nodes (the GPU shows single operations of it, not a whole graph).
        kernels, memcpys, memsets, graph_launches: the trace's tables with request and call added, cut down to
            what belongs to a request. In nested requests a row appears once for each.
        unlaunched: operations of the whole trace whose launch call is not in it.
        launched_by_others: operations in requests whose call is not known as a launch, by the call's name.
    """

    requests: pd.DataFrame
    launches: pd.DataFrame
    kernels: pd.DataFrame
    memcpys: pd.DataFrame
    memsets: pd.DataFrame
    graph_launches: pd.DataFrame
    unlaunched: int
    launched_by_others: dict[str, int]

    @property
    def operations(self) -> pd.DataFrame:
        """All GPU work in requests: request, call, process, device, start_ns, end_ns."""
        columns = ["request", "call", "process", "device", "start_ns", "end_ns"]
        tables = (self.kernels, self.memcpys, self.memsets, self.graph_launches)
        return pd.concat([table[columns] for table in tables], ignore_index=True)


def attribute(trace: Trace, selector: RangeSelector) -> Attributed:
    """Give every launch and GPU operation of a trace to the requests it belongs to."""
    requests = select_ranges(trace.ranges, selector.name, selector.domain)
    launches = launch_calls(trace.api_calls)
    tables = (trace.kernels, trace.memcpys, trace.memsets, trace.graph_launches)
    called = [table.assign(call=call_of(table, trace.api_calls)) for table in tables]
    nodes, working = _calls(called[:3]), _calls(called)
    pairs = calls_in_ranges(trace.api_calls.loc[launches.index.union(working)], requests)
    pairs = pairs.rename(columns={"range": "request"})
    kernels, memcpys, memsets, graph_launches = (table.merge(pairs, on="call") for table in called)
    launched = launches.merge(pairs, left_index=True, right_on="call").reset_index(drop=True)
    answered, shown = launched["call"].isin(working), launched["call"].isin(nodes)
    used = pd.concat([table["call"] for table in (kernels, memcpys, memsets, graph_launches)])
    return Attributed(
        requests=requests,
        launches=launched.assign(answered=answered, nodes=shown),
        kernels=kernels,
        memcpys=memcpys,
        memsets=memsets,
        graph_launches=graph_launches,
        unlaunched=sum(int((table["call"] == NO_CALL).sum()) for table in called),
        launched_by_others=_counted(trace.api_calls["name"].loc[used[~used.isin(launches.index)]]),
    )


def select_ranges(ranges: pd.DataFrame, name: str, domain: str) -> pd.DataFrame:
    """Complete ranges of one name and domain in order of time, numbered from 0 by the index.

    Left out are ranges that never ended and ranges that ended on another thread than they began on.
    """
    wanted = (ranges["name"] == name) & (ranges["domain"] == domain) & ranges["same_thread"]
    found = ranges[wanted & ranges["end_ns"].notna()].reset_index(drop=True)
    return found.assign(end_ns=found["end_ns"].astype("int64"))


def call_of(operations: pd.DataFrame, api_calls: pd.DataFrame) -> IntArray:
    """Index in `api_calls` of the call that launched each operation; `NO_CALL` where there is none.

    Should a correlation id repeat within a process, the earliest call counts: the outermost of nested ones.
    """
    processes = np.unique(np.concatenate([operations["process"], api_calls["process"]]))
    calls = api_calls[api_calls["correlation"] != NO_ID].sort_values("start_ns", kind="stable")
    keys = pd.Index(_keys(calls, processes))
    first = ~keys.duplicated()
    position = keys[first].get_indexer(pd.Index(_keys(operations, processes)))
    labels = np.append(calls.index.to_numpy(dtype=np.int64)[first], NO_CALL)
    return np.asarray(labels[position], dtype=np.int64)


def calls_in_ranges(calls: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """Pairs of `call` (index in `calls`) and `range` (index in `ranges`), one per range a call lies in.

    Nested and overlapping ranges all count. Ranges are dealt into layers that do not overlap, so that within
    a layer one binary search finds the only candidate.
    """
    found: list[pd.DataFrame] = []
    by_thread = dict(iter(calls.groupby("thread", sort=False)))
    for thread, own in ranges.groupby("thread", sort=False):
        part = by_thread.get(thread)
        if part is not None:
            found.extend(_pairs(part, layer) for layer in _layers(own))
    if not found:
        return pd.DataFrame({"call": pd.Series(dtype="int64"), "range": pd.Series(dtype="int64")})
    return pd.concat(found, ignore_index=True).sort_values(["range", "call"], ignore_index=True)


def count_by_request(rows: pd.DataFrame, requests: int) -> IntArray:
    """How many rows belong to each request; shape (requests,)."""
    return np.bincount(rows["request"].to_numpy(dtype=np.int64), minlength=requests).astype(np.int64)


def hidden_requests(attributed: Attributed) -> IntArray:
    """Requests with a graph launch whose nodes the trace does not show, as graph mode records them."""
    launches = attributed.launches
    unseen = launches[(launches["kind"] == LaunchKind.GRAPH) & ~launches["nodes"]]
    return np.unique(unseen["request"].to_numpy(dtype=np.int64))


def untimed_requests(attributed: Attributed) -> IntArray:
    """Requests with a graph launch of which the trace shows no GPU work, or work without a time."""
    launches = attributed.launches
    unanswered = launches[(launches["kind"] == LaunchKind.GRAPH) & ~launches["answered"]]
    timeless = attributed.graph_launches[~has_time(attributed.graph_launches)]
    return np.unique(np.concatenate([rows["request"].to_numpy(np.int64) for rows in (unanswered, timeless)]))


def has_time(operations: pd.DataFrame) -> pd.Series[bool]:
    """Whether the driver stamped each operation; start = end = 0 says that it did not."""
    return (operations["start_ns"] != 0) | (operations["end_ns"] != 0)


def _keys(rows: pd.DataFrame, processes: IntArray) -> IntArray:
    """Correlation id and process of each row in one number; negative without a correlation id."""
    place = np.searchsorted(processes, rows["process"].to_numpy())
    correlation = rows["correlation"].to_numpy(dtype=np.int64)
    return np.where(correlation == NO_ID, -1, correlation * processes.size + place).astype(np.int64)


def _calls(tables: Sequence[pd.DataFrame]) -> pd.Index[int]:
    """The calls that any operation of these tables came from."""
    found = np.unique(np.concatenate([table["call"].to_numpy(dtype=np.int64) for table in tables]))
    index: pd.Index[int] = pd.Index(found[found != NO_CALL], dtype="int64")
    return index


def _pairs(calls: pd.DataFrame, layer: pd.DataFrame) -> pd.DataFrame:
    starts, ends = layer["start_ns"].to_numpy(), layer["end_ns"].to_numpy()
    candidate = np.searchsorted(starts, calls["start_ns"].to_numpy(), side="right") - 1
    inside = (candidate >= 0) & (calls["end_ns"].to_numpy() <= ends[candidate])
    return pd.DataFrame(
        {"call": calls.index.to_numpy()[inside], "range": layer.index.to_numpy()[candidate[inside]]}
    )


def _layers(ranges: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Deal ranges of one thread into layers; within one, each starts after the one before it ended.

    Touching ranges go to different layers, because a call may lie in both.
    """
    ordered = ranges.sort_values("start_ns", kind="stable")
    free: list[tuple[int, int]] = []
    layer_of = np.zeros(len(ordered), dtype=np.int64)
    for position, (start, end) in enumerate(zip(ordered["start_ns"], ordered["end_ns"], strict=True)):
        layer = heapq.heappop(free)[1] if free and free[0][0] < start else len(free)
        layer_of[position] = layer
        heapq.heappush(free, (end, layer))
    return (part for _, part in ordered.groupby(layer_of))


def _counted(names: pd.Series[str]) -> dict[str, int]:
    counts = names.astype("object").value_counts().sort_index()
    return {str(name): int(count) for name, count in counts.items()}
