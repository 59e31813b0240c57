"""Renders ReportData as Markdown, compact enough for a pull request's comment. All names are escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from analysis.figures_sweep import sweep_figure
from analysis.report_cells import NOT_MEASURED, Cell, Table
from analysis.report_contents import BEFORE, case_sections
from analysis.report_data import CaseReport, ReportData
from analysis.report_figures import CaseFigure, case_figures
from analysis.report_sections import Line, Section, alarms, scores_words
from analysis.report_views import overview_table, unread_words
from analysis.report_views_time import predictions_table
from analysis.report_words import (
    badge,
    case_heading,
    headline,
    machine_line,
    noise_sentence,
    overall_headline,
    remarks,
    tiles,
    weights_note,
)

TOP_ROWS = 15
"""Rows of a folded table; the CSV beside the report has them all."""

SHOWN_COMMANDS = 2
"""The benchmark's, and the one of the first trace."""

UNFOLDED_ROWS = 8
"""Tables with more rows go behind a fold, which GitHub and GitLab show."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#!])")
_BROKEN = {"broken": " is broken", "failed": " failed", "not run": ""}
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "://": "&#58;//"}


def render_markdown(data: ReportData) -> str:
    """The report in short: verdicts, before and after, counts, kernels behind a fold, and what is missing."""
    parts = ["# launchgap: what CUDA graphs buy"]
    if len(data.cases) + len(data.broken) > 1:
        parts += [f"**{escape(overall_headline(data))}**", _table(overview_table(data))]
        if (figure := sweep_figure(data)) is not None:
            parts.append(f"![{escape(figure.alt)}](figures/{figure.name}.png)")
        parts += _predictions(data)
        parts += [
            f"- **{escape(case.name)}**{_BROKEN[case.status]}: {escape(case.reason)}" for case in data.broken
        ]
        parts += [f"- {escape(sentence)}" for sentence in unread_words(data)]
    for case in data.cases:
        parts += _case(case)
    if data.findings:
        parts += [
            "## What the preflight found",
            "\n".join(f"- {escape(finding)}" for finding in data.findings),
        ]
    parts.append(
        "_Latency is measured without a profiler. Counts and times 'as traced' come from Nsight Systems and "
        f"are no latency. `{NOT_MEASURED}` is not measured, never zero._"
    )
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown and the HTML inside it show as it is: no markup, links, mentions or table breaks."""
    text = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    for plain, entity in _ENTITIES.items():
        text = text.replace(plain, entity)
    return text


def _case(case: CaseReport) -> list[str]:
    parts = [f"## {escape(case_heading(case))}", escape(machine_line(case))]
    parts.append(f"**{escape(badge(case))}**: {escape(headline(case))}")
    parts += [f"**{escape(alarm)}**" for alarm in alarms(case)]
    note = weights_note(case)
    said = [*remarks(case), *([note] if note else []), noise_sentence(case)]
    parts += ["\n".join(f"- {escape(words)}" for words in said), _tiles(case)]
    figures = {figure.name: figure for figure in case_figures(case)}
    for section in case_sections(case):
        parts += _section(case, section, figures)
        parts += _missing(case) if section.key == BEFORE else []
    return parts


def _predictions(data: ReportData) -> list[str]:
    table, words = predictions_table(data), scores_words(data)
    if table is None or words is None:
        return []
    return ["### Predicted from the eager traces", escape(words), _with_source(table)]


def _section(case: CaseReport, section: Section, figures: dict[str, CaseFigure]) -> list[str]:
    parts = [f"### {escape(section.title)}"]
    if section.lines:
        parts.append("\n".join(f"- {_marked(line)}" for line in section.lines))
    if section.commands:
        parts.append(_commands(section.commands))
    parts += [
        _fold(table) if len(table.rows) > UNFOLDED_ROWS else _with_source(table) for table in section.tables
    ]
    parts += [_fold(table) for table in section.folded]
    parts += [_fold(table, top=None) for table in section.whole]
    shown = [figures[name] for name in (*section.figures, *section.more_figures) if name in figures]
    return parts + [_picture(case, figure) for figure in shown]


def _commands(commands: Sequence[str]) -> str:
    """The first commands: those of the other traces differ in strategy and mode alone."""
    fenced = "\n\n".join(commands[:SHOWN_COMMANDS]).replace("```", "'''")
    more = len(commands) - SHOWN_COMMANDS
    rest = f"\n\nThe commands of {more} other traces are in report.html and report.json." if more > 0 else ""
    return f"<details><summary>Commands</summary>\n\n```sh\n{fenced}\n```{rest}\n\n</details>"


def _picture(case: CaseReport, figure: CaseFigure) -> str:
    image = f"![{escape(figure.alt)}]({quote(f'figures/{case.name}.{figure.name}.png')})"
    return f"<details><summary>Figure</summary>\n\n{image}\n\n</details>"


def _marked(line: Line) -> str:
    if line.severity == "fatal":
        return f"**{escape(line.text)}**"
    lead = f"{line.severity[:1].upper()}{line.severity[1:]}: " if line.severity else ""
    return lead + escape(line.text)


def _tiles(case: CaseReport) -> str:
    lines = ["|  | eager | graph | how |", "| --- | ---: | ---: | --- |"]
    return "\n".join([*lines, *(_line([escape(text) for text in tile]) for tile in tiles(case))])


def _missing(case: CaseReport) -> list[str]:
    if not case.missing:
        return []
    lines = []
    for part in case.missing:
        remedy = f" To get it: {escape(part.remedy)}." if part.remedy else ""
        lines.append(f"- **{escape(part.what)}**: {escape(part.why)}.{remedy}")
    return ["### Not in this report", "\n".join(lines)]


def _fold(table: Table, top: int | None = TOP_ROWS) -> str:
    """A table behind its caption, which says so where rows are left out."""
    rows = len(table.rows)
    left_out = f" The first {top} of {rows}." if top is not None and rows > top else ""
    body = _body(table, top)
    return f"<details><summary>{escape(table.caption)}{left_out}</summary>\n\n{body}\n\n</details>"


def _with_source(table: Table) -> str:
    return f"{escape(table.caption)}\n\n{_body(table)}"


def _body(table: Table, top: int | None = None) -> str:
    parts = [_table(table, top), *[escape(note) for note in table.notes]]
    if table.source:
        parts.append(f"<sub>Numbers from {escape(table.source)}</sub>")
    return "\n\n".join(parts)


def _table(table: Table, top: int | None = None) -> str:
    """A pipe table without the columns of bars, which Markdown cannot draw."""
    kept = [index for index, column in enumerate(table.columns) if column.title]
    lines = [_line([escape(table.columns[index].title) for index in kept])]
    lines.append(_line(["---:" if table.columns[index].numeric else "---" for index in kept]))
    lines += [_line([_cell(row[index]) for index in kept]) for row in table.rows[:top]]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    return escape(cell.text)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
