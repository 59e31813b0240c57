"""The picture of a model's layers: GPU time and launches of a request by layer, eager above its graph."""

from __future__ import annotations

import re
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from analysis.figures_style import (
    BODY_POINTS,
    EAGER,
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
    shorten_middle,
    strategy_style,
)
from analysis.layers import OUTSIDE
from analysis.layers_picture import LayersPicture

_LEFT_IN, _RIGHT_IN, _AXIS_IN, _ROW_IN, _TOP_IN = 0.75, 1.2, 0.5, 0.66, 0.06
_BAR = 0.78
_LABEL_POINTS = 7.0
_LETTER_IN = 0.066
"""Width of a letter of a label, rather too wide than too narrow."""
_LINE_IN = 0.12
_BLOCK = re.compile(r"(.+)\.(\d+)")
_LABELS_AT_MOST = 18
_AXES = (("gpu_us", "GPU time per request, microseconds", "us"), ("launches", "launches per request", ""))


def figure_bytes(picture: LayersPicture, suffix: str) -> bytes:
    """The picture as .svg or .png; equal pictures give equal bytes."""
    return render_as(suffix, lambda: layers_figure(picture))


def layers_figure(picture: LayersPicture, width_in: float = WIDE_IN) -> Figure:
    """Two axes, of time and of launches; on each a bar for each strategy, cut into its layers."""
    panel_in = _TOP_IN + _ROW_IN * len(picture.stacks) + _AXIS_IN
    with figure_parameters():
        figure, heading_in = new_figure(width_in, panel_in * len(_AXES), picture.title, _subtitle(picture))
        for place, (quantity, words, unit) in enumerate(_AXES):
            top_in = heading_in + panel_in * place + _TOP_IN
            below_in = panel_in * (len(_AXES) - place - 1) + _AXIS_IN
            axes = add_axes(figure, _LEFT_IN, _RIGHT_IN, top_in, below_in)
            stacks = [(one.strategy, getattr(one, quantity)) for one in picture.stacks]
            axes.set_ylim(len(stacks), 0)
            axes.set_xlim(0, max(sum(values) for _, values in stacks) or 1.0)
            letters = axes.get_position().width * width_in / axes.get_xlim()[1] / _LETTER_IN
            for row, (strategy, values) in enumerate(stacks):
                middle = row + 0.5
                margin_text(figure, axes, 1 - middle / len(stacks), strategy, BODY_POINTS, INK, weight="bold")
                _stack(axes, middle, picture.layers, values, (strategy_style(strategy, row).colour, letters))
                _total(axes, middle, f"{sum(values):,.1f} {unit}".strip())
            _finish(axes, words)
    return figure


def _subtitle(picture: LayersPicture) -> str:
    blocks = dict.fromkeys(found[1] for name in picture.layers if (found := _BLOCK.fullmatch(name)))
    numbers = ", ".join(blocks)
    return (
        "Mean request by layer, in the order in which layers run · as traced with a range for every module: "
        "not a latency · grey: work outside modules"
        + (f" · numbers: {numbers}.N" if blocks else "")
        + " · a replay is one launch"
    )


def _stack(
    axes: Axes, middle: float, layers: tuple[str, ...], values: tuple[float, ...], look: tuple[str, float]
) -> None:
    """One bar; `look` is its colour, and the letters that fit into one unit of the axis."""
    colour, letters = look
    begin, drawn = 0.0, 0
    for layer, value in zip(layers, values, strict=True):
        if value > 0:
            style, ink = _style(layer, drawn, colour)
            drawn += 1
            add_bar(axes, middle, value, _BAR, begin, linewidth=0.6, **style)
            _name(axes, begin + value / 2, middle, _label(layer), (ink, value * letters))
        begin += value


def _name(axes: Axes, x: float, y: float, label: str, room: tuple[str, float]) -> None:
    """The name of a segment, along or across it, if `room` permits: its colour, and how many letters fit."""
    ink, letters = room
    along = len(label) + 0.6 <= letters
    across = letters * _LETTER_IN >= _LINE_IN and len(label) * _LETTER_IN <= _ROW_IN * _BAR
    if along or across:
        turn = 0 if along else 90
        axes.text(x, y, label, ha="center", va="center", fontsize=_LABEL_POINTS, color=ink, rotation=turn)


def _style(layer: str, place: int, colour: str) -> tuple[dict[str, Any], str]:
    """Neighbours are told apart by turns of filled and hollow."""
    if layer == OUTSIDE:
        return {"facecolor": GRID, "edgecolor": MUTED}, INK
    if place % 2:
        return {"facecolor": PAPER, "edgecolor": colour}, INK
    return {"facecolor": colour, "edgecolor": colour}, INK if colour == EAGER else PAPER


def _label(layer: str) -> str:
    """The number of a block; of any other layer the last part of its path."""
    block = _BLOCK.fullmatch(layer)
    if block:
        return block[2]
    parts = layer.strip("()").split(".")
    last = parts[-2:] if parts[-1] == "*" else parts[-1:]
    return shorten_middle(".".join(last), _LABELS_AT_MOST)


def _total(axes: Axes, middle: float, words: str) -> None:
    axes.annotate(
        words,
        (1, middle),
        (6, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_POINTS,
        color=INK,
    )


def _finish(axes: Axes, words: str) -> None:
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(words)
