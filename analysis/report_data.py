"""Gathers latency records, tables and preflight into one frozen ReportData. Reads files, writes none.

A part that is missing or broken becomes a sentence in the data; the rest of the report still stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from analysis.costs import PaysAfter, pays_after_requests
from analysis.latency import LatencySummary, Reduction, Verdict, noise, reduction, summarise, verdict
from analysis.neighbours import neighbour_doubts
from analysis.report_checks import check_record
from analysis.report_explained import Explained, read_explained
from analysis.report_failures import Failure
from analysis.report_missing import (
    ALL_TRACES,
    EXPLANATIONS,
    TIMELINE,
    Missing,
    Unread,
    absent_parts,
    disagreements,
    relative,
    told,
    unread,
    unusable_traces,
    why_not_traced,
)
from analysis.report_tables import CaseTables, read_tables
from analysis.report_traced import TracedFacts, traced_facts
from analysis.timeline import Timeline
from analysis.timeline_json import read_timelines
from contract import LatencyRecord, LaunchgapError, PreflightRecord, Strategy, StrategyFields, read_record


@dataclass(frozen=True)
class StrategyReport:
    """One strategy of one case: latencies in milliseconds without a profiler, and what its traces showed.

    `reduction` is against eager and None for eager itself, for a failed strategy and in a simulation;
    `wall_reduction` is the same of the whole request's wall time. `pays_after` requests compiling and
    capturing have paid for themselves; None where that is not to be told.
    """

    name: str
    fields: StrategyFields
    latency: LatencySummary | None
    wall: LatencySummary | None
    reduction: Reduction | None
    wall_reduction: Reduction | None
    traced: TracedFacts | None
    pays_after: PaysAfter | None


@dataclass(frozen=True)
class CaseReport:
    """One case: its record, its statistics, and what its traces add. `noise` is eager against eager.

    `explained` is None where the traces were never explained. `doubts` are where tables and record disagree.
    `unread` are those of the missing parts whose files are broken, missing or of another case.
    """

    name: str
    record: LatencyRecord
    strategies: tuple[StrategyReport, ...]
    verdict: Verdict
    noise: Reduction | None
    tables: CaseTables | None
    missing: tuple[Missing, ...]
    latency_source: str
    explained: Explained | None = None
    timelines: tuple[Timeline, ...] = ()
    doubts: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the record is of the CPU simulation."""
        return self.record["simulated"]

    def strategy(self, name: str) -> StrategyReport | None:
        """The strategy of that name, or None where it was not measured."""
        return next((one for one in self.strategies if one.name == name), None)


@dataclass(frozen=True)
class BrokenCase:
    """A case without a record to read: it is broken, or was not or could not be measured; why, in a line."""

    name: str
    reason: str
    status: Literal["broken", "failed", "not run"] = "broken"


@dataclass(frozen=True)
class ReportData:
    """Everything the report says, before it is put into words.

    `warnings` is for a terminal: a sentence for a broken preflight and for each broken case or part, with
    paths as they were given.
    """

    cases: tuple[CaseReport, ...]
    broken: tuple[BrokenCase, ...]
    findings: tuple[str, ...]
    preflight: PreflightRecord | None
    warnings: tuple[str, ...] = ()


def gather(
    latency_dir: Path,
    tables_dir: Path,
    preflight_path: Path | None,
    output_dir: Path,
    names: Sequence[str] = (),
    failures: Mapping[str, Failure] = MappingProxyType({}),
) -> ReportData:
    """Read the named cases below `latency_dir`, or all, with their tables where `tables_dir` has them.

    Sources are named relative to `output_dir`, where the report will lie. Of a case in `failures` the tables
    are left out: they may be of an earlier run.

    Raises:
        LaunchgapError: `latency_dir` is missing or empty, or not one of its records can be read.
    """
    folders = [latency_dir / name for name in names] or _case_folders(latency_dir)
    preflight, findings, unread_preflight = _read_preflight(preflight_path, output_dir)
    cases: list[CaseReport] = []
    broken: list[BrokenCase] = []
    warnings: list[str] = []
    for folder in folders:
        failure = failures.get(folder.name)
        try:
            cases.append(_read_case(folder, tables_dir / folder.name, preflight, output_dir, failure))
        except LaunchgapError as error:
            reason = failure.sentence if failure else told(error, folder, output_dir)
            broken.append(BrokenCase(folder.name, reason, failure.status if failure else "broken"))
            warnings.append(reason if failure else str(error))
    if not cases:
        raise LaunchgapError("; ".join(warnings))
    warnings += [f"{lost.part.what}: {lost.error}" for case in cases for lost in case.unread]
    warnings = unread_preflight + warnings
    return ReportData(tuple(cases), tuple(broken), tuple(findings), preflight, tuple(warnings))


def _case_folders(latency_dir: Path) -> list[Path]:
    try:
        folders = sorted(
            path for path in latency_dir.iterdir() if path.is_dir() and not path.name.startswith(".")
        )
    except OSError as error:
        raise LaunchgapError(
            f"{latency_dir}: cannot be read ({error.strerror}); measure first, or give --latency-dir"
        ) from error
    if not folders:
        raise LaunchgapError(
            f"{latency_dir}: holds no case folder; measure first, or give another --latency-dir"
        )
    return folders


def _read_preflight(
    path: Path | None, output_dir: Path
) -> tuple[PreflightRecord | None, list[str], list[str]]:
    """The record, its findings and warnings; of one that cannot be read why is the only one of either."""
    if path is None:
        return None, [], []
    try:
        record = check_record(path, read_record(path, "preflight"), PreflightRecord)
    except LaunchgapError as error:
        return None, [told(error, path.parent, output_dir)], [str(error)]
    return record, list(record["findings"]), []


def _read_case(
    folder: Path,
    tables: Path,
    preflight: PreflightRecord | None,
    output_dir: Path,
    failure: Failure | None = None,
) -> CaseReport:
    path = folder / "latency.json"
    record = check_record(path, read_record(path, "latency"), LatencyRecord)
    if not record["strategies"]:
        raise LaunchgapError(f"{path}: no strategy was measured; measure again")
    try:
        if failure is not None:
            return _case_report(folder.name, record, None, [failure.missing], path, output_dir)
        found, why = _tables_or_why(tables, record, preflight, output_dir)
        if isinstance(why, Unread):
            return _without(_case_report(folder.name, record, None, [], path, output_dir), why)
        case = _case_report(folder.name, record, found, why, path, output_dir)
        if case.tables is None:
            return case
        return _with_timelines(_with_explained(case, tables, output_dir), tables, output_dir)
    except LaunchgapError as error:
        raise LaunchgapError(f"{path}: {error}") from error


def _case_report(
    name: str,
    record: LatencyRecord,
    tables: CaseTables | None,
    missing: Sequence[Missing],
    path: Path,
    output_dir: Path,
) -> CaseReport:
    judged = verdict(record)
    strategies = tuple(_strategy(record, one, judged, tables) for one in record["strategies"])
    return CaseReport(
        name=name,
        record=record,
        strategies=strategies,
        verdict=judged,
        noise=judged.noise if judged.noise is not None else noise(record),
        tables=tables,
        missing=tuple(missing),
        latency_source=relative(path, output_dir),
        doubts=(*neighbour_doubts(record), *(disagreements(tables, record) if tables is not None else ())),
    )


def _without(case: CaseReport, lost: Unread) -> CaseReport:
    """The case with one more part that it lacks, since its files could not be read."""
    return replace(case, missing=(*case.missing, lost.part), unread=(*case.unread, lost))


def _with_explained(case: CaseReport, folder: Path, output_dir: Path) -> CaseReport:
    """The case with what explains it, and with what is missing of that."""
    try:
        found = read_explained(folder, relative(folder, output_dir), case.record["case"]["name"])
    except LaunchgapError as error:
        return _without(case, unread(EXPLANATIONS, error, folder, output_dir))
    return replace(case, explained=found, missing=(*case.missing, *absent_parts(found)))


def _with_timelines(case: CaseReport, folder: Path, output_dir: Path) -> CaseReport:
    """The case with its timelines, or with why there are none."""
    try:
        found = read_timelines(folder / "timeline.json", case.record["case"]["name"])
    except LaunchgapError as error:
        return _without(case, unread(TIMELINE, error, folder, output_dir))
    return replace(case, timelines=found)


def _strategy(record: LatencyRecord, name: str, judged: Verdict, tables: CaseTables | None) -> StrategyReport:
    fields = record["strategies"][name]
    measured = fields["status"] == "ok" and bool(fields["event_ms"])
    return StrategyReport(
        name=name,
        fields=fields,
        latency=summarise(fields["event_ms"]) if measured else None,
        wall=summarise(fields["wall_ms"]) if measured and fields["wall_ms"] else None,
        reduction=_reduction(record, name, judged) if measured else None,
        wall_reduction=_against_eager(record, name, "wall_ms") if measured else None,
        traced=traced_facts(tables, name) if tables is not None else None,
        pays_after=pays_after_requests(record, name),
    )


def _reduction(record: LatencyRecord, name: str, judged: Verdict) -> Reduction | None:
    if name == judged.strategy and judged.reduction is not None:
        return judged.reduction
    return _against_eager(record, name, "event_ms")


def _against_eager(
    record: LatencyRecord, name: str, clock: Literal["event_ms", "wall_ms"]
) -> Reduction | None:
    """Reduction by one clock; None for eager itself, in a simulation, and where either side lacks samples."""
    eager, other = record["strategies"].get(Strategy.EAGER.value), record["strategies"][name]
    if name == Strategy.EAGER or record["simulated"] or eager is None or not (eager[clock] and other[clock]):
        return None
    return reduction(eager[clock], other[clock], int(record["settings"].get("seed", 0)))


def _tables_or_why(
    folder: Path, record: LatencyRecord, preflight: PreflightRecord | None, output_dir: Path
) -> tuple[CaseTables | None, list[Missing] | Unread]:
    if not folder.is_dir():
        return None, [why_not_traced(record, preflight)]
    try:
        tables = read_tables(folder, relative(folder, output_dir), record["case"]["name"])
    except LaunchgapError as error:
        return None, unread(ALL_TRACES, error, folder, output_dir)
    return tables, unusable_traces(tables)
