"""What a page leaves out of a case when all cases in full would make it too large, and the links to it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.report_cells import Cell, Table
from analysis.report_contents import BEFORE
from analysis.report_data import CaseReport
from analysis.report_drawing import figure_file
from analysis.report_figures import CaseFigure
from analysis.report_sections import Section

PAGE_BYTES = 1_800_000
"""Room for the cases of one page; what else is on it takes a tenth of that."""

BRIEF_BYTES = 18_000
"""About what a case takes in brief."""

_KEPT = (BEFORE, "output")
"""Sections whose tables stay: what came of it, and whether it may be believed."""

_TABLE_BYTES, _CELL_BYTES, _BAR_BYTES, _FIGURE_BYTES = 500, 62, 50, 27_000
_BRIEF = (
    "In brief: figures, timeline and most tables of this case are left out to keep a page of {cases} cases "
    "small, with links to them instead. python scripts/build_report.py --cases {name} makes a report of this "
    "case alone."
)


@dataclass(frozen=True)
class BriefSection:
    """A section without most of its tables, and the paths of what was left out, relative to the page."""

    section: Section
    files: tuple[str, ...]


def case_bytes(sections: Sequence[Section], figures: int, timeline: int) -> int:
    """About the bytes of a case in full: its sections, so many figures, and a timeline of that size."""
    tables = [table for section in sections for table in _tables(section)]
    lines = sum(len(line.text) + 50 for section in sections for line in section.lines)
    return lines + sum(map(_table_bytes, tables)) + figures * _FIGURE_BYTES + timeline


def brief_words(case: CaseReport, cases: int) -> str:
    """That a case is shown in brief, why, and how to see all of it."""
    return _BRIEF.format(cases=cases, name=shlex.quote(case.name))


def brief_section(case: CaseReport, section: Section, figures: Sequence[CaseFigure]) -> BriefSection:
    """The section as sentences, with links to its tables and figures; what matters most keeps its tables."""
    kept = section.tables if section.key in _KEPT else ()
    drawn = {one.name: f"{figure_file(case, one)}.svg" for one in figures}
    files = [drawn[name] for name in (*section.figures, *section.more_figures) if name in drawn]
    files += [table.source for table in _tables(section) if table not in kept and table.source]
    files += [case.latency_source] if section.commands else []
    short = replace(
        section, tables=kept, folded=(), page_only=(), whole=(), commands=(), figures=(), more_figures=()
    )
    return BriefSection(short, tuple(dict.fromkeys(files)))


def _tables(section: Section) -> tuple[Table, ...]:
    return (*section.tables, *section.folded, *section.whole, *section.page_only)


def _table_bytes(table: Table) -> int:
    return _TABLE_BYTES + sum(_cell_bytes(cell) for row in table.rows for cell in row)


def _cell_bytes(cell: Cell) -> int:
    return _CELL_BYTES + len(cell.text) + len(cell.title) + _BAR_BYTES * len(cell.bars)
