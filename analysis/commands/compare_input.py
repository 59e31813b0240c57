"""Tells what a side of a comparison is, by its name and content, and reads it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.attribute import hidden_requests
from analysis.chrome_trace import ChromeTrace
from analysis.commands.progress import Steps
from analysis.commands.requests import TRACE_ENDINGS, Requests, read_requests
from analysis.compare_environment import environment_of
from analysis.compare_read import identity_of, read_run, record_kind
from analysis.compare_sides import KERNEL_KEYS, LAUNCH_KEYS, Case, Measured, Side
from analysis.finding import Finding
from analysis.tables import CountedTrace, TraceLabel, kernels_table, launches_table, requests_table
from analysis.tracers import tracer_of
from contract import LaunchgapError, TraceMode

FOREIGN = "trace"
"""Case and strategy of a trace that launchgap did not record."""

_RECORDS = ("latency", "report")
_WHOLE = Finding(
    "warning",
    "the trace shows replays whole",
    1,
    "its kernels cannot be compared",
    "capture it with --cuda-graph-trace=node",
)
_NS_PER_US = 1_000.0
_HEAD_BYTES = 65_536


def is_run(path: Path) -> bool:
    """Whether a path is a results folder or a record of latencies, no trace.

    Raises:
        LaunchgapError: it is another record of launchgap, which cannot be compared.
    """
    if not path.exists():
        raise LaunchgapError(f"{path}: is not there; give a results folder, a record or a trace")
    if path.is_dir():
        return True
    # Neither a pipe nor a device can be looked into first: the reader of traces refuses both.
    if path.suffix != ".json" or not path.is_file():
        return False
    kind = record_kind(path)
    if kind is None or kind in _RECORDS:
        return kind is not None
    raise LaunchgapError(
        f"{path}: is a {kind} record, which is not compared; give a results folder, report.json, "
        "latency.json or a trace"
    )


def read_sides(paths: list[Path], range_name: str | None, domain: str | None) -> list[Side]:
    """All sides, which must be of one kind.

    Raises:
        LaunchgapError: they are of different kinds, or one cannot be read.
    """
    runs = [is_run(path) for path in paths]
    if len(set(runs)) > 1:
        run, other = paths[runs.index(True)], paths[runs.index(False)]
        is_what = "is a trace" if _may_be_trace(other) else "is neither a record nor a trace"
        raise LaunchgapError(
            f"{run} is measured and {other} {is_what}; give two of one kind: results folders, report.json "
            "or latency.json, or traces"
        )
    if runs[0]:
        if range_name is not None or domain is not None:
            raise LaunchgapError("--range, --domain: are for traces; leave them out for measured runs")
        return [read_run(path) for path in paths]
    with Steps(2 * len(paths)) as steps:
        return [_trace_side(_read_requests(path, range_name, domain, steps)) for path in paths]


def _may_be_trace(path: Path) -> bool:
    """Whether a file has the name of a trace, and if of JSON, events near its beginning."""
    if path.name.endswith(".json") and path.is_file():
        with path.open("rb") as file:
            return b"traceEvents" in file.read(_HEAD_BYTES) or path.stat().st_size > _HEAD_BYTES
    return path.name.endswith(TRACE_ENDINGS)


def _read_requests(path: Path, range_name: str | None, domain: str | None, steps: Steps) -> Requests:
    """The requests of one side.

    Raises:
        LaunchgapError: it cannot be read or lacks the range; names the file, which of several it is.
    """
    try:
        return read_requests(path, range_name, domain, steps)
    except LaunchgapError as error:
        reason = str(error)
        raise LaunchgapError(reason if str(path) in reason else f"{path}: {reason}") from error


def _trace_side(requests: Requests) -> Side:
    """A trace as a side of one case and one strategy, so that two traces always meet."""
    # By the trace itself: a record beside it says what was asked for, not what was recorded.
    hides = bool(hidden_requests(requests.attributed).size)
    mode = TraceMode.GRAPH if hides else TraceMode.NODE
    counted = CountedTrace(TraceLabel(FOREIGN, mode), requests.attributed, True)
    table = requests_table([counted])
    launches = launches_table([counted]).assign(trace_mode="")
    kernels = kernels_table([counted])
    measured = Measured(
        status="ok",
        launches=float(table["launches"].mean()),
        kernels=None if hides else float(table["kernels"].mean()),
    )
    values = ["calls_per_request", "launch_api_us_per_request"]
    case = Case(
        identity=_identity(requests),
        device=None,
        strategies={FOREIGN: measured},
        environment=_environment(requests, str(mode)),
        launches=launches[[*LAUNCH_KEYS, *values]],
        kernels=None
        if hides
        else kernels[[*KERNEL_KEYS, "calls_per_request", "mean_us", "total_us_per_request"]],
        durations=None if hides else _durations(requests),
    )
    findings = (*requests.findings, *((_WHOLE,) if hides else ()))
    return Side(str(requests.path), "trace", {FOREIGN: case}, findings=findings)


def _durations(requests: Requests) -> pd.DataFrame:
    kernels = requests.attributed.kernels
    us = (kernels["end_ns"] - kernels["start_ns"]) / _NS_PER_US
    return pd.DataFrame(
        {"request": kernels["request"], "full_name": kernels["name"].astype("object"), "us": us}
    )


def _identity(requests: Requests) -> dict[str, object]:
    record = requests.record
    told = {} if record is None else {**identity_of(record), "strategy": record.get("strategy")}
    return {**told, "range": requests.selector.name}


def _environment(requests: Requests, mode: str) -> dict[str, object]:
    trace, record = requests.trace, requests.record
    told = {} if record is None else environment_of(record)
    version = trace.nsys_version if record is None else record.get("nsys_version", trace.nsys_version)
    replays = {"trace_mode": mode} if requests.replays and not isinstance(trace, ChromeTrace) else {}
    return {
        **told,
        "gpus": ", ".join(trace.gpu_names) or None,
        "nsys_version": version,
        "export_schema": trace.export_schema,
        "tracer": tracer_of(trace).name,
        **replays,
    }
