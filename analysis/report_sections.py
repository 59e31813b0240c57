"""What a section of a case holds, and the sections that explain its numbers, for every format alike."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from analysis.case_parts import Part
from analysis.report_cells import Table
from analysis.report_data import CaseReport, ReportData
from analysis.report_explained import Explained, LedgerRow, ToldFinding
from analysis.report_views_match import (
    blockers_table,
    differences_table,
    escaped_table,
    match_table,
    notes_table,
)
from analysis.report_views_time import (
    host_ledger_table,
    is_span,
    ledger_table,
    median_ledger,
    score_table,
    shown_mode,
    summary_table,
    waterfall_table,
)
from analysis.score_words import errors_sentence
from contract import Strategy

NO_BLOCKERS = "Nothing in the eager trace would break a capture or corrupt it."
CAPTURED_ALL_THE_SAME = (
    "The graph of this case was captured all the same: "
    "what breaks a capture below is not done while one records."
)

_MICROSECONDS = re.compile(r"(?<=\d) us\b")


@dataclass(frozen=True)
class Line:
    """A sentence; `severity` is fatal, warning, note, or empty for one that only says what is."""

    text: str
    severity: str = ""


@dataclass(frozen=True)
class Section:
    """One section: its sentences, its tables, those that are looked up behind a fold, and figures by name.

    Attributes:
        key: what the section's anchor on the page ends with.
        page_only: more folded tables, which would make Markdown too long for a comment.
        more_figures: figures that the page has tables with bars for.
        whole: folded tables of which no format leaves out a row.
        commands: shell commands, each below a remark of what it made.
    """

    key: str
    title: str
    lines: tuple[Line, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()
    page_only: tuple[Table, ...] = ()
    figures: tuple[str, ...] = ()
    more_figures: tuple[str, ...] = ()
    whole: tuple[Table, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.lines or self.tables or self.figures or self.commands)


def alarms(case: CaseReport) -> list[str]:
    """Why a graph's speed-up cannot be believed, a sentence for each graph; to be seen before any number."""
    said = []
    for verdict in case.explained.verdicts if case.explained else ():
        if verdict.alarms:
            one = case.strategy(verdict.strategy)
            faster = one is not None and one.reduction is not None and one.reduction.percent > 0
            what = "may be faster because work escaped it" if faster else "does not do all of eager's work"
            said.append(_plain(f"{verdict.strategy} {what}: {verdict.sentence}."))
    return said


def scores_words(data: ReportData) -> str | None:
    """How good all predictions of the report are, against what is asked of them; None without any."""
    scores = [row for case in data.cases if case.explained for row in case.explained.scores]
    return errors_sentence([(row.case, row.error_percent) for row in scores if row.error_percent is not None])


def time_section(case: CaseReport, found: Explained) -> Section:
    """Where the median request's time went, on the GPU and on the host."""
    sides = [median_ledger(found, name) for name in (Strategy.EAGER.value, Strategy.GRAPH.value)]
    lines = [_shares(side) for side in sides if side is not None and side.range_ns]
    qualified: dict[ToldFinding, list[str]] = {}
    for one in case.strategies:
        for told in found.found(Part.LEDGER, one.name, shown_mode(found.ledger, one.name)):
            # One sentence for all strategies that it is true of.
            qualified.setdefault(replace(told, strategy="", trace_mode=""), []).append(one.name)
    for told, names in qualified.items():
        lines += _told([told], ", ".join(names))
    first, *folded = waterfall_table(case), ledger_table(case), host_ledger_table(case)
    return Section(
        "floor",
        "From eager to graph to the floor",
        tuple(lines),
        present(first),
        present(*folded),
        figures=("waterfall",) if first is not None else (),
    )


def _shares(side: LedgerRow) -> Line:
    whole = side.range_ns or 1.0
    waited, busy = ((value or 0.0) / whole * 100 for value in (side.launch_bound_gaps_ns, side.busy_ns))
    worked = (
        f"its replay, pauses between its kernels included, spanned {busy:.0f} % of the range, and the GPU"
        if is_span(side)
        else f"the GPU was busy for {busy:.0f} % of the range and"
    )
    return Line(
        f"{side.strategy}, median request: {worked} waited for launches, once it had begun, for "
        f"{waited:.0f} %."
    )


def prediction_section(case: CaseReport, found: Explained) -> Section:
    """The graph as the eager trace foretells it, beside the measurement."""
    lines = []
    if found.prediction is not None:
        lines.append(Line(_plain(found.prediction.why)))
        lines.append(
            Line(f"Calibrated on {found.prediction.calibrated_gpu}; nothing was fitted to this case.")
        )
    lines += _told(found.found(Part.PREDICTION, Strategy.EAGER.value))
    return Section(
        "predicted",
        "The graph, predicted from the eager trace",
        tuple(lines),
        present(score_table(case)),
        page_only=present(summary_table(case)),
    )


def match_section(case: CaseReport, found: Explained) -> Section:
    """Whether each graph does eager's work, and what runs beside its replays."""
    lines = []
    for verdict in found.verdicts:
        lines.append(
            Line(_plain(f"{verdict.strategy}: {verdict.sentence}."), "fatal" if verdict.alarms else "")
        )
        told = found.found(Part.MATCH, verdict.strategy)
        lines += _told([one for one in told if one.severity != "note"], verdict.strategy)
    differences = {verdict.strategy: differences_table(case, verdict.strategy) for verdict in found.verdicts}
    first = differences.pop(Strategy.GRAPH.value, None)
    return Section(
        "match",
        "Does the graph do eager's work?",
        tuple(lines),
        present(match_table(case), escaped_table(case)),
        present(first),
        page_only=present(notes_table(case), *differences.values()),
    )


def blockers_section(case: CaseReport, found: Explained) -> Section:
    """What a capture of eager's requests would meet."""
    table = blockers_table(case)
    lines = _told(found.found(Part.BLOCKERS, Strategy.EAGER.value))
    looked = any(row.strategy == Strategy.EAGER for row in found.ledger) and not any(
        one.part == Part.BLOCKERS for one in found.absent
    )
    if table is None and looked:
        lines.insert(0, Line(NO_BLOCKERS))
    graph = case.strategy(Strategy.GRAPH.value)
    was_captured = graph is not None and graph.latency is not None
    if was_captured and any(row.harm == "breaks" for row in found.blockers):
        lines.insert(0, Line(CAPTURED_ALL_THE_SAME))
    return Section("blockers", "What stands in the way of a capture", tuple(lines), present(table))


def _told(findings: list[ToldFinding], lead: str = "") -> list[Line]:
    return [
        Line(
            _plain(f"{lead}: {one.sentence}." if lead else f"{one.sentence[:1].upper()}{one.sentence[1:]}."),
            one.severity,
        )
        for one in findings
    ]


def present(*tables: Table | None) -> tuple[Table, ...]:
    """The tables that there are."""
    return tuple(table for table in tables if table is not None)


def _plain(text: str) -> str:
    """A sentence in the report's spelling of units, with one stop at its end."""
    return _MICROSECONDS.sub(" µs", text).rstrip(".") + "."
