"""The heat map of a sweep: how much a graph saves, by model and prompt length."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures_style import (
    EAGER,
    GRAPH,
    INK,
    MUTED,
    SMALL_POINTS,
    add_axes,
    figure_parameters,
    margin_text,
    new_figure,
    shorten_middle,
)
from analysis.report_data import ReportData
from analysis.report_figures import CaseFigure
from analysis.sweep_map import MapCell, ReductionMap, reduction_map

NAME = "reduction_map"

_TITLE = "What a graph saves, by model and prompt length"
_SUBTITLE = (
    "Reduction of the median latency against eager, in percent, without a profiler. Blue: less time; orange: "
    "more. Hatched: the 95 % interval includes zero. A dash: not judged."
)
_ROW_IN = 0.3
_AXIS_IN = 0.42
_LABEL_IN = 2.3
_CHARACTERS_PER_IN = 15.0
_FAINTEST = 0.06


def sweep_figure(data: ReportData) -> CaseFigure | None:
    """The heat map of a report with enough cases for one."""
    found = reduction_map(data)
    if found is None:
        return None
    rows = "; ".join(f"{row.label}: {', '.join(map(_text, row.cells))}" for row in found.rows)
    lengths = ", ".join(map(str, found.lengths))
    return CaseFigure(
        NAME,
        f"Reduction in percent for prompts of {lengths} tokens. {rows}.",
        " ".join([_SUBTITLE, *found.sentences()]),
        lambda width_in, heading: draw_reduction_map(found, width_in, heading),
    )


def draw_reduction_map(found: ReductionMap, width_in: float, heading: bool = True) -> Figure:
    """One rectangle a cell, coloured by its reduction; small models above, long prompts to the right."""
    with figure_parameters():
        body_in = _ROW_IN * len(found.rows) + _AXIS_IN
        figure, top_in = new_figure(width_in, body_in, _TITLE if heading else "", _SUBTITLE)
        label_in = min(_LABEL_IN, width_in * 0.42)
        axes = add_axes(figure, label_in, 0.14, top_in, _AXIS_IN)
        axes.set(xlim=(0, len(found.lengths)), ylim=(len(found.rows), 0), xlabel="prompt length, tokens")
        axes.set_xticks([place + 0.5 for place in range(len(found.lengths))], [str(n) for n in found.lengths])
        axes.set_yticks([])
        axes.tick_params(length=0)
        for name in ("left", "bottom"):
            axes.spines[name].set_visible(False)
        for number, row in enumerate(found.rows):
            label = shorten_middle(row.label, int((label_in - 0.2) * _CHARACTERS_PER_IN))
            margin_text(figure, axes, 1 - (number + 0.5) / len(found.rows), label, SMALL_POINTS, INK)
            for place, cell in enumerate(row.cells):
                _draw_cell(axes, place, number, cell)
        return figure


def _draw_cell(axes: Axes, column: int, row: int, cell: MapCell | None) -> None:
    corner, gap = (column + 0.02, row + 0.06), (0.96, 0.88)
    if cell is not None:
        colour = GRAPH if cell.percent >= 0 else EAGER
        strength = _FAINTEST + (0.6 - _FAINTEST) * min(abs(cell.percent) / 100, 1.0)
        axes.add_artist(Rectangle(corner, *gap, facecolor=colour, alpha=strength, linewidth=0))
        if not cell.sure:
            axes.add_artist(
                Rectangle(corner, *gap, fill=False, edgecolor=MUTED, alpha=0.5, hatch="////", linewidth=0)
            )
    colour = MUTED if cell is None else INK
    axes.text(
        column + 0.5, row + 0.5, _text(cell), ha="center", va="center", fontsize=SMALL_POINTS, color=colour
    )


def _text(cell: MapCell | None) -> str:
    return "–" if cell is None else f"{cell.percent:.1f}".replace("-", "−")
