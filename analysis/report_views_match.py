"""The report's tables of whether a graph does eager's work, and of what stands in the way of a capture."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.case_parts import Part
from analysis.report_cells import Cell, Table, columns, count_cell, number_cell, text_cell
from analysis.report_data import CaseReport
from analysis.report_explained import BlockerRow, EscapedRow, MatchRow
from analysis.report_views_traced import name_cell

MATCHES = ("same", "changed", "missing", "extra")
_SUMS = (
    "eager_calls_per_request",
    "graph_calls_per_request",
    "outside_calls_per_request",
    "eager_us_per_request",
    "graph_us_per_request",
    "difference_us",
)
_NAMES_ARE_NO_PROOF = (
    "Kernels are matched by name and shape, which proves nothing about their results: the comparison of "
    "outputs does."
)


def match_totals(rows: Sequence[MatchRow], strategy: str) -> dict[str, dict[str, float]]:
    """Sums over the kernels of each kind of match, per request."""
    kernels = [row for row in rows if row.strategy == strategy and row.kind == "kernel"]
    return {
        match: {
            name: sum(getattr(row, name) or 0.0 for row in kernels if row.match == match) for name in _SUMS
        }
        for match in MATCHES
    }


def match_table(case: CaseReport) -> Table | None:
    """Kernels of each graph by what became of eager's."""
    if case.explained is None or not case.explained.verdicts:
        return None
    lines = []
    for verdict in case.explained.verdicts:
        for match, sums in match_totals(case.explained.matched, verdict.strategy).items():
            calls, times = list(sums.values())[:3], list(sums.values())[3:]
            cells = (*(count_cell(value) for value in calls), *(number_cell(value, 1) for value in times))
            lines.append((text_cell(verdict.strategy, code=True), text_cell(match), *cells))
    return Table(
        "Kernels of one eager request against those of the graph's. GPU time as traced in node "
        "mode; no latency.",
        columns(":strategy", ":match", "kernels, eager", "kernels, graph", "beside the replay", "eager µs",
            "graph µs", "difference µs"),
        tuple(lines),
        f"{case.explained.source}/kernel_match.csv",
        (_NAMES_ARE_NO_PROOF,),
    )  # fmt: skip


def differing(rows: Sequence[MatchRow], strategy: str) -> list[MatchRow]:
    """Work of a strategy that is not the same in the graph, what weighs most first."""
    found = [row for row in rows if row.strategy == strategy and row.match != "same"]
    return sorted(
        found, key=lambda row: -max(row.eager_us_per_request or 0.0, row.graph_us_per_request or 0.0)
    )


def differences_table(case: CaseReport, strategy: str) -> Table | None:
    """What of one strategy is not the same in the graph, with the reason where it is known."""
    found = [] if case.explained is None else differing(case.explained.matched, strategy)
    if not found or case.explained is None:
        return None
    return Table(
        f"Not the same in {strategy}: kernels, copies and fills per request.",
        columns("~kernel", ":match", "calls, eager", "calls, graph", "eager µs", "graph µs", "difference µs",
            "~runs instead", "~reason"),
        tuple(_difference_cells(row) for row in found),
        f"{case.explained.source}/kernel_match.csv",
    )  # fmt: skip


def _difference_cells(row: MatchRow) -> tuple[Cell, ...]:
    shapes = " → ".join(shape for shape in (row.eager_shape, row.graph_shape) if shape)
    return (
        name_cell(row.kernel, f"{row.full_name} ({shapes})"),
        text_cell(row.match),
        count_cell(row.eager_calls_per_request),
        count_cell(row.graph_calls_per_request),
        number_cell(row.eager_us_per_request, 1),
        number_cell(row.graph_us_per_request, 1),
        number_cell(row.difference_us, 1),
        text_cell(row.instead, code=bool(row.instead)),
        text_cell(row.reason or "not known"),
    )


def escaped_table(case: CaseReport) -> Table | None:
    """What each graph's requests ran beside their replays."""
    if case.explained is None or not case.explained.escaped:
        return None
    return Table(
        "Work beside the replay, per request. What is expected, a request cannot do without; "
        "all else escaped.",
        columns(
            ":work", ":strategy", ":API", ":when", "calls", "µs", ":on another stream", ":what it is for"
        ),
        tuple(_escaped_cells(row) for row in case.explained.escaped),
        f"{case.explained.source}/escaped.csv",
    )


def _escaped_cells(row: EscapedRow) -> tuple[Cell, ...]:
    return (
        name_cell(row.kernel, row.full_name),
        text_cell(row.strategy, code=True),
        text_cell(row.api, code=True),
        text_cell(row.when),
        count_cell(row.calls_per_request),
        number_cell(row.us_per_request, 1),
        text_cell(row.other_stream),
        text_cell(row.expected or "ESCAPED"),
    )


def blockers_table(case: CaseReport) -> Table | None:
    """What a capture of the eager requests would meet; None where nothing was found."""
    if case.explained is None or not case.explained.blockers:
        return None
    return Table(
        "What a capture of eager's requests would meet. breaks: it fails; corrupts: it "
        "succeeds, and replays are "
        "wrong; check: depends on what a trace does not tell.",
        columns(":blocker", ":harm", "~detail", "per request", "host µs", "GPU µs", "~after", "~what it does",
            "~remedy"),
        tuple(_blocker_cells(row) for row in case.explained.blockers),
        f"{case.explained.source}/blockers.csv",
    )  # fmt: skip


def _blocker_cells(row: BlockerRow) -> tuple[Cell, ...]:
    place = "" if row.place == "inside" else f"{row.place}; "
    return (
        text_cell(row.blocker),
        text_cell(row.harm),
        text_cell(f"{place}{row.detail}"),
        count_cell(row.per_request),
        number_cell(row.host_us_per_request, 1),
        number_cell(row.gpu_us_per_request, 1),
        text_cell(row.after, code=bool(row.after)),
        text_cell(row.effect),
        text_cell(row.remedy),
    )


def notes_table(case: CaseReport) -> Table | None:
    """What is known of the differences, a sentence each."""
    found = case.explained
    notes = (
        [one for one in found.findings if (one.part, one.severity) == (Part.MATCH, "note")] if found else []
    )
    if not notes or found is None:
        return None
    return Table(
        "Known reasons for the differences.",
        columns(":strategy", "~what and why"),
        tuple((text_cell(one.strategy, code=True), text_cell(one.sentence)) for one in notes),
        f"{found.source}/explained.json",
    )
