"""Renders ReportData as one offline HTML file: style, script and pictures inside, nothing fetched.

All names are escaped, and a content security policy forbids the file to load anything and to run any script
but its own, whatever a kernel or a model is called.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis import report_words
from analysis.figures import THEME_COLOURS, render_svg
from analysis.figures_sweep import sweep_figure
from analysis.report_brief import BRIEF_BYTES, PAGE_BYTES, brief_section, brief_words, case_bytes
from analysis.report_contents import BEFORE, TIMELINE, case_sections
from analysis.report_data import CaseReport, ReportData
from analysis.report_figures import CaseFigure, case_figures
from analysis.report_sections import Section, alarms, scores_words
from analysis.report_views import case_anchor, overview_table
from analysis.report_views_time import predictions_table
from analysis.timeline_page import TimelinePanel, timeline_panel
from contract import ACCEPTANCE_PERCENT

TEMPLATES = Path(__file__).resolve().parent / "templates"
PAGE_FIGURE_IN = 5.0
"""Figures on the page are drawn narrow enough to be read on a phone."""

TOP_ROWS = 15
"""Rows of a table before a script hides the rest behind a button."""

SEARCHED_ROWS = 9
"""Rows from which a script gives a table a box to search it by."""

TIMELINES_BYTES = 1_000_000
"""Room for timelines on one page, about ten cases of gpt2's size; later cases get a sentence instead."""

LEFT_OUT = (
    "Left out to keep a page of so many cases small: python scripts/build_report.py --cases {name} makes a "
    "report of this case alone."
)

_PAGE_FIGURES = ("latency_comparison", "where_time_went", "waterfall")
_STYLES = ("style.css", "timeline.css")
_SCRIPTS = ("script.js", "timeline_model.js", "timeline_draw.js", "timeline.js")
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
    """One case as the template wants it.

    `undrawn` says why a timeline that was read is not drawn, `brief` why most of the case is left out; then
    `files` are the links of each section, by its key.
    """

    anchor: str
    case: CaseReport
    alarms: list[str]
    sections: list[Section]
    figures: dict[str, PageFigure]
    panel: TimelinePanel | None
    undrawn: str
    brief: str = ""
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)


def render_html(data: ReportData) -> str:
    """The whole page."""
    theme, script = _read("theme.js"), "\n".join(map(_read, _SCRIPTS))
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            pages=_case_pages(data),
            overview=overview_table(data),
            overview_figure=_page_figure(figure, "all-") if (figure := sweep_figure(data)) else None,
            predictions=predictions_table(data),
            scores=scores_words(data),
            words=report_words,
            style=Markup("\n".join(map(_read, _STYLES))),
            theme=Markup(theme),
            script=Markup(script),
            digests=[_digest(theme), _digest(script)],
            top_rows=TOP_ROWS,
            searched_rows=SEARCHED_ROWS,
            acceptance_percent=ACCEPTANCE_PERCENT,
            before=BEFORE,
            timeline=TIMELINE,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["link"] = lambda path: quote(path, safe="/._-")
    environment.filters["css_name"] = lambda name: re.sub(r"[^A-Za-z0-9_]", "-", name)
    return environment


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    """What a content security policy knows a script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _case_pages(data: ReportData) -> list[CasePage]:
    """Cases in full while there is room on the page, in their order; then in brief."""
    pages, timelines, room = [], TIMELINES_BYTES, PAGE_BYTES - BRIEF_BYTES * len(data.cases)
    for number, case in enumerate(data.cases, start=1):
        page = _case_page(number, case, timelines)
        figures = case_figures(case)
        shown = [one for one in figures if one.name in _PAGE_FIGURES]
        size = case_bytes(page.sections, len(shown), _size(page.panel)) - BRIEF_BYTES
        if size <= room:
            pages.append(_with_figures(page, number, shown))
            timelines, room = timelines - _size(page.panel), room - max(size, 0)
        else:
            pages.append(_in_brief(page, figures, len(data.cases)))
            room = 0  # those after it are in brief as well, however small
    return pages


def _case_page(number: int, case: CaseReport, room: int) -> CasePage:
    """The page of a case without its figures."""
    panel = timeline_panel(case.timelines, f"c{number}-", _timeline_source(case)) if case.timelines else None
    fits = _size(panel) <= room
    return CasePage(
        anchor=case_anchor(number),
        case=case,
        alarms=alarms(case),
        sections=case_sections(case),
        figures={},
        panel=panel if fits else None,
        undrawn="" if fits else LEFT_OUT.format(name=shlex.quote(case.name)),
    )


def _with_figures(page: CasePage, number: int, figures: Sequence[CaseFigure]) -> CasePage:
    return replace(page, figures={one.name: _page_figure(one, f"c{number}-{one.name}-") for one in figures})


def _in_brief(page: CasePage, figures: Sequence[CaseFigure], cases: int) -> CasePage:
    brief = [brief_section(page.case, section, figures) for section in page.sections]
    return replace(
        page,
        sections=[one.section for one in brief],
        panel=None,
        undrawn="",
        brief=brief_words(page.case, cases),
        files={one.section.key: one.files for one in brief if one.files},
    )


def _timeline_source(case: CaseReport) -> str:
    return f"{case.tables.source}/timeline.json" if case.tables else ""


def _size(panel: TimelinePanel | None) -> int:
    """About the bytes that a timeline takes on the page."""
    return 0 if panel is None else len(panel.data) + len(panel.picture.lanes) + len(panel.picture.labels)


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
