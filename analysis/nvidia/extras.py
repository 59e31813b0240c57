"""Columns of an export that only NVIDIA's reports ask for, and that a `Trace` therefore does not carry.

They are read from the trace's own file when a report needs them, and found again by what identifies a row, so
that a trace cut down to a process or a device keeps what belongs to it. A trace of another tracer has none of
them: unknown, NA.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis import schema
from analysis.schema import NO_ID, Column, TableSpec
from analysis.trace import Trace

STYLES = {schema.NVTX_PUSH_POP: "PushPop", schema.NVTX_START_END: "StartEnd"}
"""What nsys calls the two ways to mark a range, by `NVTX_EVENTS.eventType`."""

_OTHER_TRACERS = (".json", ".json.gz")
_SPAN = (Column("start", "start_ns"), Column("end", "end_ns"))
_PLACE = (Column("globalPid", "process"), Column("deviceId", "device"), Column("streamId", "stream"))
_WORK_TABLES = (schema.KERNELS, schema.MEMCPYS, schema.MEMSETS, schema.GRAPH_TRACES)
_OVERHEADS = (*_SPAN, Column("globalTid", "thread", NO_ID), Column("nameId", "name"))


def profiler_overheads(trace: Trace) -> pd.DataFrame:
    """What nsys itself took of the program's time: start_ns, end_ns, thread and name."""
    if _of_another_tracer(trace):
        return pd.DataFrame({column.name: pd.Series(dtype="int64") for column in _OVERHEADS})
    with schema.open_database(trace.path) as database:
        rows = schema.read_table(database, TableSpec("PROFILER_OVERHEAD", _OVERHEADS))
        strings = schema.read_strings(database)
    return rows.assign(name=rows["name"].map(strings))


def contexts(trace: Trace, work: pd.DataFrame) -> pd.Series[int]:
    """CUDA context of each row of GPU work, found by its process, device and stream."""
    if _of_another_tracer(trace):
        return pd.Series(pd.NA, index=work.index, dtype="Int64")
    columns = (*_PLACE, Column("contextId", "context"))
    with schema.open_database(trace.path) as database:
        tables = [schema.read_table(database, TableSpec(spec.source, columns)) for spec in _WORK_TABLES]
    known = pd.concat(tables, ignore_index=True)
    return _looked_up(work, known, [column.name for column in _PLACE], "context").astype("Int64")


def styles(trace: Trace, ranges: pd.DataFrame) -> pd.Series[str]:
    """`PushPop` or `StartEnd` for each of the trace's ranges."""
    if _of_another_tracer(trace):
        return pd.Series(pd.NA, index=ranges.index, dtype="object")
    with schema.open_database(trace.path) as database:
        events = schema.read_nvtx_events(database)
    known = events[events["event_type"].isin(list(STYLES))]
    found = _looked_up(ranges, known, ["start_ns", "end_ns", "thread"], "event_type")
    return found.map(STYLES).astype("object")


def _of_another_tracer(trace: Trace) -> bool:
    return trace.path.name.endswith(_OTHER_TRACERS)


def _looked_up(rows: pd.DataFrame, known: pd.DataFrame, by: Sequence[str], column: str) -> pd.Series[int]:
    """A column of the first known row that is alike in all others named; NA without one."""
    first = known.drop_duplicates(list(by))[[*by, column]]
    return rows[list(by)].merge(first, on=list(by), how="left")[column].set_axis(rows.index)
