"""Renders ReportData as one offline HTML file: style, script and pictures inside, nothing fetched.

All names are escaped, and a content security policy forbids the file to load anything and to run any script
but its own, whatever a kernel or a model is called.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis import report_words
from analysis.figures import THEME_COLOURS, render_svg
from analysis.report_cells import Table
from analysis.report_data import CaseReport, ReportData
from analysis.report_figures import CaseFigure, case_figures
from analysis.report_sections import ExplainedSection, alarms, explained_sections, scores_words
from analysis.report_views import (
    capture_table,
    case_anchor,
    command_line,
    correctness_table,
    environment_table,
    latency_table,
    overview_table,
)
from analysis.report_views_time import cost_steps_table, predictions_table
from analysis.report_views_traced import (
    comparison_table,
    counts_table,
    kernel_table,
    launches_table,
    traces_table,
)
from contract import ACCEPTANCE_PERCENT, Strategy

TEMPLATES = Path(__file__).resolve().parent / "templates"
PAGE_FIGURE_IN = 5.0
"""Figures on the page are drawn narrow enough to be read on a phone."""

TOP_ROWS = 15
"""Rows of a kernel table before the rest goes behind a click."""

_PAGE_FIGURES = ("latency_comparison", "where_time_went")
_SECTION_FIGURES = ("waterfall",)
_TAG = re.compile(r"<[^>]*>")
_SVG_ID = re.compile(r'\b(id="|xlink:href="#|url\(#)')
_COLOUR = re.compile("|".join(map(re.escape, THEME_COLOURS)))


@dataclass(frozen=True)
class PageFigure:
    """A figure as inline SVG with what a screen reader says instead."""

    svg: Markup
    alt: str
    caption: str


@dataclass(frozen=True)
class CasePage:
    """One case as the template wants it."""

    anchor: str
    case: CaseReport
    figures: tuple[PageFigure, ...]
    section_figures: dict[str, PageFigure]
    alarms: list[str]
    sections: list[ExplainedSection]
    cost_steps: Table | None
    latency: Table
    counts: Table | None
    launches: Table | None
    comparisons: tuple[Table, ...]
    kernels: tuple[Table, ...]
    correctness: Table | None
    capture: Table | None
    traces: Table | None
    environment: Table
    command: str


def render_html(data: ReportData) -> str:
    """The whole page."""
    style, script = _read("style.css"), _read("script.js")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["link"] = lambda path: quote(path, safe="/._-")
    environment.filters["css_name"] = lambda name: re.sub(r"[^A-Za-z0-9_]", "-", name)
    page = environment.get_template("report.html.j2")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.render(
        data=data,
        pages=[_case_page(number, case) for number, case in enumerate(data.cases, start=1)],
        overview=overview_table(data),
        predictions=predictions_table(data),
        scores=scores_words(data),
        words=report_words,
        style=Markup(style),
        script=Markup(script),
        script_digest=digest,
        top_rows=TOP_ROWS,
        acceptance_percent=ACCEPTANCE_PERCENT,
    )


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _case_page(number: int, case: CaseReport) -> CasePage:
    graphs = [one.name for one in case.strategies if one.name != Strategy.EAGER]
    tables = (
        [comparison_table(case, name) for name in graphs],
        [kernel_table(case, one.name) for one in case.strategies],
    )
    comparisons, kernels = (tuple(table for table in group if table is not None) for group in tables)
    figures = {figure.name: figure for figure in case_figures(case)}
    drawn = {
        name: _page_figure(figures[name], f"c{number}-{name}-")
        for name in (*_PAGE_FIGURES, *_SECTION_FIGURES)
        if name in figures
    }
    return CasePage(
        anchor=case_anchor(number),
        case=case,
        figures=tuple(figure for name, figure in drawn.items() if name in _PAGE_FIGURES),
        section_figures=drawn,
        alarms=alarms(case),
        sections=explained_sections(case),
        cost_steps=cost_steps_table(case),
        latency=latency_table(case),
        counts=counts_table(case),
        launches=launches_table(case),
        comparisons=comparisons,
        kernels=kernels,
        correctness=correctness_table(case),
        capture=capture_table(case),
        traces=traces_table(case),
        environment=environment_table(case),
        command=command_line(case),
    )


def _page_figure(figure: CaseFigure, prefix: str) -> PageFigure:
    svg = render_svg(figure.draw(PAGE_FIGURE_IN, False), text_as_outlines=False).decode("utf-8")
    return PageFigure(Markup(_inline(svg, prefix)), figure.alt, figure.caption)


def _inline(svg: str, prefix: str) -> str:
    """SVG made fit for a page: identifiers of its own, colours that follow the theme, width of its place."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r">\s+<", "><", svg)
    return _TAG.sub(lambda tag: _inline_tag(tag[0], prefix), svg)


def _inline_tag(tag: str, prefix: str) -> str:
    """One tag; text between tags is left alone, since names stand there."""
    if tag.startswith("<svg"):
        return re.sub(r' (?:width|height)="[^"]*"', "", tag)
    tag = _SVG_ID.sub(lambda match: f"{match[1]}{prefix}", tag)
    return _COLOUR.sub(lambda match: f"var(--{THEME_COLOURS[match[0]]})", tag)
