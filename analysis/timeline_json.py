"""Timelines as a JSON record and back: `results/tables/CASE/timeline.json`.

Names stand once, in tables; lanes are columns of integers, starts as steps from the one before, so that a
request of 300 launches and 300 kernels takes less than 30 kB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

from analysis.host_parts import HostPart
from analysis.report_tables import ANALYSE_AGAIN, read_part
from analysis.timeline import NO_LAUNCH, Gap, GapKind, HostCall, Operation, Row, SubRange, Timeline, WorkKind
from contract import SCHEMA_VERSION, LaunchgapError, TraceMode

KIND = "timeline"
_SINGLE = ("request", "requests", "range_ns", "head_ns", "busy_ns", "tail_ns", "outside_ns", "undrawn")
_GAP_KINDS = tuple(GapKind)
_MOST_NS = 2**53
_Member = TypeVar("_Member", bound=StrEnum)


class _Damaged(Exception):
    """What is wrong with a record, in a few words."""


def timelines_record(case: str, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """The record of a case's timelines, in their order."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "case": case,
        "timelines": [timeline_fields(one) for one in timelines],
    }


def timelines_text(case: str, timelines: Sequence[Timeline]) -> str:
    """The content of `timeline.json`, as compact as JSON gets."""
    return json.dumps(timelines_record(case, timelines), separators=(",", ":")) + "\n"


def timeline_fields(timeline: Timeline) -> dict[str, Any]:
    """One timeline as what JSON can hold."""
    calls, operations, gaps = timeline.calls, timeline.operations, timeline.gaps
    call_names = list(dict.fromkeys((one.name, str(one.part)) for one in calls))
    names = list(dict.fromkeys((one.name, str(one.kind)) for one in operations))
    shapes = list(dict.fromkeys(one.shape for one in operations))
    place = {key: number for number, key in enumerate(names)}
    call_place = {key: number for number, key in enumerate(call_names)}
    shape_place = {key: number for number, key in enumerate(shapes)}
    return {
        "strategy": timeline.strategy,
        "trace_mode": str(timeline.trace_mode),
        "tracer": timeline.tracer,
        **{name: getattr(timeline, name) for name in _SINGLE},
        "ranges": [[one.name, one.start_ns, one.duration_ns] for one in timeline.ranges],
        "call_names": [list(key) for key in call_names],
        "calls": {
            "name": [call_place[one.name, str(one.part)] for one in calls],
            "depth": [one.depth for one in calls],
            **_times(calls),
        },
        "rows": [[one.device, one.stream] for one in timeline.rows],
        "operation_names": [list(key) for key in names],
        "shapes": shapes,
        "operations": {
            "name": [place[one.name, str(one.kind)] for one in operations],
            "shape": [shape_place[one.shape] for one in operations],
            "row": [one.row for one in operations],
            "call": [one.call for one in operations],
            **_times(operations),
        },
        "gaps": {"kind": [_GAP_KINDS.index(one.kind) for one in gaps], **_times(gaps)},
    }


def _times(items: Sequence[HostCall] | Sequence[Operation] | Sequence[Gap]) -> dict[str, list[int]]:
    starts = [one.start_ns for one in items]
    return {
        "step_ns": starts[:1] + [after - before for before, after in pairwise(starts)],
        "duration_ns": [one.duration_ns for one in items],
    }


def read_timelines(path: Path, case: str | None = None) -> tuple[Timeline, ...]:
    """Read `timeline.json`, of the given case if there is one.

    Raises:
        LaunchgapError: the file is missing, is no record of timelines, of another case or schema version, or
            damaged.
    """
    record = read_part(path, KIND, case)
    try:
        return tuple(_timeline(fields) for fields in _list(record, "timelines", dict))
    except _Damaged as error:
        raise LaunchgapError(f"{path}: damaged ({error}); {ANALYSE_AGAIN}") from error


def _timeline(fields: Mapping[str, Any]) -> Timeline:
    texts = {name: _value(fields, name, str) for name in ("strategy", "tracer")}
    numbers = {name: _value(fields, name, int) for name in _SINGLE}
    if any(value < 0 for value in numbers.values()):
        raise _Damaged("a negative length or count")
    rows = tuple(Row(device, stream) for device, stream in _tuples(fields, "rows", (int, int)))
    calls = _calls(fields)
    timeline = Timeline(
        **texts,
        trace_mode=_member(TraceMode, fields.get("trace_mode")),
        **numbers,
        ranges=tuple(SubRange(*one) for one in _tuples(fields, "ranges", (str, int, int))),
        calls=calls,
        rows=rows,
        operations=_operations(fields, len(rows), len(calls)),
        gaps=_gaps(fields),
    )
    parts = timeline.head_ns + timeline.busy_ns + sum(gap.duration_ns for gap in timeline.gaps)
    if parts + timeline.tail_ns != timeline.range_ns:
        raise _Damaged("the parts of the ledger do not add up to the range")
    return timeline


def _calls(fields: Mapping[str, Any]) -> tuple[HostCall, ...]:
    names = [(name, _member(HostPart, part)) for name, part in _tuples(fields, "call_names", (str, str))]
    columns = _columns(fields, "calls", {"name": len(names), "depth": _MOST_NS})
    rows = zip(*columns, strict=True)
    return tuple(
        HostCall(names[name][0], names[name][1], start, duration, depth)
        for name, depth, start, duration in rows
    )


def _operations(fields: Mapping[str, Any], rows: int, calls: int) -> tuple[Operation, ...]:
    names = [(name, _member(WorkKind, kind)) for name, kind in _tuples(fields, "operation_names", (str, str))]
    shapes = _list(fields, "shapes", str)
    limits = {"name": len(names), "shape": len(shapes), "row": rows, "call": calls}
    columns = _columns(fields, "operations", limits, least={"call": NO_LAUNCH})
    return tuple(
        Operation(names[name][0], names[name][1], shapes[shape], start, duration, row, call)
        for name, shape, row, call, start, duration in zip(*columns, strict=True)
    )


def _gaps(fields: Mapping[str, Any]) -> tuple[Gap, ...]:
    columns = _columns(fields, "gaps", {"kind": len(_GAP_KINDS)})
    return tuple(
        Gap(_GAP_KINDS[kind], start, duration) for kind, start, duration in zip(*columns, strict=True)
    )


def _columns(
    fields: Mapping[str, Any], lane: str, limits: Mapping[str, int], least: Mapping[str, int] | None = None
) -> list[list[int]]:
    """The columns of a lane in the order of `limits`, then starts and durations; all of one length.

    Values of a column are from `least`, 0 unless given, to below its limit.
    """
    table = _value(fields, lane, dict)
    columns = []
    for name, limit in limits.items():
        values = _list(table, name, int)
        if any(not (least or {}).get(name, 0) <= value < limit for value in values):
            raise _Damaged(f"{lane}: {name} out of bounds")
        columns.append(values)
    steps, durations = _list(table, "step_ns", int), _list(table, "duration_ns", int)
    if any(value < 0 for value in [*steps[1:], *durations]):
        raise _Damaged(f"{lane}: not in order of time")
    columns += [list(accumulate(steps)), durations]
    if len({len(column) for column in columns}) != 1:
        raise _Damaged(f"{lane}: columns of unequal length")
    if any(abs(start) + duration >= _MOST_NS for start, duration in zip(*columns[-2:], strict=True)):
        raise _Damaged(f"{lane}: a time that cannot be")
    return columns


def _is(value: object, kind: type) -> bool:
    """Whether a value is of a type; True and False are no integers."""
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _value(fields: Mapping[str, Any], name: str, kind: type) -> Any:  # noqa: ANN401 (of the type asked for)
    value = fields.get(name)
    if not _is(value, kind):
        raise _Damaged(f"{name} is missing or of another type")
    return value


def _list(fields: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    values: list[Any] = _value(fields, name, list)
    if not all(_is(value, kind) for value in values):
        raise _Damaged(f"{name} holds something of another type")
    return values


def _tuples(fields: Mapping[str, Any], name: str, kinds: Sequence[type]) -> list[list[Any]]:
    values = _list(fields, name, list)
    for value in values:
        if len(value) != len(kinds) or not all(map(_is, value, kinds)):
            raise _Damaged(f"{name} holds something of another type")
    return values


def _member(kinds: type[_Member], value: object) -> _Member:
    try:
        return kinds(str(value))
    except ValueError as error:
        raise _Damaged(f"{value!r} is not known") from error
