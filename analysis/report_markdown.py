"""Renders ReportData as Markdown, compact enough for a pull request's comment. All names are escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from analysis.report_cells import NOT_MEASURED, Cell, Table
from analysis.report_data import CaseReport, ReportData
from analysis.report_figures import case_figures
from analysis.report_sections import ExplainedSection, Line, alarms, explained_sections, scores_words
from analysis.report_views import (
    capture_table,
    command_line,
    correctness_table,
    latency_table,
    overview_table,
)
from analysis.report_views_time import cost_steps_table, predictions_table
from analysis.report_views_traced import comparison_table, counts_table, launches_table, traces_table
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
from contract import Strategy

TOP_KERNELS = 15

_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#!])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "://": "&#58;//"}


def render_markdown(data: ReportData) -> str:
    """The report in short: verdicts, before and after, counts, kernels behind a fold, and what is missing."""
    parts = ["# launchgap: what CUDA graphs buy"]
    if len(data.cases) + len(data.broken) > 1:
        parts += [f"**{escape(overall_headline(data))}**", _table(overview_table(data))]
        parts += _predictions(data)
        parts += [f"- **{escape(case.name)}** is broken: {escape(case.reason)}" for case in data.broken]
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
    parts += ["### Before and after", _with_source(latency_table(case)), *_missing(case)]
    for section in explained_sections(case):
        parts += _section(section)
    for title, table in (
        ("### Launches and kernels of one request", counts_table(case)),
        ("### Output", correctness_table(case)),
        ("### What a graph costs", capture_table(case)),
    ):
        if table is not None:
            parts += [title, _with_source(table)]
    steps = cost_steps_table(case)
    if steps is not None:
        parts.append(_fold("Steps in the life of a graph, as traced", steps))
    parts += _folded(case)
    return parts


def _predictions(data: ReportData) -> list[str]:
    table, words = predictions_table(data), scores_words(data)
    if table is None or words is None:
        return []
    return ["### Predicted from the eager traces", escape(words), _with_source(table)]


def _section(section: ExplainedSection) -> list[str]:
    parts = [f"### {escape(section.title)}"]
    if section.lines:
        parts.append("\n".join(f"- {_marked(line)}" for line in section.lines))
    parts += [_with_source(table) for table in section.tables]
    return parts + [_fold(escape(table.caption), table, TOP_KERNELS) for table in section.folded]


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


def _folded(case: CaseReport) -> list[str]:
    """What is looked up rather than read, behind folds that GitHub and GitLab show."""
    folds = [
        ("Launches by host API", launches_table(case), None),
        (
            f"Kernels, eager against graph (top {TOP_KERNELS})",
            comparison_table(case, Strategy.GRAPH),
            TOP_KERNELS,
        ),
        ("Traces", traces_table(case), None),
    ]
    parts = []
    for title, table, top in folds:
        if table is not None:
            parts.append(_fold(title, table, top))
    pictures = [
        f"![{escape(one.alt)}]({quote(f'figures/{case.name}.{one.name}.png')})" for one in case_figures(case)
    ]
    parts.append("<details><summary>Figures</summary>\n\n" + "\n\n".join(pictures) + "\n\n</details>")
    command = command_line(case).replace("```", "'''")
    return [*parts, f"<details><summary>Command</summary>\n\n```sh\n{command}\n```\n\n</details>"]


def _fold(title: str, table: Table, top: int | None = None) -> str:
    return f"<details><summary>{title}</summary>\n\n{_with_source(table, top)}\n\n</details>"


def _with_source(table: Table, top: int | None = None) -> str:
    parts = [escape(table.caption), _table(table, top), *[escape(note) for note in table.notes]]
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
