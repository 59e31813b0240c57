"""Reads the timeline of one request from a trace."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.host_ledger import host_part
from analysis.ledger import gap_table, gpu_ledger
from analysis.request_work import calls_of_thread, only_request, with_time, work_of_request
from analysis.timeline import NO_LAUNCH, Gap, GapKind, HostCall, Operation, Row, SubRange, Timeline, WorkKind
from analysis.trace import Trace
from analysis.tracers import tracer_of
from analysis.waterfall import median_request
from contract import LaunchgapError, TraceMode


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
    work = work_of_request(found, number)
    drawn = with_time(work)
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
        gaps=_gaps(found, number, origin_ns),
    )


def _calls(
    trace: Trace, thread: int, origin_ns: int, range_ns: int
) -> tuple[tuple[HostCall, ...], dict[int, int]]:
    """The thread's calls that the range sees any of, and the place of each by its index in the trace."""
    table = calls_of_thread(trace, thread, origin_ns, origin_ns + range_ns)
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


def _gaps(attributed: Attributed, request: int, origin_ns: int) -> tuple[Gap, ...]:
    table = gap_table(only_request(attributed, request))
    columns = (table[name].tolist() for name in ("launch_bound", "start_ns", "end_ns"))
    return tuple(
        Gap(GapKind.LAUNCH_BOUND if bound else GapKind.DEVICE, start - origin_ns, end - start)
        for bound, start, end in zip(*columns, strict=True)
    )
