"""Writes a trace in Chrome's JSON format, for https://ui.perfetto.dev and for those without the Nsight GUI.

Host threads show their CUDA calls and, per NVTX domain, their ranges; each GPU shows its streams and the
graphs that were replayed whole; arrows lead from each launch to what it started. Events carry what
`chrome_trace` needs to read the same counts and times back. Format: the Trace Event Format, as
Perfetto's importer reads it: `X` and `B` events, and flows `s` and `f` that begin and end on a slice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.attribute import NO_CALL, call_of, has_time
from analysis.chrome_events import Kind
from analysis.chrome_tables import COPY_KINDS
from analysis.chrome_trace import ABOUT
from analysis.perfetto_tracks import Place, Tracks, lanes
from analysis.schema import HOST_DEVICE, NO_ID
from analysis.trace import Trace

_THREAD_MASK = 0xFFFFFF
_NEVER = np.iinfo(np.int64).max
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_SINGLE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
_Place = Callable[[tuple[int | str, ...], int], Place]


def event_count(trace: Trace) -> int:
    """How many lines `chrome_lines` gives, names of tracks aside."""
    return len(trace.api_calls) + len(trace.ranges) + 3 * sum(map(len, _operations(trace).values()))


def untimed_operations(trace: Trace) -> int:
    """GPU operations that are left out of the file, because the driver gave them no time to be drawn at."""
    return sum(int((~has_time(table)).sum()) for table in _operations(trace).values())


def chrome_lines(trace: Trace) -> Iterator[str]:
    """The lines of a Chrome trace, without line ends. Times count from the session's start.

    A session with events before its start is moved until the earliest is at 0, because Perfetto reads no
    negative times.
    """
    tracks = Tracks()
    ranges, calls = _ranges(trace, tracks), _calls(trace, tracks)
    work = [_work(trace, tracks, [Kind.GRAPH]), _work(trace, tracks, [*_SINGLE])]
    drawn = [ranges, calls, *work]
    origin_ns = min([0, *(int(rows["start_ns"].min()) for rows in drawn if len(rows))])
    about = {"schemaVersion": 1, "displayTimeUnit": "ns", "deviceProperties": _devices(trace)}
    yield json.dumps(about | {ABOUT: _about(trace, origin_ns)})[:-1] + ', "traceEvents": ['
    # A first event without a comma before it lets every other line begin with one.
    yield '{"ph":"M","name":"launchgap","pid":0,"tid":0,"args":{}}'
    for name, pid, tid, args in tracks.metadata():
        yield f',{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"args":{json.dumps(args)}}}'
    for rows in drawn:
        yield from _slices(rows, origin_ns)
    flow = 0
    for rows in work:
        yield from _flows(rows, trace, calls, origin_ns, flow)
        flow += len(rows)
    yield "]}"


def _operations(trace: Trace) -> dict[Kind, pd.DataFrame]:
    return {
        Kind.GRAPH: trace.graph_launches,
        Kind.KERNEL: trace.kernels,
        Kind.MEMCPY: trace.memcpys,
        Kind.MEMSET: trace.memsets,
    }


def _ranges(trace: Trace, tracks: Tracks) -> pd.DataFrame:
    rows = trace.ranges
    elsewhere = (~rows["same_thread"].astype(bool)).tolist()
    args = [
        json.dumps({"tid": thread & _THREAD_MASK, "domain": domain} | _if(moved, "ends on another thread"))
        for thread, domain, moved in zip(rows["thread"].tolist(), rows["domain"], elsewhere, strict=True)
    ]
    rows = rows.assign(kind=str(Kind.RANGE), args=args, end_ns=rows["end_ns"].fillna(_NEVER).astype("int64"))
    order = _ranks(rows["thread"])

    def place(key: tuple[int | str, ...], lane: int) -> Place:
        thread, domain = int(key[0]), str(key[1])
        return tracks.host(thread, f"NVTX {domain}".rstrip(), 2 * order[thread], lane)

    return _drawn(rows, ["thread", "domain"], place)


def _calls(trace: Trace, tracks: Tracks) -> pd.DataFrame:
    rows = trace.api_calls
    args = [
        json.dumps({"tid": thread & _THREAD_MASK} | _known(correlation=correlation))
        for thread, correlation in zip(rows["thread"].tolist(), rows["correlation"].tolist(), strict=True)
    ]
    of_runtime = rows["name"].astype("str").str.startswith("cuda")
    rows = rows.assign(kind=np.where(of_runtime, str(Kind.RUNTIME), str(Kind.DRIVER)), args=args)
    order = _ranks(rows["thread"])

    def place(key: tuple[int | str, ...], lane: int) -> Place:
        thread = int(key[0])
        return tracks.host(thread, "CUDA calls", 2 * order[thread] + 1, lane)

    return _drawn(rows, ["thread"], place)


def _work(trace: Trace, tracks: Tracks, kinds: Sequence[Kind]) -> pd.DataFrame:
    """GPU work of kinds that share the tracks of their streams."""
    tables = _operations(trace)
    rows = pd.concat([_labelled(kind, tables[kind], tracks) for kind in kinds], ignore_index=True)

    def place(key: tuple[int | str, ...], lane: int) -> Place:
        process, device, stream = (int(part) for part in key)
        replays = Kind.GRAPH in kinds
        what = f"graph replays · stream {stream}" if replays else f"stream {stream}"
        return tracks.gpu(process, _device_title(trace, device), what, 2 * stream + (not replays), lane)

    return _drawn(rows, ["process", "device", "stream"], place)


def _device_title(trace: Trace, device: int) -> str:
    if device == HOST_DEVICE:
        return "graph nodes on the host"
    name = trace.gpu_names[device] if 0 <= device < len(trace.gpu_names) else ""
    return f"GPU {device} {name}".rstrip()


def _labelled(kind: Kind, table: pd.DataFrame, tracks: Tracks) -> pd.DataFrame:
    """The operations that have a time, with `kind`, `name` and `args` of their events."""
    table = table[has_time(table)]
    columns = {name: table[name].tolist() for name in table.columns if name != "name"}
    args = [
        json.dumps(_operation_args(kind, {name: values[i] for name, values in columns.items()}, tracks))
        for i in range(len(table))
    ]
    kept = table[["start_ns", "end_ns", "process", "device", "stream", "correlation"]]
    names = pd.Series(_operation_names(kind, table), index=table.index, dtype="object")
    return kept.assign(kind=str(kind), args=pd.Series(args, index=table.index, dtype="object"), name=names)


def _operation_args(kind: Kind, row: Mapping[str, int], tracks: Tracks) -> dict[str, object]:
    args: dict[str, object] = {"pid": tracks.process(row["process"]), "device": row["device"]}
    args |= _known(stream=row["stream"], correlation=row["correlation"])
    args |= _known(**{"green context": row["green_context"]})
    if kind is Kind.GRAPH:
        return args | _known(**{"graph id": row["graph"]})
    args |= _known(**{"graph node id": row["graph_node"]})
    if kind is Kind.KERNEL:
        shape = [row[axis] for axis in _SHAPE]
        return args | {"grid": shape[:3], "block": shape[3:]}
    return args | {"bytes": row["bytes"]}


def _operation_names(kind: Kind, table: pd.DataFrame) -> Sequence[str]:
    if kind is Kind.KERNEL:
        return table["name"].astype("object").tolist()
    if kind is Kind.MEMCPY:
        known = range(1, len(COPY_KINDS))
        return [f"Memcpy {COPY_KINDS[k] if k in known else '?'}" for k in table["copy_kind"].tolist()]
    if kind is Kind.MEMSET:
        return ["Memset"] * len(table)
    return [f"graph {graph}" if graph != NO_ID else "graph" for graph in table["graph"].tolist()]


def _drawn(rows: pd.DataFrame, keys: list[str], place: _Place) -> pd.DataFrame:
    """The rows with `pid` and `tid` of their tracks, in an order in which Perfetto can nest them."""
    rows = rows.iloc[np.lexsort((-rows["end_ns"].to_numpy(), rows["start_ns"].to_numpy()))]
    pid, tid = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    for key, where in sorted(rows.groupby(keys, sort=False, observed=True).indices.items()):
        own = rows.iloc[where]
        lane = lanes(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        for number in range(int(lane.max()) + 1):
            track = place(key if isinstance(key, tuple) else (key,), number)
            pid[where[lane == number]], tid[where[lane == number]] = track.pid, track.tid
    return rows.assign(pid=pid, tid=tid)


def _slices(rows: pd.DataFrame, origin_ns: int) -> Iterator[str]:
    quoted = {name: json.dumps(name) for name in rows["name"].unique()}
    columns = ("kind", "name", "pid", "tid", "start_ns", "end_ns", "args")
    for kind, name, pid, tid, start, end, args in zip(*(rows[c].tolist() for c in columns), strict=True):
        lasted = f'"X","dur":{_us(end - start)}' if end != _NEVER else '"B"'
        yield (
            f',{{"ph":{lasted},"cat":"{kind}","name":{quoted[name]},"pid":{pid},"tid":{tid},'
            f'"ts":{_us(start - origin_ns)},"args":{args}}}'
        )


def _flows(
    rows: pd.DataFrame, trace: Trace, calls: pd.DataFrame, origin_ns: int, first: int
) -> Iterator[str]:
    """An arrow from each launch call to each operation that it started; after all slices of equal time."""
    found = call_of(rows, trace.api_calls)
    known = found != NO_CALL
    launching = calls.loc[found[known], ["pid", "tid", "start_ns"]].to_numpy().tolist()
    started = rows.loc[known, ["pid", "tid", "start_ns"]].to_numpy().tolist()
    for number, (call, operation) in enumerate(zip(launching, started, strict=True), first + 1):
        for phase, (pid, tid, start) in (('"s"', call), ('"f","bp":"e"', operation)):
            yield (
                f',{{"ph":{phase},"cat":"launch","name":"launch","id":{number},"pid":{pid},"tid":{tid},'
                f'"ts":{_us(start - origin_ns)}}}'
            )


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with every digit: a float would lose some."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _known(**ids: int) -> dict[str, object]:
    return {name: value for name, value in ids.items() if value != NO_ID}


def _if(condition: bool, name: str) -> dict[str, object]:
    return {name: True} if condition else {}


def _ranks(threads: pd.Series[int]) -> dict[int, int]:
    return {thread: rank for rank, thread in enumerate(sorted(threads.unique().tolist()))}


def _devices(trace: Trace) -> list[dict[str, object]]:
    return [{"id": number, "name": name} for number, name in enumerate(trace.gpu_names)]


def _about(trace: Trace, origin_ns: int) -> dict[str, object]:
    return {
        "tracer": getattr(trace, "tracer", "nsys"),
        # Diagnostics may hold paths and host names, and this file is made to be handed around.
        "unknown": [*getattr(trace, "unknown", ()), "diagnostics", "how graphs were made"],
        "nsys_version": trace.nsys_version,
        "export_schema": trace.export_schema,
        "graph_trace_mode": str(trace.graph_trace_mode) if trace.graph_trace_mode else None,
        "origin_ns": origin_ns,
    }
