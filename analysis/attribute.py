"""Which NVTX range a launch call, and the GPU work it started, belongs to.

The rule is that of NVIDIA's own projection (`nvtx_gpu_proj_sum`): an operation belongs to every range of the
launching thread in which its launch call lies, both ends included. Operations find their call by correlation
id and process together, because correlation ids repeat between processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.containment import Spans, contained, sorting
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
    processes = np.union1d(_distinct(operations["process"]), _distinct(api_calls["process"]))
    keys, positions = _first_calls(api_calls, processes)
    wanted = _keys(operations, processes)
    if not keys.size:
        return np.full(wanted.size, NO_CALL, dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    found = (keys[place] == wanted) & (wanted >= 0)
    call = place if positions is None else positions[place]
    if not _is_count(api_calls.index):
        call = api_calls.index.to_numpy(dtype=np.int64)[call]
    return np.where(found, call, NO_CALL).astype(np.int64, copy=False)


def calls_in_ranges(calls: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """Pairs of `call` (index in `calls`) and `range` (index in `ranges`), one per range a call lies in.

    Nested and overlapping ranges all count. Pairs are in order of range, then of call.
    """
    call, place = contained(Spans.of(calls), Spans.of(ranges))
    labels = calls.index.to_numpy(dtype=np.int64)[call]
    titles = ranges.index.to_numpy(dtype=np.int64)[place]
    order = sorting(titles, labels)
    if order is not None:
        labels, titles = labels[order], titles[order]
    return pd.DataFrame({"call": labels, "range": titles}, copy=False)


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


def _first_calls(api_calls: pd.DataFrame, processes: IntArray) -> tuple[IntArray, IntArray | None]:
    """Keys of all calls in order, each once, and where each key's earliest call is (None: 0, 1, 2, ...)."""
    keys = _keys(api_calls, processes)
    if (keys[1:] > keys[:-1]).all() and (not keys.size or keys[0] >= 0):
        return keys, None
    order = np.argsort(keys, kind="stable")
    order = order[np.searchsorted(keys[order], 0) :]  # calls without a correlation id come first
    if (np.diff(keys[order]) == 0).any():
        starts = api_calls["start_ns"].to_numpy(dtype=np.int64)
        order = order[np.lexsort((order, starts[order], keys[order]))]
    ordered = keys[order]
    first = np.ones(order.size, dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first], order[first]


def _keys(rows: pd.DataFrame, processes: IntArray) -> IntArray:
    """Correlation id and process of each row in one number; negative without a correlation id."""
    correlation = rows["correlation"].to_numpy(dtype=np.int64)
    if processes.size <= 1:
        return np.where(correlation == NO_ID, -1, correlation)
    place = np.searchsorted(processes, rows["process"].to_numpy())
    return np.where(correlation == NO_ID, -1, correlation * processes.size + place).astype(np.int64)


def _distinct(column: pd.Series[int]) -> IntArray:
    return np.asarray(pd.unique(column), dtype=np.int64)


def _is_count(index: pd.Index[Any]) -> bool:
    """Whether the index is 0, 1, 2, ..."""
    return isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1


def _calls(tables: Sequence[pd.DataFrame]) -> pd.Index[int]:
    """The calls that any operation of these tables came from."""
    found = np.unique(np.concatenate([table["call"].to_numpy(dtype=np.int64) for table in tables]))
    index: pd.Index[int] = pd.Index(found[found != NO_CALL], dtype="int64")
    return index


def _counted(names: pd.Series[str]) -> dict[str, int]:
    counts = names.astype("object").value_counts().sort_index()
    return {str(name): int(count) for name, count in counts.items()}
