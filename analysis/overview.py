"""What a whole trace holds: who ran what on which GPU, and which calls and kernels took the time.

Calls and kernels are summarised as `nsys stats` does (see `analysis.summaries`), in microseconds. GPU busy
time is the union of the intervals of one process on one device or stream, as in `analysis.tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.attribute import NO_CALL, IntArray, call_of, has_time
from analysis.intervals import union_by_group
from analysis.kernel_names import shorten_all
from analysis.launches import LaunchKind, launch_calls, launch_kind
from analysis.schema import HOST_DEVICE, NO_ID, PROCESS_MASK
from analysis.trace import Trace

OPERATIONS = {
    "kernels": "kernels",
    "memcpys": "memcpys",
    "memsets": "memsets",
    "graph_replays": "graph_launches",
}
"""Column that counts a kind of GPU work, and the attribute of `Trace` that holds it."""

_NS_PER_US = 1_000.0
_HOST = "(host nodes of graphs)"


@dataclass(frozen=True)
class Work:
    """A trace's launches, and the call that started each GPU operation: found once, used by every table.

    `calls` holds for each column of `OPERATIONS` the index in `trace.api_calls` of each operation's call, or
    `NO_CALL`.
    """

    trace: Trace
    launches: pd.DataFrame
    calls: Mapping[str, IntArray]

    def operations(self, column: str) -> pd.DataFrame:
        """The trace's table of one kind of GPU work."""
        table: pd.DataFrame = getattr(self.trace, OPERATIONS[column])
        return table

    def per_call(self, columns: Sequence[str] = tuple(OPERATIONS)) -> IntArray:
        """How many operations each API call started, by its index label; shape (largest label + 1,)."""
        length = int(self.trace.api_calls.index.max()) + 1 if len(self.trace.api_calls) else 0
        found = [self.calls[column] for column in columns]
        return sum(
            (np.bincount(call[call != NO_CALL], minlength=length) for call in found),
            start=np.zeros(length, dtype=np.int64),
        )


def work_of(trace: Trace) -> Work:
    """Tie each operation of a trace to the call that launched it."""
    calls = {column: call_of(getattr(trace, name), trace.api_calls) for column, name in OPERATIONS.items()}
    return Work(trace, launch_calls(trace.api_calls), calls)


def process_id(serialized: int) -> int:
    """The system's process id in a serialized process or thread id of nsys."""
    return (serialized >> 24) & 0xFFFFFF


def kernels(summary: pd.DataFrame) -> pd.DataFrame:
    """Kernels of `kernel_summary`, most time first: kernel, calls, share_percent, times, full_name."""
    table = _in_us(summary)
    short = shorten_all(table["name"])
    table = table.rename(columns={"name": "full_name"})
    table.insert(0, "kernel", [short[name] for name in table["full_name"]])
    return table[[*(name for name in table if name != "full_name"), "full_name"]]


def launches(summary: pd.DataFrame) -> pd.DataFrame:
    """Launches of `api_summary`, most time first: call (recorded name), kind, calls, share_percent, times."""
    kinds = summary["name"].map({name: launch_kind(name) for name in summary["name"]})
    kept = summary[kinds.notna()].reset_index(drop=True)
    share = kept["total_ns"] * 100.0 / max(int(kept["total_ns"].sum()), 1)
    table = _in_us(kept.assign(time_percent=share)).rename(columns={"name": "call"})
    table.insert(1, "kind", kinds.dropna().astype(str).to_list())
    return table


def streams(work: Work) -> pd.DataFrame:
    """GPU work by stream: process, device, stream, counts, gpu_busy_us; most work first."""
    table = _by(work, ["process", "device", "stream"])
    order = ["gpu_busy_us", "process", "device", "stream"]
    return table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)


def range_times(summary: pd.DataFrame) -> pd.DataFrame:
    """Ranges of `range_summary`, most time first: domain, name, instances, times."""
    table = _in_us(summary).rename(columns={"calls": "instances"}).drop(columns="share_percent")
    table.insert(0, "domain", summary["domain"])
    return table


def stream_count(work: Work) -> int:
    """How many streams of all processes and devices ran anything."""
    keys = ["process", "device", "stream"]
    distinct = [work.operations(column)[keys].drop_duplicates() for column in OPERATIONS]
    return len(pd.concat(distinct).drop_duplicates())


def devices(work: Work, gpu_name: Callable[[int, int], str | None]) -> pd.DataFrame:
    """GPU work by process and device: process, device, gpu, streams, counts, gpu_busy_us."""
    table = _by(work, ["process", "device"])
    each = _by(work, ["process", "device", "stream"], timed=False).groupby(["process", "device"])["stream"]
    table = table.merge(each.size().rename("streams"), left_on=["process", "device"], right_index=True)
    names = [
        _HOST if device == HOST_DEVICE else gpu_name(pid, device)
        for pid, device in zip(table["process"], table["device"], strict=True)
    ]
    table["gpu"] = pd.Series(names, index=table.index, dtype="object")
    return table[["process", "device", "gpu", "streams", *OPERATIONS, "gpu_busy_us"]]


def processes(work: Work, names_by_id: Mapping[int, str]) -> pd.DataFrame:
    """Who did anything: process, name, threads (that call CUDA or have ranges), api_calls, launches, ..."""
    trace = work.trace
    tables = {"api_calls": trace.api_calls, "launches": work.launches, "ranges": trace.ranges}
    tables |= {column: work.operations(column) for column in OPERATIONS}
    counts = pd.DataFrame({name: table["process"].value_counts() for name, table in tables.items()})
    counts = counts.fillna(0).astype("int64").sort_index()
    hosts = pd.concat([pd.Series(table["thread"].unique()) for table in (trace.api_calls, trace.ranges)])
    threads = hosts[hosts != NO_ID].drop_duplicates()
    threads = (threads & PROCESS_MASK).value_counts().reindex(counts.index)
    counts.insert(0, "threads", threads.fillna(0).astype("int64"))
    pids = [process_id(int(key)) for key in counts.index]
    names = [names_by_id.get(pid) for pid in pids]
    counts.insert(0, "name", pd.Series(names, counts.index, dtype="object"))
    counts.insert(0, "process", pids)
    return counts.reset_index(drop=True)


def domains(trace: Trace) -> pd.DataFrame:
    """NVTX domains: domain, names, ranges, unfinished (ranges that never ended)."""
    ranges = trace.ranges.assign(open=trace.ranges["end_ns"].isna())
    table = ranges.groupby("domain").agg(
        names=("name", "nunique"), ranges=("name", "size"), unfinished=("open", "sum")
    )
    return table.reset_index()


def graphs(work: Work) -> pd.DataFrame:
    """Replays of CUDA graphs as the GPU shows them, by process, device and graph.

    `shown_as` is `whole` (graph mode: one record a replay) or `nodes` (node mode: a replay's operations;
    which graph it was is not recorded: NA). `kernels` and `operations` are a replay's means, NA where the
    trace does not show them, as is a GPU time that the driver did not give.
    """
    whole, nodes = _whole_graphs(work.trace), _graph_nodes(work)
    table = pd.concat([part for part in (whole, nodes) if len(part)] or [whole], ignore_index=True)
    return table.astype({"graph": "Int64", "replays": "int64"})


def graph_facts(work: Work) -> dict[str, int]:
    """Graph launches of the host, and how many the GPU shows as nodes, as a whole, or not at all."""
    calls = work.launches.index[work.launches["kind"] == LaunchKind.GRAPH].to_numpy()
    whole = work.per_call(["graph_replays"])[calls] > 0
    nodes = work.per_call(["kernels", "memcpys", "memsets"])[calls] > 0
    return {
        "graph_launches": len(calls),
        "graph_launches_as_nodes": int(nodes.sum()),
        "graph_launches_as_whole": int(whole.sum()),
        "graph_launches_unseen": int((~(nodes | whole)).sum()),
    }


def _in_us(summary: pd.DataFrame) -> pd.DataFrame:
    """A summary's columns under launchgap's names, times in microseconds."""
    table = pd.DataFrame({"name": summary["name"], "calls": summary["instances"]})
    table["share_percent"] = summary["time_percent"]
    for name, theirs in (("total", "total"), ("mean", "avg"), ("p50", "med"), ("min", "min"), ("max", "max")):
        table[f"{name}_us"] = summary[f"{theirs}_ns"] / _NS_PER_US
    return table


def _by(work: Work, keys: list[str], *, timed: bool = True) -> pd.DataFrame:
    """Counts of GPU work by `keys`, in their order, and unless told otherwise the busy time."""
    tables = [work.operations(column) for column in OPERATIONS]
    columns = [np.concatenate([table[key].to_numpy(np.int64) for table in tables]) for key in keys]
    group, table = _groups(keys, columns)
    bounds = np.cumsum([0, *map(len, tables)])
    for column, first, last in zip(OPERATIONS, bounds[:-1], bounds[1:], strict=True):
        table[column] = np.bincount(group[first:last], minlength=len(table))
    if timed:
        starts, ends = (
            np.concatenate([t[name].to_numpy(np.int64) for t in tables]) for name in ("start_ns", "end_ns")
        )
        # start = end = 0 says that the driver gave no time: it covers nothing.
        table["gpu_busy_us"] = union_by_group(group, starts, ends, len(table)) / _NS_PER_US
        table.loc[table["device"] == HOST_DEVICE, "gpu_busy_us"] = np.nan
    table["process"] = [process_id(int(key)) for key in table["process"]]
    return table


def _groups(keys: list[str], columns: list[IntArray]) -> tuple[IntArray, pd.DataFrame]:
    """Number of each row's group, and the keys of each group, in order."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        part, values = pd.factorize(column, sort=True)
        code = code * max(len(values), 1) + part
    group, distinct = pd.factorize(code, sort=True)
    first = np.zeros(len(distinct), dtype=np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return group.astype(np.int64), pd.DataFrame(
        {key: column[first] for key, column in zip(keys, columns, strict=True)}
    )


_GRAPH_COLUMNS = (
    "process",
    "device",
    "graph",
    "shown_as",
    "replays",
    "kernels",
    "operations",
    "total_us",
    "mean_us",
)


def _whole_graphs(trace: Trace) -> pd.DataFrame:
    rows = trace.graph_launches
    duration_us = ((rows["end_ns"] - rows["start_ns"]) / _NS_PER_US).where(has_time(rows))
    keys = ["process", "device", "graph"]
    grouped = rows.assign(duration_us=duration_us).groupby(keys)["duration_us"]
    table = grouped.agg(replays="size", total_us="sum", mean_us="mean").reset_index()
    table["total_us"] = table["total_us"].where(table["mean_us"].notna())
    return table.assign(process=[process_id(int(key)) for key in table["process"]], shown_as="whole").reindex(
        columns=list(_GRAPH_COLUMNS)
    )


def _graph_nodes(work: Work) -> pd.DataFrame:
    """Replays seen node by node: one replay is what one launch call of a process started."""
    keys = ["process", "device", "correlation"]
    kept = [*keys, "start_ns", "end_ns"]
    launched = work.launches.index[work.launches["kind"] == LaunchKind.GRAPH]
    parts = []
    for column in ("kernels", "memcpys", "memsets"):
        rows = work.operations(column)
        # torch.profiler does not say which node an operation is, but which launch it came from.
        is_node = (rows["graph_node"] != NO_ID).to_numpy() | np.isin(work.calls[column], launched.to_numpy())
        parts.append(rows.loc[is_node, kept].assign(kernel=column == "kernels"))
    nodes = pd.concat(parts, ignore_index=True)
    group, replays = _groups(keys, [nodes[key].to_numpy(np.int64) for key in keys])
    starts, ends = (nodes[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    replays["busy_us"] = union_by_group(group, starts, ends, len(replays)) / _NS_PER_US
    replays["kernels"] = np.bincount(group, weights=nodes["kernel"].to_numpy(), minlength=len(replays))
    replays["operations"] = np.bincount(group, minlength=len(replays))
    of = {"replays": ("busy_us", "size"), "total_us": ("busy_us", "sum"), "mean_us": ("busy_us", "mean")}
    of |= {name: (name, "mean") for name in ("kernels", "operations")}
    table = replays.groupby(["process", "device"]).agg(**of).reset_index()
    table["process"] = [process_id(int(key)) for key in table["process"]]
    return table.assign(shown_as="nodes").reindex(columns=list(_GRAPH_COLUMNS))
