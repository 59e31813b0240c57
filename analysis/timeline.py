"""One request on a time axis: host calls, GPU operations, and the gaps of the GPU's ledger.

All times are nanoseconds from the start of the request's range. Nothing is cut off: a call that began before
the range has a negative start, and work that outlasts the range ends after it. The parts of the ledger are
those of `analysis.ledger`, of which head + busy + gaps + tail = range to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, RangeSelector, attribute, has_time
from analysis.host_ledger import HostPart, host_part
from analysis.ledger import gpu_ledger
from analysis.operation_keys import COPY_DIRECTIONS
from analysis.schema import HOST_DEVICE, NO_ID
from analysis.timeline_gaps import Gap, gaps_of_request
from analysis.trace import Trace
from analysis.tracers import tracer_of
from analysis.waterfall import median_request
from contract import LaunchgapError, TraceMode

NO_LAUNCH = -1
"""`call` of an operation whose launch call is not among the request's calls."""

_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class WorkKind(StrEnum):
    """What ran on the GPU. A `graph` is a whole replay, as graph mode records it."""

    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"
    GRAPH = "graph"


@dataclass(frozen=True)
class SubRange:
    """An NVTX range inside the request's: of its thread and domain, and in no other such range."""

    name: str
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class HostCall:
    """A CUDA API call of the request's thread; `depth` is how many other calls it lies in."""

    name: str
    part: HostPart
    start_ns: int
    duration_ns: int
    depth: int


@dataclass(frozen=True)
class Row:
    """A row that operations are drawn in: part of a stream in which they follow each other."""

    device: int
    stream: int


@dataclass(frozen=True)
class Operation:
    """GPU work of the request. `row` and `call` are places in the timeline's rows and calls."""

    name: str
    kind: WorkKind
    shape: str
    start_ns: int
    duration_ns: int
    row: int
    call: int


@dataclass(frozen=True)
class Timeline:
    """One request of a trace.

    Attributes:
        strategy: what was run.
        trace_mode: node (each node of a graph is an operation) or graph (a replay is one).
        tracer: what recorded it, by the name its users call it.
        request: number of the request, from 0; of `requests` in the trace.
        range_ns: length of its range, as traced: no latency.
        head_ns, busy_ns, tail_ns: the ledger's parts that are no gaps.
        outside_ns: GPU work beyond the ends of the range.
        undrawn: operations of the request without a time, or on the host as nodes of a graph.
        ranges, calls, operations, gaps: each in order of start.
        rows: where operations are drawn, by device and stream.
    """

    strategy: str
    trace_mode: TraceMode
    tracer: str
    request: int
    requests: int
    range_ns: int
    head_ns: int
    busy_ns: int
    tail_ns: int
    outside_ns: int
    undrawn: int
    ranges: tuple[SubRange, ...]
    calls: tuple[HostCall, ...]
    rows: tuple[Row, ...]
    operations: tuple[Operation, ...]
    gaps: tuple[Gap, ...]

    def count(self, kind: WorkKind) -> int:
        """How many operations are of a kind."""
        return sum(one.kind is kind for one in self.operations)


def timeline_of(
    trace: Trace,
    selector: RangeSelector,
    strategy: str,
    *,
    attributed: Attributed | None = None,
    request: int | None = None,
) -> Timeline:
    """The timeline of one request: the one with the median range, as in the waterfall, unless told otherwise.

    `attributed` saves attributing the trace again where that was done with the same selector.

    Raises:
        LaunchgapError: no range is selected, or there is no such request.
    """
    found = attributed if attributed is not None else attribute(trace, selector)
    if found.requests.empty:
        raise LaunchgapError(f"{trace.path}: no range named {selector.name!r} to draw; name another one")
    ledger = gpu_ledger(found)
    number = median_request(ledger["range_ns"].tolist()) if request is None else request
    if not 0 <= number < len(ledger):
        last = len(ledger) - 1
        raise LaunchgapError(f"{trace.path}: has no request {number} to draw; name one from 0 to {last}")
    parts = {name: int(ledger[name].iloc[number]) for name in ledger.columns}
    origin_ns, thread = (int(found.requests[name].iloc[number]) for name in ("start_ns", "thread"))
    calls, places = _calls(trace, thread, origin_ns, parts["range_ns"])
    work = _work(found, number)
    drawn = work[has_time(work) & (work["device"] != HOST_DEVICE)].reset_index(drop=True)
    rows, row_of = _rows(drawn)
    return Timeline(
        strategy=strategy,
        trace_mode=trace.graph_trace_mode or TraceMode.NODE,
        tracer=tracer_of(trace).name,
        request=number,
        requests=len(ledger),
        **{name: parts[name] for name in ("range_ns", "head_ns", "busy_ns", "tail_ns", "outside_ns")},
        undrawn=len(work) - len(drawn),
        ranges=_ranges(trace, selector, thread, origin_ns, parts["range_ns"]),
        calls=calls,
        rows=rows,
        operations=_operations(drawn, origin_ns, row_of, places),
        gaps=gaps_of_request(found, number),
    )


def _calls(
    trace: Trace, thread: int, origin_ns: int, range_ns: int
) -> tuple[tuple[HostCall, ...], dict[int, int]]:
    """The thread's calls that the range sees any of, and the place of each by its index in the trace."""
    table = trace.api_calls
    seen = (table["start_ns"] < origin_ns + range_ns) & (table["end_ns"] > origin_ns)
    inside = (table["start_ns"] >= origin_ns) & (table["end_ns"] <= origin_ns + range_ns)
    table = table[(table["thread"] == thread) & (seen | inside)]
    table = table.iloc[np.lexsort((-table["end_ns"].to_numpy(), table["start_ns"].to_numpy()))]
    names = table["name"].astype("object").fillna("").tolist()
    starts, ends = table["start_ns"].tolist(), table["end_ns"].tolist()
    rows = zip(names, starts, ends, _depths(starts, ends), strict=True)
    calls = tuple(
        HostCall(str(name), host_part(str(name)), start - origin_ns, max(end - start, 0), depth)
        for name, start, end, depth in rows
    )
    return calls, {int(index): place for place, index in enumerate(table.index)}


def _depths(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """How many earlier ones are still open at the start of each; of equal starts the longest comes first."""
    depths, opened = [], list[int]()
    for start, end in zip(starts, ends, strict=True):
        opened = [until for until in opened if until > start]
        depths.append(len(opened))
        opened.append(end)
    return depths


def _ranges(
    trace: Trace, selector: RangeSelector, thread: int, origin_ns: int, range_ns: int
) -> tuple[SubRange, ...]:
    table = trace.ranges
    mine = (table["thread"] == thread) & (table["domain"] == selector.domain) & table["same_thread"]
    table = table[mine & table["end_ns"].notna() & (table["name"] != selector.name)]
    ends = table["end_ns"].astype("int64")
    inside = (table["start_ns"] >= origin_ns) & (ends <= origin_ns + range_ns)
    spans = sorted(
        zip(table["start_ns"][inside].tolist(), ends[inside].tolist(), table["name"][inside], strict=True),
        key=lambda span: (span[0], -span[1]),
    )
    depths = _depths([start for start, _, _ in spans], [end for _, end, _ in spans])
    return tuple(
        SubRange(str(name), start - origin_ns, max(end - start, 0))
        for (start, end, name), depth in zip(spans, depths, strict=True)
        if depth == 0
    )


def _work(attributed: Attributed, request: int) -> pd.DataFrame:
    """The request's operations: kind, name, shape, device, stream, start_ns, end_ns, call; by start."""
    named = {
        WorkKind.KERNEL: _named_kernels(_own(attributed.kernels, request)),
        WorkKind.COPY: _named_copies(_own(attributed.memcpys, request)),
        WorkKind.FILL: _own(attributed.memsets, request).assign(name="fill"),
        WorkKind.GRAPH: _named_graphs(_own(attributed.graph_launches, request)),
    }
    columns = ["kind", "name", "shape", "device", "stream", "start_ns", "end_ns", "call"]
    sized = (WorkKind.COPY, WorkKind.FILL)
    tables = []
    for kind, table in named.items():
        if kind in sized:
            table = table.assign(shape=[f"{size} bytes" for size in table["bytes"]])  # noqa: PLW2901
        tables.append(table.assign(kind=kind)[columns].astype({"name": "object", "shape": "object"}))
    found = pd.concat(tables, ignore_index=True)
    return found.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)


def _own(table: pd.DataFrame, request: int) -> pd.DataFrame:
    return table[table["request"] == request].reset_index(drop=True)


def _named_kernels(table: pd.DataFrame) -> pd.DataFrame:
    shapes = table[list(_SHAPE)].to_numpy().tolist()
    words = [f"grid {a}×{b}×{c}, block {d}×{e}×{f}" for a, b, c, d, e, f in shapes]
    names = table["name"].astype("object").fillna("")
    return table.assign(name=names, shape=pd.Series(words, table.index, dtype="object"))


def _named_copies(table: pd.DataFrame) -> pd.DataFrame:
    names = [f"copy {COPY_DIRECTIONS.get(int(kind), f'of kind {kind}')}" for kind in table["copy_kind"]]
    return table.assign(name=pd.Series(names, table.index, dtype="object"))


def _named_graphs(table: pd.DataFrame) -> pd.DataFrame:
    names = [f"graph {graph}" if graph != NO_ID else "graph" for graph in table["graph"].tolist()]
    return table.assign(name=pd.Series(names, table.index, dtype="object"), shape="a whole replay")


def _rows(work: pd.DataFrame) -> tuple[tuple[Row, ...], list[int]]:
    """A row for each stream, more where its operations overlap; and the row of each operation."""
    taken: dict[tuple[int, int], list[int]] = {}
    chosen = []
    columns = (work[name].tolist() for name in ("device", "stream", "start_ns", "end_ns"))
    for device, stream, start, end in zip(*columns, strict=True):
        until = taken.setdefault((device, stream), [])
        lane = next((lane for lane, free in enumerate(until) if free <= start), len(until))
        until[lane : lane + 1] = [end]
        chosen.append((device, stream, lane))
    places = {key: place for place, key in enumerate(sorted(set(chosen)))}
    return tuple(Row(device, stream) for device, stream, _ in places), [places[key] for key in chosen]


def _operations(
    work: pd.DataFrame, origin_ns: int, row_of: Sequence[int], places: dict[int, int]
) -> tuple[Operation, ...]:
    columns = [work[name].tolist() for name in ("name", "kind", "shape", "start_ns", "end_ns", "call")]
    return tuple(
        Operation(
            name=str(name),
            kind=WorkKind(kind),
            shape=str(shape),
            start_ns=start - origin_ns,
            duration_ns=max(end - start, 0),
            row=row,
            call=places.get(call, NO_LAUNCH),
        )
        for name, kind, shape, start, end, call, row in zip(*columns, row_of, strict=True)
    )
