"""The report: gathers results into ReportData and renders it as files, all of them from the same facts.

    results = Path("results")
    data = gather(results / "latency", results / "tables", results / "preflight.json", results)
    files = render(data)        # {"report.html": b"...", "report.md": b"...", "figures/...svg": b"...", ...}

Nothing is written here, and no time of day enters: the same inputs give the same bytes.
"""

from __future__ import annotations

from analysis.figures_sweep import sweep_figure
from analysis.report_data import BrokenCase, CaseReport, ReportData, StrategyReport, gather
from analysis.report_drawing import drawing, drawn_files
from analysis.report_html import render_html
from analysis.report_json import render_json
from analysis.report_markdown import render_markdown
from analysis.report_missing import Missing

__all__ = [
    "BrokenCase",
    "CaseReport",
    "Missing",
    "ReportData",
    "StrategyReport",
    "gather",
    "render",
    "render_html",
    "render_json",
    "render_markdown",
]


def render(data: ReportData) -> dict[str, bytes]:
    """Every file of the report by its path below the report's folder; the page last, after what it names."""
    with drawing(data.cases) as drawn:
        texts = {
            "report.json": render_json(data).encode("utf-8"),
            "report.md": render_markdown(data).encode("utf-8"),
            "report.html": render_html(data).encode("utf-8"),
        }
        return drawn() | _of_all_cases(data) | texts


def _of_all_cases(data: ReportData) -> dict[str, bytes]:
    """The figure of all cases together, where there are enough of them."""
    figure = sweep_figure(data)
    return {} if figure is None else drawn_files((f"figures/{figure.name}", figure))
