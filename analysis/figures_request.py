"""Pictures of one request: its timeline, and its kernels by name."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter
from matplotlib.transforms import blended_transform_factory

from analysis.figures_style import (
    EAGER,
    GRAPH,
    GRID,
    INK,
    MUTED,
    OTHER,
    PADDED,
    PAPER,
    SMALL_POINTS,
    WIDE_IN,
    add_axes,
    add_bar,
    figure_parameters,
    margin_text,
    new_figure,
    shorten_middle,
)
from analysis.request_picture import Look, RequestPicture, Row

_LEFT_IN, _RIGHT_IN, _AXIS_IN, _ROW_IN, _KEY_IN = 1.7, 0.3, 0.42, 0.36, 0.34
_BAR = 0.74
_KERNEL_ROW_IN, _KERNEL_LEFT_IN, _KERNEL_RIGHT_IN = 0.23, 3.9, 1.3
_NAME_CHARACTERS = 26
_KERNEL_CHARACTERS = 54
_HAIRLINE = 0.4
"""Edge of a bar in points: a microsecond of ten thousand would not be seen without one."""


def _look(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "edgecolor": colour, "linewidth": _HAIRLINE}


_LOOKS: dict[Look, dict[str, Any]] = {
    Look.LAUNCHES: _look(EAGER),
    Look.WAITS: _look(OTHER[1]),
    Look.OTHER_CALLS: _look(PADDED),
    Look.KERNELS: _look(GRAPH),
    Look.COPIES: _look(OTHER[0]),
    Look.REPLAYS: {"facecolor": PAPER, "edgecolor": GRAPH, "hatch": "....", "linewidth": 0.8},
    Look.GAPS: {"facecolor": GRID, "edgecolor": MUTED, "linewidth": 0.3},
}


def request_timeline(
    picture: RequestPicture, between_us: tuple[float, float] | None = None, width_in: float = WIDE_IN
) -> Figure:
    """One line for the host, one for each stream and one for the gaps, in microseconds of the request.

    With `between_us` only this part of the request, from and to.
    """
    with figure_parameters():
        body_in = _KEY_IN + _ROW_IN * len(picture.rows) + _AXIS_IN
        figure, heading_in = new_figure(width_in, body_in, picture.title, _subtitle(picture))
        axes = add_axes(figure, _LEFT_IN, _RIGHT_IN, heading_in + _KEY_IN, _AXIS_IN)
        axes.set_ylim(len(picture.rows), 0)
        axes.set_xlim(between_us or (0, picture.end_us or 1.0))
        for place, row in enumerate(picture.rows):
            _draw_row(figure, axes, row, place, len(picture.rows))
        if picture.end_us > picture.range_us:
            axes.axvline(picture.range_us, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
        _key(figure, axes, picture)
        _finish(axes, "microseconds since the request began, as traced")
    return figure


def kernel_bars(kernels: pd.DataFrame, title: str, top: int = 12, width_in: float = WIDE_IN) -> Figure:
    """GPU time by kernel, most first, from the rows of `analysis.tables.kernels_table`.

    At most `top` bars; one more holds the kernels that are left. Without rows the figure says why.
    """
    rows = [
        (str(row["kernel"]), float(row["total_us_per_request"]), float(row["calls_per_request"]))
        for row in kernels.to_dict("records")
    ]
    bars, left = rows[:top], rows[top:]
    if left:
        name = f"({len(left)} other kernels)"
        bars = [*bars, (name, sum(row[1] for row in left), sum(row[2] for row in left))]
    subtitle = "GPU time per request by kernel, as traced · calls per request"
    if not bars:
        subtitle = (
            "no kernel is to be seen: none ran, or the trace shows graph replays as a whole (graph mode)"
        )
    with figure_parameters():
        figure, heading_in = new_figure(
            width_in, _KERNEL_ROW_IN * max(len(bars), 1) + _AXIS_IN, title, subtitle
        )
        axes = add_axes(figure, _KERNEL_LEFT_IN, _KERNEL_RIGHT_IN, heading_in, _AXIS_IN)
        axes.set_ylim(max(len(bars), 1), 0)
        axes.set_xlim(0, max((row[1] for row in bars), default=1.0) or 1.0)
        for place, (name, total_us, calls) in enumerate(bars):
            middle = place + 0.5
            short = shorten_middle(name, _KERNEL_CHARACTERS)
            margin_text(figure, axes, 1 - middle / len(bars), short, SMALL_POINTS, INK)
            add_bar(axes, middle, total_us, _BAR, facecolor=GRID if place == top else GRAPH)
            _beside(axes, middle, f"{total_us:,.1f} us · {calls:,g} ×")
        _finish(axes, "microseconds per request")
    return figure


def _subtitle(picture: RequestPicture) -> str:
    more = f" · {picture.hidden_streams} more streams are not drawn" if picture.hidden_streams else ""
    late = " · dashed line: the range ends, its work goes on" if picture.end_us > picture.range_us else ""
    told = f"range {picture.range_us:,.1f} us, as traced: not a latency · bars are at least a hairline wide"
    return f"{told}{late}{more}"


def _draw_row(figure: Figure, axes: Axes, row: Row, place: int, rows: int) -> None:
    name = shorten_middle(row.name, _NAME_CHARACTERS)
    margin_text(figure, axes, 1 - (place + 0.5) / rows, name, SMALL_POINTS, INK)
    for bars in row.bars:
        spans = list(zip(bars.begin_us, bars.length_us, strict=True))
        if spans:
            axes.broken_barh(spans, (place + (1 - _BAR) / 2, _BAR), **_LOOKS[bars.look])


def _key(figure: Figure, axes: Axes, picture: RequestPicture) -> None:
    """A key of what is there, above the bars, from the left margin."""
    there = dict.fromkeys(bars.look for row in picture.rows for bars in row.bars if bars.begin_us)
    handles = [Patch(label=str(look), **_LOOKS[look]) for look in _LOOKS if look in there]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.1 / figure.get_figwidth(), 1),
        bbox_transform=blended_transform_factory(figure.transFigure, axes.transAxes),
        ncols=max(1, len(handles)),
        frameon=False,
        fontsize=SMALL_POINTS,
        borderaxespad=0.1,
        handlelength=1.2,
        handleheight=0.8,
        columnspacing=1.2,
    )


def _beside(axes: Axes, middle: float, text: str) -> None:
    axes.annotate(
        text,
        (1, middle),
        (6, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_POINTS,
        color=MUTED,
    )


def _finish(axes: Axes, x_label: str) -> None:
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x_label)
