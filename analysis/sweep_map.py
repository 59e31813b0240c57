"""Many cases at a glance: reductions by model and prompt length, and where a graph stops paying."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from analysis.latency import Reduction
from analysis.report_data import CaseReport, ReportData
from contract import DEFAULT_ATTENTION, Phase, Strategy

CELLS_AT_LEAST = 4
"""Fewer are seen at a glance in the table of all cases."""

_UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class MapCell:
    """The reduction of `graph` against eager in percent, and whether its 95 % interval leaves out zero."""

    percent: float
    sure: bool


@dataclass(frozen=True)
class MapRow:
    """A model in one dtype: its number of parameters, and a cell for each length, None if none was judged."""

    label: str
    parameters: int
    cells: tuple[MapCell | None, ...]


@dataclass(frozen=True)
class ReductionMap:
    """Rows from the smallest model to the largest, columns from the shortest prompt to the longest."""

    lengths: tuple[int, ...]
    rows: tuple[MapRow, ...]

    def sentences(self) -> list[str]:
        """For each row the length from which on a graph no longer surely pays; empty where it always does."""
        told = []
        for row in self.rows:
            judged = [(n, cell) for n, cell in zip(self.lengths, row.cells, strict=True) if cell is not None]
            stops = _stops_at(judged)
            if stops is not None:
                told.append(f"{row.label}: from {stops} tokens on a graph is no longer surely faster.")
        return told


def reduction_map(data: ReportData) -> ReductionMap | None:
    """The map of all cases that can be judged; None with fewer than four cells or a single length.

    Cases that differ in `max_length` alone share a cell, which holds the median of their reductions: `graph`
    is captured at the prompt's own length, whatever that setting is. A graph whose output is wrong has no
    cell.
    """
    by_row: dict[tuple[int, str], dict[int, list[Reduction]]] = {}
    for case in data.cases:
        found = _reduction_of(case)
        if found is not None:
            row = by_row.setdefault((case.record["model"]["parameters"], _label(case)), {})
            row.setdefault(case.record["case"]["prompt_length"], []).append(found)
    lengths = tuple(sorted({length for row in by_row.values() for length in row}))
    if sum(map(len, by_row.values())) < CELLS_AT_LEAST or len(lengths) < 2:
        return None
    rows = [
        MapRow(f"{label} ({count(size)})", size, tuple(_cell(row.get(length, ())) for length in lengths))
        for (size, label), row in sorted(by_row.items())
    ]
    return ReductionMap(lengths, tuple(rows))


def _reduction_of(case: CaseReport) -> Reduction | None:
    graph = case.strategy(Strategy.GRAPH.value)
    if graph is None or (case.verdict.wrong_output and case.verdict.strategy == graph.name):
        return None
    return graph.reduction


def _label(case: CaseReport) -> str:
    """What tells a row from the others: the model's folder or name, dtype, and what is not as usual."""
    fields = case.record["case"]
    parts = [fields["model"].rstrip("/").rsplit("/", 1)[-1], fields["dtype"]]
    parts += [fields["attn_implementation"]] if fields["attn_implementation"] != DEFAULT_ATTENTION else []
    phase = fields.get("phase", Phase.PREFILL.value)
    return " ".join([*parts, *([phase] if phase != Phase.PREFILL else [])])


def _cell(found: Iterable[Reduction]) -> MapCell | None:
    several = list(found)
    if not several:
        return None
    sure = all(one.low is not None and one.high is not None and one.low * one.high > 0 for one in several)
    return MapCell(median(one.percent for one in several), sure)


def _stops_at(judged: Sequence[tuple[int, MapCell]]) -> int | None:
    """The shortest length from which on no cell is a sure gain; None where the longest still is."""
    stops = None
    for length, cell in reversed(judged):
        if cell.sure and cell.percent > 0:
            break
        stops = length
    return stops


def count(number: int) -> str:
    """A number of parameters with two figures and a unit: 124 M, 1.2 B."""
    for size, unit in _UNITS:
        if number >= size:
            value = number / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return str(number)
