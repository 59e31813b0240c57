"""Reads one case's tables (`requests.csv`, `launches.csv`, `kernels.csv`, `comparison.csv`, `traces.json`).

A cell that was not measured is empty in the file and None here; it never becomes 0.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contract import LaunchgapError, read_record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ANALYSE_AGAIN = (
    "analyse the traces again: `snakemake --cores 1 --forcerun analyse`, or scripts/analyse_traces.py"
)
"""What to do about a file of a case's tables: while it is there, Snakemake takes it for done."""

_NOT_MEASURED = frozenset({"", "na", "nan", "<na>", "none"})


@dataclass(frozen=True)
class RequestRow:
    """One traced request. Counts per request, times in microseconds as traced."""

    strategy: str
    trace_mode: str
    request: float | None
    kernels: float | None
    memcpys: float | None
    memsets: float | None
    graph_launches: float | None
    launches: float | None
    launch_api_us: float | None
    gpu_busy_us: float | None
    gpu_span_us: float | None
    range_us: float | None


@dataclass(frozen=True)
class LaunchRow:
    """One launch API of one trace; `kind` is kernel, memcpy, memset or graph. Microseconds, as traced."""

    strategy: str
    trace_mode: str
    api: str
    kind: str
    calls_per_request: float | None
    launch_api_us_per_request: float | None
    mean_us: float | None
    p50_us: float | None
    max_us: float | None


@dataclass(frozen=True)
class KernelRow:
    """One kernel name of one strategy, from its node-mode trace; microseconds of GPU time as traced."""

    strategy: str
    kernel: str
    full_name: str
    calls_per_request: float | None
    total_us_per_request: float | None
    mean_us: float | None
    min_us: float | None
    max_us: float | None
    share_percent: float | None


@dataclass(frozen=True)
class ComparisonRow:
    """One kernel name, eager against the graph strategy `strategy`; microseconds of GPU time as traced."""

    strategy: str
    kernel: str
    full_name: str
    eager_calls_per_request: float | None
    graph_calls_per_request: float | None
    eager_us_per_request: float | None
    graph_us_per_request: float | None
    difference_us: float | None


@dataclass(frozen=True)
class TraceInfo:
    """What became of one trace. `profiled_event_ms_median` is a time under the profiler, never a latency.

    `nsys_version` captured the trace; `export_version` is what the SQLite export calls itself, which may
    differ. `tracer` is `nsys` or `torch` (torch.profiler). `command` made the trace; older files lack it.
    """

    strategy: str
    trace_mode: str
    status: str
    reason: str | None
    nsys_version: str | None
    export_schema: str | None
    requests: int | None
    findings: tuple[str, ...]
    profiled_event_ms_median: float | None
    export_version: str | None = None
    tracer: str = "nsys"
    command: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CaseTables:
    """All tables of one case. `source` is where they lie, as the report names it."""

    source: str
    requests: tuple[RequestRow, ...]
    launches: tuple[LaunchRow, ...]
    kernels: tuple[KernelRow, ...]
    comparison: tuple[ComparisonRow, ...]
    traces: tuple[TraceInfo, ...]


Row = TypeVar("Row", bound="DataclassInstance")


def read_tables(folder: Path, source: str, case: str) -> CaseTables:
    """Read the tables of one case from its folder.

    Raises:
        LaunchgapError: a table is missing, lacks a column, holds text where a number belongs, or is about
            another case.
    """
    record = read_part(folder / "traces.json", "traces", case)
    return CaseTables(
        source=source,
        requests=read_rows(folder / "requests.csv", RequestRow),
        launches=read_rows(folder / "launches.csv", LaunchRow),
        kernels=read_rows(folder / "kernels.csv", KernelRow),
        comparison=read_rows(folder / "comparison.csv", ComparisonRow),
        traces=_trace_infos(folder / "traces.json", record),
    )


def read_part(path: Path, kind: str, case: str | None) -> dict[str, Any]:
    """Read a JSON record that lies with a case's tables; `case` None takes one of any case.

    Raises:
        LaunchgapError: what `read_record` raises, or it is about another case.
    """
    record = read_record(path, kind, ANALYSE_AGAIN)
    if case is not None and record.get("case") != case:
        raise LaunchgapError(f"{path}: about case {record.get('case')!r}, not {case!r}; {ANALYSE_AGAIN}")
    return record


def read_rows(path: Path, row_type: type[Row]) -> tuple[Row, ...]:
    """The rows of a CSV with a column for each field of a dataclass of texts and numbers.

    Raises:
        LaunchgapError: the file is missing, lacks a column, or holds text where a number belongs.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or []
            lines = list(reader)
    except OSError as error:
        raise LaunchgapError(f"{path}: cannot be read ({error.strerror}); {ANALYSE_AGAIN}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise LaunchgapError(f"{path}: not valid CSV ({error}); {ANALYSE_AGAIN}") from error
    missing = [field.name for field in fields(row_type) if field.name not in header]
    if missing:
        raise LaunchgapError(f"{path}: no column {', '.join(missing)}; {ANALYSE_AGAIN}")
    return tuple(_row(path, number, line, row_type) for number, line in enumerate(lines, start=2))


def _row(path: Path, number: int, line: Mapping[str, str | None], row_type: type[Row]) -> Row:
    values: dict[str, Any] = {}
    for field in fields(row_type):
        text = line[field.name]
        if text is None:
            raise LaunchgapError(f"{path}, line {number}: cut short; {ANALYSE_AGAIN}")
        values[field.name] = text if field.type == "str" else _number(path, number, field.name, text)
    return row_type(**values)


def _number(path: Path, number: int, column: str, text: str) -> float | None:
    if text.strip().lower() in _NOT_MEASURED:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise LaunchgapError(f"{path}, line {number}: {column} is {text!r}, no number; {ANALYSE_AGAIN}")
    return value


def _trace_infos(path: Path, record: Mapping[str, Any]) -> tuple[TraceInfo, ...]:
    try:
        return tuple(
            TraceInfo(
                strategy=str(one["strategy"]),
                trace_mode=str(one["trace_mode"]),
                status=str(one["status"]),
                reason=one["reason"],
                nsys_version=one["nsys_version"],
                export_schema=one["export_schema"],
                requests=one["requests"],
                findings=tuple(one["findings"]),
                profiled_event_ms_median=one["profiled_event_ms_median"],
                export_version=one.get("export_version"),
                tracer=str(one.get("tracer", "nsys")),
                command=tuple(map(str, one["command"])) if one.get("command") else None,
            )
            for one in record["traces"]
        )
    except (KeyError, TypeError) as error:
        raise LaunchgapError(f"{path}: incomplete ({error!r}); {ANALYSE_AGAIN}") from error
