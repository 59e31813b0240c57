"""Reads a side of a comparison that was measured: a results folder, a report.json or a latency.json."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare_environment import environment_of
from analysis.compare_sides import Case, Measured, Side
from analysis.latency import drift, noise, paired, summarise
from analysis.report_checks import check_record
from analysis.report_tables import CaseTables, read_tables
from analysis.report_traced import traced_facts
from contract import LatencyRecord, LaunchgapError, Strategy, StrategyFields, read_record

LATENCY, REPORT = "latency.json", "report.json"

_KIND = re.compile(rb'"kind"\s*:\s*"([a-z-]{1,40})"')
_HEAD_BYTES = 4_096
_RECORD_BYTES = 64 << 20
"""Far above any record; a trace may be gigabytes, which are not parsed to find that out."""


def read_run(path: Path) -> Side:
    """The side that a folder or a file holds; a folder is read whole, one broken record refuses it.

    A folder is what the pipeline makes (`latency/CASE/latency.json` with `tables/CASE/`), one of cases, or
    that of a single case; one with a report alone is that report.

    Raises:
        LaunchgapError: nothing of that kind is there, or a record or table is half-written, of another schema
            version, or about something else than its neighbours.
    """
    if not path.is_dir():
        return _of_record(path)
    latency_dir = path / "latency" if (path / "latency").is_dir() else path
    if (path / LATENCY).is_file():
        return _of_record(path / LATENCY)
    folders = sorted(one.parent for one in latency_dir.glob(f"*/{LATENCY}"))
    if not folders and (path / REPORT).is_file():
        return _of_record(path / REPORT)
    if not folders:
        raise LaunchgapError(
            f"{path}: holds neither CASE/{LATENCY} nor {REPORT}; give the results folder of a run"
        )
    cases = (_case(folder / LATENCY, path / "tables" / folder.name) for folder in folders)
    return Side(str(path), "run", dict(cases))


def _of_record(path: Path) -> Side:
    from analysis.compare_report import read_report  # reads latency records itself

    if record_kind(path) == "report":
        return read_report(path)
    return Side(str(path), "run", dict([_case(path, None)]))


def record_kind(path: Path) -> str | None:
    """What a record of launchgap calls itself; None for another JSON file, such as a trace.

    Raises:
        LaunchgapError: the file is empty or cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if not head:
                raise LaunchgapError(f"{path}: is empty; whatever wrote it stopped early, so make it again")
            match = _KIND.search(head)
            if match is None and b"traceEvents" not in head and path.stat().st_size <= _RECORD_BYTES:
                content = json.loads(head + file.read())
                kind = content.get("kind") if isinstance(content, dict) else None
                return kind if isinstance(kind, str) else None
    except OSError as error:
        raise LaunchgapError(
            f"{path}: cannot be read ({error.strerror}); give a record or a trace"
        ) from error
    except ValueError:
        return None  # the reader of traces says what is wrong with it
    return match[1].decode("ascii") if match else None


def _case(path: Path, tables_dir: Path | None) -> tuple[str, Case]:
    """The case of a latency record, with its tables where there are any.

    Raises:
        LaunchgapError: either is half-written or of another schema version, or the two disagree.
    """
    record = read_latency(path)
    name = record["case"]["name"]
    case = case_of(record, path)
    if tables_dir is None or not tables_dir.is_dir():
        return name, case
    return name, with_tables(case, read_tables(tables_dir, str(tables_dir), name), tables_dir)


def read_latency(path: Path) -> LatencyRecord:
    """A whole latency record.

    Raises:
        LaunchgapError: it cannot be read, is half-written or of another schema version.
    """
    record = check_record(path, read_record(path, "latency"), LatencyRecord)
    if not record["strategies"]:
        raise LaunchgapError(f"{path}: no strategy was measured; measure again")
    return record


def case_of(record: LatencyRecord, path: Path) -> Case:
    """What a latency record says; `path` is for complaints.

    Raises:
        LaunchgapError: a sample is no positive time, or a series is not as long as eager's.
    """
    try:
        _check_pairs(record)
        strategies = {name: _measured(fields) for name, fields in record["strategies"].items()}
        aa = noise(record)
    except LaunchgapError as error:
        raise LaunchgapError(f"{path}: {error}") from error
    return Case(
        identity=identity_of(record),
        device=record["device"],
        strategies=strategies,
        noise=aa,
        seed=int(record["settings"].get("seed", 0)),
        environment=environment_of(record),
    )


def _check_pairs(record: LatencyRecord) -> None:
    """Refuse what the report refuses: rounds of a strategy that do not belong to eager's."""
    eager = record["strategies"].get(Strategy.EAGER.value)
    if eager is None or record["simulated"]:
        return
    for fields in record["strategies"].values():
        for before, after in ((eager["event_ms"], fields["event_ms"]), (eager["wall_ms"], fields["wall_ms"])):
            if fields["status"] == "ok" and before and after:
                paired(before, after)


def identity_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is measured, but for its name."""
    return {name: value for name, value in record["case"].items() if name != "name"}


def _measured(fields: StrategyFields) -> Measured:
    samples_ms = tuple(fields["event_ms"]) if fields["status"] == "ok" else ()
    correctness = fields["correctness"]
    return Measured(
        status=fields["status"],
        error=fields["error"],
        samples_ms=samples_ms,
        median_ms=summarise(samples_ms).median if samples_ms else None,
        drift_percent=drift(samples_ms) if samples_ms else None,
        output_differs=correctness is not None and correctness["verdict"] == "DIFFERENT",
    )


def with_tables(case: Case, tables: CaseTables, folder: Path) -> Case:
    """The case with what its traces showed.

    Raises:
        LaunchgapError: the tables tell of a strategy that the latency record does not know.
    """
    parts = (tables.requests, tables.launches, tables.kernels)
    traced = dict.fromkeys(row.strategy for rows in parts for row in rows)
    strangers = [name for name in traced if name not in case.strategies]
    if strangers:
        raise LaunchgapError(
            f"{folder}: tells of {', '.join(strangers)}, which the latency record does not have; "
            "measure and analyse again, so that both are of one run"
        )
    strategies = {name: _with_counts(measured, tables, name) for name, measured in case.strategies.items()}
    versions = [trace.nsys_version for trace in tables.traces if trace.nsys_version]
    tracers = dict.fromkeys(trace.tracer for trace in tables.traces if trace.status == "ok")
    told = {"nsys_version": ", ".join(dict.fromkeys(versions)) or None, "tracer": ", ".join(tracers) or None}
    return replace(
        case,
        strategies=strategies,
        environment={**case.environment, **told},
        launches=launches_frame(map(asdict, tables.launches)),
        kernels=kernels_frame(map(asdict, tables.kernels)),
    )


def _with_counts(measured: Measured, tables: CaseTables, name: str) -> Measured:
    facts = traced_facts(tables, name)
    return measured if facts is None else replace(measured, launches=facts.launches, kernels=facts.kernels)


def launches_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame | None:
    """Rows of launches.csv as `Case.launches`; None where there is none.

    Raises:
        KeyError, ValueError: a column is missing, or holds text where a number belongs.
    """
    values = ("calls_per_request", "launch_api_us_per_request")
    return _frame(rows, ("strategy", "trace_mode", "api", "kind"), values)


def kernels_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame | None:
    """Rows of kernels.csv as `Case.kernels`; None where there is none.

    Raises:
        KeyError, ValueError: a column is missing, or holds text where a number belongs.
    """
    values = ("calls_per_request", "mean_us", "total_us_per_request")
    return _frame(rows, ("strategy", "kernel", "full_name"), values)


def _frame(
    rows: Iterable[Mapping[str, Any]], texts: tuple[str, ...], numbers: tuple[str, ...]
) -> pd.DataFrame | None:
    found = [
        {name: str(row[name]) for name in texts}
        | {name: math.nan if row[name] is None else float(row[name]) for name in numbers}
        for row in rows
    ]
    return pd.DataFrame(found, columns=[*texts, *numbers]) if found else None
