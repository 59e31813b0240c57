"""Analyses all traces of one case: finds them, judges them, and counts those that can be trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pandas as pd

from analysis.attribute import RangeSelector, attribute
from analysis.case_collected import Parts
from analysis.case_explained import Beside, explain_case, explain_trace, explained_tables, miss_all
from analysis.chrome_trace import ChromeTrace, read_any_trace
from analysis.tables import (
    CountedTrace,
    TraceLabel,
    comparison_table,
    csv_text,
    kernels_table,
    launches_table,
    requests_table,
)
from analysis.timeline import Timeline
from analysis.timeline_json import timelines_text
from analysis.validity import Expectation, check
from contract import (
    DEFAULT_STRATEGIES,
    SCHEMA_VERSION,
    WITHOUT_GRAPH,
    LaunchgapError,
    Strategy,
    TraceMode,
    read_record,
)

Status = Literal["ok", "no gpu", "missing", "failed"]

_FILE_NAME = re.compile(r"(?P<strategy>\w+)\.(?P<mode>node|graph)\.(?:sqlite(?:\.gz)?|json\.gz)")
NOTHING_BESIDE = Beside("no latency record was given", "no calibration was given")
_SIMULATED = "the CPU simulation ran: there are ranges, but no launches and no GPU work to count"


@dataclass(frozen=True)
class TraceEntry:
    """What became of one trace; an entry of `traces.json`.

    `nsys_version` is the nsys that captured, by the record beside the trace, or by the export where there is
    no record; `export_version` is always the export's word, which another part of the same nsys writes.
    `tracer` is what recorded: nsys, or torch (torch.profiler), which has none of these versions. `command` is
    what was run to make the trace, by its record.
    """

    strategy: str
    trace_mode: str
    status: Status
    reason: str | None = None
    nsys_version: str | None = None
    export_schema: str | None = None
    requests: int = 0
    findings: tuple[str, ...] = ()
    profiled_event_ms_median: float | None = None
    export_version: str | None = None
    tracer: str = "nsys"
    command: tuple[str, ...] | None = None


@dataclass(frozen=True)
class AnalysedCase:
    """The tables of a case, what became of each of its traces, and what explains them.

    `explained` are the tables of `analysis.case_explained`, `verdicts` the content of `explained.json`, and
    `timelines` those of `timeline.json`, eager's first.
    """

    case: str
    requests: pd.DataFrame
    launches: pd.DataFrame
    kernels: pd.DataFrame
    comparison: pd.DataFrame
    entries: tuple[TraceEntry, ...]
    explained: Mapping[str, pd.DataFrame]
    verdicts: Mapping[str, Any]
    timelines: tuple[Timeline, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """One line for each trace that was there and could not be used."""
        failed = (entry for entry in self.entries if entry.status == "failed")
        return tuple(f"{entry.strategy}.{entry.trace_mode}: {entry.reason}" for entry in failed)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by its file's name without the ending."""
        counted = ("requests", "launches", "kernels", "comparison")
        return {name: getattr(self, name) for name in counted} | dict(self.explained)

    def files(self) -> dict[str, str]:
        """Name and content of every file of the case."""
        texts = {f"{name}.csv": csv_text(table) for name, table in self.tables.items()}
        record = {
            "schema_version": SCHEMA_VERSION,
            "kind": "traces",
            "case": self.case,
            "traces": [vars(entry) for entry in self.entries],
        }
        records = {"traces.json": record, "explained.json": self.verdicts}
        texts |= {name: json.dumps(content, indent=1) + "\n" for name, content in records.items()}
        return texts | {"timeline.json": timelines_text(self.case, self.timelines)}


def analyse_case(
    case: str,
    trace_dir: Path,
    *,
    preflight: Mapping[str, Any] | None = None,
    strategies: Sequence[str] = (),
    selector: RangeSelector | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> AnalysedCase:
    """Analyse the traces of a folder, each with its record `STRATEGY.MODE.json`.

    A trace is `STRATEGY.MODE.sqlite` (or `.sqlite.gz`) by nsys, or `STRATEGY.node.json.gz` by torch.profiler.
    A trace that cannot be read or trusted is recorded as failed and left out of the tables. Traces of the
    `strategies` that are not there are recorded as missing, as is everything on a host that cannot trace.
    Where there is no GPU, graph mode is not expected: a simulation has no graph for nsys to see. Nor is it
    of torch.profiler, which has no such mode. `beside` is what predictions are made from and compared with.

    Raises:
        LaunchgapError: the folder holds no trace, though this host can trace.
    """
    paths = _find(trace_dir)
    can_trace = preflight is None or bool(preflight.get("can_trace"))
    if not paths and can_trace:
        raise LaunchgapError(
            f"{trace_dir}: holds no STRATEGY.MODE.sqlite; capture first, or name another folder"
        )
    parts, chosen = Parts(), selector or RangeSelector()
    outcomes = [_outcome(case, label, path, chosen, parts) for label, path in paths.items()]
    counted = [trace for _, trace in outcomes if trace is not None]
    seen = [entry for entry, _ in outcomes]
    wanted = strategies or ([] if paths else DEFAULT_STRATEGIES)
    absent = [label for label in _expected(wanted, _is_node_only(preflight, seen)) if label not in paths]
    missing = [_missing(label, trace_dir, preflight if not can_trace else None) for label in absent]
    entries = (*seen, *missing)
    _explain(parts, [trace for trace in counted if trace.has_gpu], entries, beside)
    kernels = kernels_table(counted)
    return AnalysedCase(
        case=case,
        requests=requests_table(counted),
        launches=launches_table(counted),
        kernels=kernels,
        comparison=comparison_table(kernels),
        entries=entries,
        explained=explained_tables(parts),
        verdicts=parts.record(case),
        timelines=tuple(parts.timelines),
    )


def _is_node_only(preflight: Mapping[str, Any] | None, entries: Sequence[TraceEntry]) -> bool:
    """Whether no trace can be in graph mode."""
    if preflight is not None and (preflight.get("device") == "cpu" or preflight.get("tracer") == "torch"):
        return True
    return any(entry.status == "no gpu" or entry.tracer == "torch" for entry in entries)


def _explain(
    parts: Parts, traces: Sequence[CountedTrace], entries: Sequence[TraceEntry], beside: Beside
) -> None:
    """Put in what takes several traces, and what those that are missing or failed do not explain."""
    explain_case(parts, traces, beside)
    for entry in entries:
        if entry.status != "ok":
            label = TraceLabel(entry.strategy, TraceMode(entry.trace_mode))
            miss_all(parts, label, entry.reason or entry.status)


def _find(folder: Path) -> dict[TraceLabel, Path]:
    """The traces of a folder, eager first, node mode before graph mode; an unpacked one before its gzip.

    Should a trace be there by both tracers, that of nsys counts.
    """
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    names.sort(key=lambda name: name.endswith(".json.gz"))
    matches = [(name, match) for name in names if (match := _FILE_NAME.fullmatch(name))]
    found: dict[TraceLabel, Path] = {}
    for name, match in matches:
        found.setdefault(TraceLabel(match["strategy"], TraceMode(match["mode"])), folder / name)
    return dict(sorted(found.items(), key=lambda item: _rank(item[0])))


def _rank(label: TraceLabel) -> tuple[int, str, int]:
    known = [str(strategy) for strategy in Strategy]
    place = known.index(label.strategy) if label.strategy in known else len(known)
    return place, label.strategy, list(TraceMode).index(label.trace_mode)


def _expected(strategies: Sequence[str], node_only: bool) -> list[TraceLabel]:
    """Node mode for all; graph mode only where there is a graph to trace, which takes a GPU and nsys."""
    return [
        TraceLabel(str(strategy), mode)
        for strategy in strategies
        for mode in TraceMode
        if mode is TraceMode.NODE or (strategy not in WITHOUT_GRAPH and not node_only)
    ]


def _missing(label: TraceLabel, folder: Path, preflight: Mapping[str, Any] | None) -> TraceEntry:
    if preflight is None:
        reason = f"not in {folder.name}; run `snakemake --cores 1` to capture it"
    else:
        reason = "; ".join(map(str, preflight.get("findings", ()))) or "this host cannot trace"
    return TraceEntry(label.strategy, str(label.trace_mode), "missing", reason)


def _outcome(
    case: str, label: TraceLabel, path: Path, selector: RangeSelector, parts: Parts
) -> tuple[TraceEntry, CountedTrace | None]:
    try:
        return _analyse(case, label, path, selector, parts)
    except LaunchgapError as error:
        return TraceEntry(label.strategy, str(label.trace_mode), "failed", str(error)), None


def _analyse(
    case: str, label: TraceLabel, path: Path, selector: RangeSelector, parts: Parts
) -> tuple[TraceEntry, CountedTrace | None]:
    record = _read_trace_record(path, case, label)
    simulated = record is not None and record["simulated"]
    trace = read_any_trace(path)
    attributed = attribute(trace, selector)
    expected = Expectation(label.trace_mode, record["requests"] if record else None, simulated, selector)
    validity = check(trace, attributed, expected)
    status: Status = "failed" if validity.error else "no gpu" if simulated else "ok"
    # What torch.profiler cannot know, and what nsys may have seen.
    of_tracer = trace.warnings if isinstance(trace, ChromeTrace) else _unconfined(record)
    entry = TraceEntry(
        strategy=label.strategy,
        trace_mode=str(label.trace_mode),
        status=status,
        reason=validity.error or (_SIMULATED if simulated else None),
        nsys_version=(record.get("nsys_version") if record else None) or trace.nsys_version,
        export_schema=trace.export_schema,
        requests=len(attributed.requests),
        findings=tuple(dict.fromkeys((*of_tracer, *validity.findings))),
        profiled_event_ms_median=median(record["event_ms"]) if record and record["event_ms"] else None,
        export_version=trace.nsys_version,
        tracer=trace.tracer if isinstance(trace, ChromeTrace) else "nsys",
        command=_command(record),
    )
    if status == "ok":
        # Here, since a whole trace is too large to be kept until all are read.
        explain_trace(parts, label, path, trace, (selector, attributed))
        if label.strategy == Strategy.EAGER:
            parts.eager_record, parts.gpu_names = record, trace.gpu_names
    return entry, None if validity.error else CountedTrace(label, attributed, trace.has_gpu_work)


def _unconfined(record: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What to say of a trace that nsys made with other processes in its sight, having failed without."""
    why = record.get("unconfined_because") if record else None
    if not isinstance(why, str):
        return ()
    told = "nsys had the environments of other processes in its sight and a port open, since without"
    return (f"{told}: {why.rstrip('.')}; share this trace only after `python -m analysis scrub`",)


def _command(record: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The command that made a trace: of nsys, or of the traced program itself."""
    words = (record.get("nsys_command") or record.get("command")) if record else None
    return tuple(map(str, words)) if isinstance(words, list) and words else None


def _read_trace_record(path: Path, case: str, label: TraceLabel) -> dict[str, Any] | None:
    """The record beside a trace, or None where there is none.

    Raises:
        LaunchgapError: the record is half-written, or of another case, strategy or trace mode.
    """
    beside = path.with_name(f"{label.strategy}.{label.trace_mode}.json")
    if not beside.exists():
        return None
    record = read_record(beside, "trace")
    kinds = {"requests": int, "simulated": bool, "event_ms": list, "case": dict, "strategy": str}
    broken = [name for name, kind in kinds.items() if not isinstance(record.get(name), kind)]
    if broken or not all(isinstance(sample, int | float) for sample in record["event_ms"]):
        raise LaunchgapError(f"{beside}: half-written ({', '.join(broken) or 'event_ms'}); capture again")
    told = (record["case"].get("name"), record["strategy"], record.get("trace_mode", label.trace_mode))
    if told != (case, label.strategy, label.trace_mode):
        raise LaunchgapError(
            f"{beside}: of {' '.join(map(str, told))}, not of {case} {label.strategy} {label.trace_mode}; "
            "capture again, or keep each case in its own folder"
        )
    return record
