"""Reads what explains a case (`ledger.csv` and its neighbours, `explained.json`) for the report.

Ledgers are in nanoseconds, other times in microseconds, as the names say; an empty cell is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.case_parts import MatchVerdict, PredictionVerdict
from analysis.finding import SEVERITIES
from analysis.report_tables import ANALYSE_AGAIN, read_part, read_rows
from contract import LaunchgapError


@dataclass(frozen=True)
class LedgerRow:
    """The GPU's ledger of one request, as traced; the five parts add up to the range."""

    strategy: str
    trace_mode: str
    range_ns: float | None
    head_ns: float | None
    busy_ns: float | None
    launch_bound_gaps_ns: float | None
    device_gaps_ns: float | None
    tail_ns: float | None


@dataclass(frozen=True)
class HostRow:
    """The host's ledger of one request, as traced; the six parts add up to the range."""

    strategy: str
    trace_mode: str
    range_ns: float | None
    launches_ns: float | None
    synchronising_ns: float | None
    copies_ns: float | None
    allocations_ns: float | None
    other_api_ns: float | None
    rest_ns: float | None


@dataclass(frozen=True)
class MatchRow:
    """What became of one kernel, copy or fill between eager and a graph; see `analysis.equivalence`."""

    strategy: str
    match: str
    kind: str
    kernel: str
    full_name: str
    eager_shape: str
    graph_shape: str
    eager_calls_per_request: float | None
    graph_calls_per_request: float | None
    outside_calls_per_request: float | None
    eager_us_per_request: float | None
    graph_us_per_request: float | None
    difference_us: float | None
    instead: str
    reason: str


@dataclass(frozen=True)
class EscapedRow:
    """Work of a graph's request that no replay ran; `expected` is what it is for, empty if it escaped."""

    strategy: str
    kind: str
    kernel: str
    full_name: str
    api: str
    other_stream: str
    when: str
    calls_per_request: float | None
    us_per_request: float | None
    expected: str


@dataclass(frozen=True)
class CostRow:
    """Host time of one step in the life of a graph, over a whole trace."""

    strategy: str
    trace_mode: str
    step: str
    calls: float | None
    total_us: float | None
    mean_us: float | None
    median_us: float | None
    max_us: float | None


@dataclass(frozen=True)
class BlockerRow:
    """What a capture of the eager requests would meet."""

    harm: str
    blocker: str
    detail: str
    place: str
    per_request: float | None
    host_us_per_request: float | None
    gpu_us_per_request: float | None
    after: str
    effect: str
    remedy: str


@dataclass(frozen=True)
class SummaryRow:
    """One quantity of the predicted graph's median request."""

    quantity: str
    us: float | None
    low_us: float | None
    high_us: float | None
    meaning: str


@dataclass(frozen=True)
class ScoreRow:
    """A prediction beside its measurement; `error_percent` is positive where the graph was faster."""

    case: str
    strategy: str
    level: str
    gpu: str
    driver: str
    torch: str
    nodes: float | None
    predicted_us: float | None
    low_us: float | None
    high_us: float | None
    measured_us: float | None
    error_percent: float | None
    inside: str
    gap_us: float | None
    exact_gap_us: float | None


@dataclass(frozen=True)
class ToldFinding:
    """A sentence about one part of one trace; `severity` is fatal, warning or note."""

    part: str
    strategy: str
    trace_mode: str
    severity: str
    sentence: str


@dataclass(frozen=True)
class AbsentPart:
    """A part that could not be made, and why."""

    part: str
    strategy: str
    trace_mode: str
    reason: str


@dataclass(frozen=True)
class Explained:
    """Everything that explains a case. `source` is the folder of its files, as the report names it."""

    source: str
    ledger: tuple[LedgerRow, ...]
    host: tuple[HostRow, ...]
    matched: tuple[MatchRow, ...]
    escaped: tuple[EscapedRow, ...]
    cost: tuple[CostRow, ...]
    blockers: tuple[BlockerRow, ...]
    summary: tuple[SummaryRow, ...]
    scores: tuple[ScoreRow, ...]
    verdicts: tuple[MatchVerdict, ...]
    prediction: PredictionVerdict | None
    findings: tuple[ToldFinding, ...]
    absent: tuple[AbsentPart, ...]

    def found(self, part: str, strategy: str, trace_mode: str | None = None) -> list[ToldFinding]:
        """Findings about one part of one strategy, of one trace mode or of both."""
        return [
            one
            for one in self.findings
            if (one.part, one.strategy) == (part, strategy) and trace_mode in (None, one.trace_mode)
        ]


def read_explained(folder: Path, source: str, case: str) -> Explained:
    """Read what explains one case from its folder.

    Raises:
        LaunchgapError: a file is missing, broken or about another case.
    """
    path = folder / "explained.json"
    record = read_part(path, "explained", case)
    verdicts, prediction, findings, absent = _judgements(path, record)
    return Explained(
        source=source,
        ledger=read_rows(folder / "ledger.csv", LedgerRow),
        host=read_rows(folder / "host_ledger.csv", HostRow),
        matched=read_rows(folder / "kernel_match.csv", MatchRow),
        escaped=read_rows(folder / "escaped.csv", EscapedRow),
        cost=read_rows(folder / "graph_cost.csv", CostRow),
        blockers=read_rows(folder / "blockers.csv", BlockerRow),
        summary=read_rows(folder / "prediction_summary.csv", SummaryRow),
        scores=read_rows(folder / "scores.csv", ScoreRow),
        verdicts=verdicts,
        prediction=prediction,
        findings=findings,
        absent=absent,
    )


def _judgements(
    path: Path, record: Mapping[str, Any]
) -> tuple[
    tuple[MatchVerdict, ...], PredictionVerdict | None, tuple[ToldFinding, ...], tuple[AbsentPart, ...]
]:
    """The contents of `explained.json`.

    Raises:
        LaunchgapError: something is missing or of another kind.
    """
    try:
        verdicts = tuple(
            MatchVerdict(str(one["strategy"]), str(one["sentence"]), tuple(map(str, one["alarms"])))
            for one in record["matches"]
        )
        found = record["prediction"]
        prediction = None if found is None else _prediction(found)
        findings = tuple(ToldFinding(**_texts(one, ToldFinding)) for one in record["findings"])
        absent = tuple(AbsentPart(**_texts(one, AbsentPart)) for one in record["missing"])
        if not {one.severity for one in findings} <= set(SEVERITIES):
            raise ValueError("severity")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LaunchgapError(f"{path}: incomplete ({error!r}); {ANALYSE_AGAIN}") from error
    return verdicts, prediction, findings, absent


def _prediction(found: Mapping[str, Any]) -> PredictionVerdict:
    floor_us = found["floor_us"]
    return PredictionVerdict(
        answer=str(found["answer"]),
        why=str(found["why"]),
        calibrated_gpu=str(found["calibrated_gpu"]),
        floor_us=None if floor_us is None else float(floor_us),
    )


def _texts(one: Mapping[str, Any], kind: type) -> dict[str, str]:
    return {name: str(one[name]) for name in kind.__annotations__}
