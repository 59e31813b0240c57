"""The picture of a ledger: a request's time as steps from its start to its end, eager above its graph."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from analysis.figures_style import (
    BODY_POINTS,
    GRID,
    INK,
    MUTED,
    PAPER,
    SMALL_POINTS,
    WIDE_IN,
    add_axes,
    add_bar,
    figure_parameters,
    margin_text,
    new_figure,
    render_as,
    strategy_style,
)
from analysis.waterfall import Picture, Waterfall

_PARTS = ("head", "busy", "launch-bound gaps", "device gaps", "tail")
_GAPS = frozenset({"launch-bound gaps", "device gaps"})
_LEFT_IN, _RIGHT_IN, _AXIS_IN = 1.5, 1.45, 0.42
_ROW_IN, _NAME_IN, _BETWEEN_IN = 0.2, 0.28, 0.1
_FLOOR_IN = 0.14
_BAR = 0.72
_SUBTITLE = (
    "GPU's ledger of the request with the median range, as traced: not a latency · each bar begins where the "
    "one above it ends · filled: GPU busy{span} · hatched: gaps"
)
_SPAN = ", of a graph its replay span, pauses included"
_FLOOR = " · dashed line: the floor, the time to read the weights once"


def figure_bytes(picture: Picture, suffix: str) -> bytes:
    """The picture as .svg or .png; equal pictures give equal bytes."""
    return render_as(suffix, lambda: ledger_waterfall(picture))


def ledger_waterfall(picture: Picture, width_in: float = WIDE_IN) -> Figure:
    """One group of bars for each ledger on one axis of microseconds; the floor as a line through them."""
    groups = [_NAME_IN + _ROW_IN * len(_PARTS) + _BETWEEN_IN for _ in picture.waterfalls]
    height_in = sum(groups) + (_FLOOR_IN if picture.floor_us is not None else 0.0)
    spans = any(one.is_span for one in picture.waterfalls)
    subtitle = _SUBTITLE.format(span=_SPAN if spans else "")
    subtitle += _FLOOR if picture.floor_us is not None else ""
    with figure_parameters():
        figure, heading_in = new_figure(width_in, height_in + _AXIS_IN, picture.title, subtitle)
        axes = add_axes(figure, _LEFT_IN, _RIGHT_IN, heading_in, _AXIS_IN)
        axes.set_ylim(height_in, 0)
        ranges = [one.range_us for one in picture.waterfalls]
        axes.set_xlim(0, max([*ranges, picture.floor_us or 0.0]) or 1.0)
        for place, one in enumerate(picture.waterfalls):
            _draw(figure, axes, one, place, sum(groups[:place]), height_in)
        if picture.floor_us is not None:
            _draw_floor(axes, picture.floor_us)
        _finish(axes)
    return figure


def _draw(figure: Figure, axes: Axes, one: Waterfall, place: int, top_in: float, height_in: float) -> None:
    margin_text(figure, axes, 1 - (top_in + _NAME_IN / 2) / height_in, one.strategy, BODY_POINTS, INK, "bold")
    axes.annotate(
        _words(one),
        (1, top_in + _NAME_IN / 2),
        (6, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_POINTS,
        color=MUTED,
    )
    style = strategy_style(one.strategy, place)
    begin = 0.0
    for row, (part, value) in enumerate(zip(_PARTS, one.parts_us, strict=True)):
        middle = top_in + _NAME_IN + _ROW_IN * (row + 0.5)
        add_bar(axes, middle, value, _ROW_IN * _BAR, begin, **_look(part, style.colour))
        if row:
            # A thin line from the bar above, whose end is this one's beginning.
            axes.plot([begin] * 2, [middle - _ROW_IN * (1 - _BAR / 2), middle], color=MUTED, linewidth=0.5)
        name = one.busy_name if part == "busy" else part
        margin_text(figure, axes, 1 - middle / height_in, name, SMALL_POINTS, MUTED)
        share = value / one.range_us * 100 if one.range_us else 0.0
        axes.annotate(
            f"{value:,.1f} us · {share:.0f} %",
            (1, middle),
            (6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_POINTS,
            color=INK,
        )
        begin += value


def _words(one: Waterfall) -> str:
    """What a group's bars add up to."""
    return f"range {one.range_us:,.1f} us"


def _look(part: str, colour: str) -> dict[str, Any]:
    if part == "busy":
        return {"facecolor": colour, "edgecolor": colour, "linewidth": 0.6}
    if part in _GAPS:
        return {"facecolor": PAPER, "edgecolor": colour, "hatch": "/////", "linewidth": 0.8}
    return {"facecolor": GRID, "edgecolor": MUTED, "linewidth": 0.6}


def _draw_floor(axes: Axes, floor_us: float) -> None:
    axes.axvline(floor_us, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.annotate(
        f"floor {floor_us:,.1f} us",
        (floor_us, 0),
        _beside(axes, floor_us),
        textcoords="offset points",
        xycoords=("data", "axes fraction"),
        va="bottom",
        ha=_side(axes, floor_us),
        fontsize=SMALL_POINTS,
        color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
    )


def _side(axes: Axes, floor_us: float) -> str:
    return "right" if floor_us > 0.5 * axes.get_xlim()[1] else "left"


def _beside(axes: Axes, floor_us: float) -> tuple[float, float]:
    return (-4.0, 2.0) if _side(axes, floor_us) == "right" else (4.0, 2.0)


def _finish(axes: Axes) -> None:
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_xlabel("microseconds, part after part")
