"""Explains a case from its traces: ledgers, match of kernels, cost, blockers and the prediction of the graph.

A part that cannot be made is missing with the reason, and the others stand. The functions behind each part
are those of `python -m analysis ledger`, `match`, `blockers` and `predict`; docs/explain.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from analysis.attribute import Attributed, RangeSelector
from analysis.blocker_facts import read_capture_facts
from analysis.blockers import BLOCKER_COLUMNS, find_blockers
from analysis.calibration import Calibration
from analysis.case_collected import Parts
from analysis.case_parts import MatchVerdict, Part, PredictionVerdict
from analysis.equivalence import MATCH_COLUMNS, match_kernels
from analysis.equivalence_verdict import alarms, check_related, verdict
from analysis.escaped import ESCAPED_COLUMNS, equivalence_findings, escaped_work
from analysis.graph_cost import COST_COLUMNS, graph_cost
from analysis.host_ledger import HOST_COLUMNS, host_ledger
from analysis.ledger import LEDGER_COLUMNS, gpu_ledger
from analysis.ledger_findings import has_replays, ledger_findings
from analysis.predict import POOLED_COLUMNS, REQUEST_COLUMNS, judge, pooled_table, predict
from analysis.predict_findings import (
    calibration_findings,
    level_of,
    mask_findings,
    weight_bytes,
    work_findings,
)
from analysis.predict_score import SCORE_COLUMNS, measured_us, score
from analysis.predict_work import eager_work
from analysis.tables import CountedTrace, TraceLabel
from analysis.timeline_trace import timeline_of
from analysis.trace import Trace
from contract import LatencyRecord, LaunchgapError, Strategy, TraceMode

_OF_TRACE = ("strategy", "trace_mode")

TABLE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ledger": (*_OF_TRACE, *LEDGER_COLUMNS),
    "host_ledger": (*_OF_TRACE, *HOST_COLUMNS),
    "kernel_match": ("strategy", *MATCH_COLUMNS),
    "escaped": ("strategy", *ESCAPED_COLUMNS),
    "graph_cost": (*_OF_TRACE, *COST_COLUMNS),
    "blockers": ("strategy", *BLOCKER_COLUMNS),
    "prediction": REQUEST_COLUMNS,
    "prediction_summary": POOLED_COLUMNS,
    "scores": SCORE_COLUMNS,
}
"""Every table of the explanations and its columns; each is a CSV of the case."""

_EAGER = TraceLabel(Strategy.EAGER.value, TraceMode.NODE)
_DRAWN = (_EAGER, TraceLabel(Strategy.GRAPH.value, TraceMode.NODE))
"""Traces of which a request is drawn: node mode, since graph mode shows a replay as one piece."""


@dataclass(frozen=True)
class Beside:
    """What an explanation takes from beside the traces; a sentence says why something is not there."""

    latency: LatencyRecord | str
    calibration: Calibration | str


def explain_trace(
    parts: Parts,
    label: TraceLabel,
    path: Path,
    trace: Trace,
    found: tuple[RangeSelector, Attributed],
) -> None:
    """Put in what one trace explains by itself. `found` is what its requests were selected by, and they."""
    selector, attributed = found

    def ledger() -> None:
        table = gpu_ledger(attributed)
        parts.tell(Part.LEDGER, label, ledger_findings(trace, attributed, table))
        parts.add("ledger", label, table.assign(timed=_yes_or_no(table["timed"])))

    def blockers() -> None:
        found = find_blockers(trace, selector, read_capture_facts(path))
        parts.tell(Part.BLOCKERS, label, found.findings)
        parts.add("blockers", label, found.table)

    def timeline() -> None:
        drawn = timeline_of(trace, selector, label.strategy, attributed=attributed)
        parts.timelines.append(drawn)

    parts.attempt(Part.LEDGER, label, ledger)
    parts.attempt(
        Part.HOST_LEDGER, label, lambda: parts.add("host_ledger", label, host_ledger(trace, selector))
    )
    if has_replays(attributed):
        parts.attempt(Part.COST, label, lambda: parts.add("graph_cost", label, graph_cost(trace)))
    if label == _EAGER:
        parts.attempt(Part.BLOCKERS, label, blockers)
    if label in _DRAWN:
        parts.attempt(Part.TIMELINE, label, timeline)


def explain_case(
    parts: Parts,
    traces: Sequence[CountedTrace],
    beside: Beside,
) -> None:
    """Put in what takes more than one trace: the matches against eager, and the prediction.

    `traces` are those of a GPU that can be trusted.
    """
    eager = next((trace.attributed for trace in traces if trace.label == _EAGER), None)
    if eager is None:
        return
    for trace in traces:
        graph = trace.attributed
        is_other = trace.label.strategy != Strategy.EAGER and trace.label.trace_mode is TraceMode.NODE
        if is_other and has_replays(graph):
            parts.attempt(Part.MATCH, trace.label, partial(_match, parts, trace.label, eager, graph))
    parts.attempt(Part.PREDICTION, _EAGER, lambda: _predict(parts, eager, beside))


def miss_all(parts: Parts, label: TraceLabel, reason: str) -> None:
    """Say that nothing is explained by a trace that is not there or cannot be used."""
    wanted = [Part.LEDGER, Part.HOST_LEDGER]
    if label == _EAGER:
        wanted += [Part.MATCH, Part.BLOCKERS, Part.PREDICTION]
    elif label.trace_mode is TraceMode.NODE:
        wanted.append(Part.MATCH)
    if label in _DRAWN:
        wanted.append(Part.TIMELINE)
    for part in wanted:
        parts.miss(part, label, reason)


def explained_tables(parts: Parts) -> dict[str, pd.DataFrame]:
    """Every table of `TABLE_COLUMNS`, empty where nothing could be made."""
    return {name: parts.table(name, columns) for name, columns in TABLE_COLUMNS.items()}


def _match(parts: Parts, label: TraceLabel, eager: Attributed, graph: Attributed) -> None:
    if min(len(eager.requests), len(graph.requests)) < 2:
        raise LaunchgapError(
            "there is but one request, and often the first does what no later one does; raise traced_requests"
        )
    matched = match_kernels(eager, graph)
    check_related(matched, "eager's trace")
    escaped = escaped_work(graph)
    parts.tell(Part.MATCH, label, equivalence_findings(matched, escaped))
    parts.add("kernel_match", label, matched)
    parts.add("escaped", label, escaped.assign(other_stream=_yes_or_no(escaped["other_stream"])))
    told = alarms(matched, escaped)
    parts.matches.append(MatchVerdict(label.strategy, verdict(matched, told), told))


def _predict(
    parts: Parts,
    eager: Attributed,
    beside: Beside,
) -> None:
    calibration, record = beside.calibration, parts.eager_record
    if isinstance(calibration, str):
        raise LaunchgapError(calibration)
    latency = None if isinstance(beside.latency, str) else beside.latency
    work = eager_work(eager)
    level = level_of(latency, work.streams)
    prediction = predict(work, calibration, weight_bytes=weight_bytes(latency, record), level=level)
    eager_us = None if latency is None else measured_us(latency, _EAGER.strategy)
    judged = judge(prediction, work, calibration, eager_us)
    parts.prediction = PredictionVerdict(judged.answer, judged.sentence, calibration.gpu, prediction.floor_us)
    for findings in (
        calibration_findings(calibration, parts.gpu_names, record),
        work_findings(work),
        mask_findings(latency),
    ):
        parts.tell(Part.PREDICTION, _EAGER, findings)
    parts.add("prediction", _EAGER, prediction.requests)
    parts.add("prediction_summary", _EAGER, pooled_table(prediction))
    if latency is None:
        parts.miss(Part.SCORE, _EAGER, str(beside.latency))
        return
    scored = score(prediction, latency, calibration)
    parts.add("scores", _EAGER, scored)
    if scored.empty:
        parts.miss(Part.SCORE, _EAGER, "no latency of a graph was measured for this case")


def _yes_or_no(flags: pd.Series[bool]) -> pd.Series[str]:
    return flags.astype("bool").map({True: "yes", False: "no"}).astype("object")
