"""How every figure looks, and how a figure becomes bytes that are the same on every run.

Strategies differ by hatch, line style and marker as well as by colour, so that a greyscale print stays
readable. The few colours are named in `THEME_COLOURS`: the HTML report swaps them for the reader's theme.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import blended_transform_factory

from analysis.figures_png import OutlineCanvas
from contract import Strategy

INK = "#1c2127"
MUTED = "#5c6773"
GRID = "#e2e6ea"
PAPER = "#ffffff"
EAGER = "#d9822b"
GRAPH = "#17548f"
PADDED = "#7b8a97"
OTHER = ("#2a8c74", "#a23b72", "#8a6d1d")

THEME_COLOURS = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    EAGER: "eager",
    GRAPH: "graph",
    PADDED: "padded",
    OTHER[0]: "other-1",
    OTHER[1]: "other-2",
    OTHER[2]: "other-3",
}
"""Every colour a figure may use, and the name of the CSS variable that stands for it in the HTML report."""

TITLE_POINTS = 12.0
BODY_POINTS = 9.0
SMALL_POINTS = 8.0
WIDE_IN = 8.4
"""Width of the figures written as files, in inches. Text keeps its size when a figure is drawn narrower."""

_PACKING = {"compress_level": 3}
"""Of PNG: half the time of the usual 6 for files that are an eighth larger."""

_PARAMETERS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": BODY_POINTS,
    "svg.fonttype": "path",
    "svg.hashsalt": "launchgap",
    "hatch.linewidth": 0.7,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL_POINTS,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL_POINTS,
    "ytick.labelsize": SMALL_POINTS,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
}


@dataclass(frozen=True)
class StrategyStyle:
    """What tells one strategy from another, with and without colour."""

    colour: str
    hatch: str
    line: str
    marker: str


_STYLES = {
    "eager": StrategyStyle(EAGER, "////", "-", "o"),
    "graph": StrategyStyle(GRAPH, "", "--", "s"),
    "graph_padded": StrategyStyle(PADDED, "xxx", "-.", "^"),
}
_SPARE_STYLES = (
    StrategyStyle(OTHER[0], "\\\\\\\\", ":", "D"),
    StrategyStyle(OTHER[1], "xxxx", "--", "v"),
    StrategyStyle(OTHER[2], "----", ":", "P"),
    StrategyStyle(OTHER[0], "||||", "-", "<"),
    StrategyStyle(OTHER[1], "....", "-.", ">"),
    StrategyStyle(OTHER[2], "++++", "--", "X"),
    StrategyStyle(OTHER[0], "oo", "-.", "p"),
    StrategyStyle(OTHER[1], "////", "-", "h"),
    StrategyStyle(OTHER[2], "", "-.", "*"),
)
_STYLES |= {
    name.value: style
    for name, style in zip([one for one in Strategy if one.value not in _STYLES], _SPARE_STYLES, strict=False)
}


def strategy_style(strategy: str, position: int = 0) -> StrategyStyle:
    """Style of a strategy; one that has no style of its own takes a spare one by its position."""
    return _STYLES.get(strategy) or _SPARE_STYLES[position % len(_SPARE_STYLES)]


@contextmanager
def figure_parameters() -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's matplotlibrc says; undone on leaving."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_PARAMETERS)
        yield


def new_figure(width_in: float, body_in: float, title: str, subtitle: str) -> tuple[Figure, float]:
    """A figure with a left-aligned heading above a body of the given height; an empty title means no heading.

    Returns:
        The figure, and the height that the heading took, in inches.
    """
    if not title:
        return Figure(figsize=(width_in, body_in + 0.06)), 0.06
    title_lines = textwrap.wrap(title, max(20, int(width_in * 9.2)))
    subtitle_lines = textwrap.wrap(subtitle, max(24, int(width_in * 14.2)))
    heading_in = 0.16 + 0.22 * len(title_lines) + 0.155 * len(subtitle_lines) + 0.12
    height_in = heading_in + body_in
    figure = Figure(figsize=(width_in, height_in))
    x = 0.14 / width_in
    y = 1 - 0.14 / height_in
    figure.text(x, y, "\n".join(title_lines), va="top", fontsize=TITLE_POINTS, fontweight="bold")
    y -= 0.22 * len(title_lines) / height_in
    text = "\n".join(subtitle_lines)
    figure.text(x, y, text, va="top", fontsize=SMALL_POINTS, color=MUTED, linespacing=1.25)
    return figure, heading_in


def add_axes(figure: Figure, left_in: float, right_in: float, top_in: float, bottom_in: float) -> Axes:
    """Axes placed by their distances from the figure's edges, all in inches, so that text never collides."""
    width_in, height_in = figure.get_size_inches()
    rectangle = (
        left_in / width_in,
        bottom_in / height_in,
        (width_in - left_in - right_in) / width_in,
        (height_in - top_in - bottom_in) / height_in,
    )
    return figure.add_axes(rectangle)


def add_bar(
    axes: Axes,
    middle: float,
    length: float,
    height: float,
    begin: float = 0.0,
    **look: Any,  # noqa: ANN401 - whatever matplotlib's Rectangle takes
) -> None:
    """A horizontal bar in data units on axes whose limits are set; `barh` works them out again each time."""
    axes.add_artist(Rectangle((begin, middle - height / 2), length, height, **look))


def margin_text(
    figure: Figure, axes: Axes, y: float, text: str, points: float, colour: str, weight: str = "normal"
) -> None:
    """Text at the figure's left margin beside the axes, at a height where 0 is their foot and 1 their top."""
    place = blended_transform_factory(figure.transFigure, axes.transAxes)
    x = 0.14 / figure.get_figwidth()
    axes.text(x, y, text, transform=place, va="center", fontsize=points, fontweight=weight, color=colour)


def shorten_middle(text: str, characters: int) -> str:
    """The text with its middle replaced by an ellipsis when it is longer than `characters`."""
    if len(text) <= characters:
        return text
    head = (characters - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (characters - 1 - head) :]}"


def render_svg(figure: Figure, text_as_outlines: bool = True) -> bytes:
    """The figure as SVG: no date, fixed identifiers, so equal figures give equal bytes.

    Text becomes outlines, which look the same everywhere, or stays text, which is smaller and selectable.
    """
    fonttype = "path" if text_as_outlines else "none"
    buffer = io.BytesIO()
    with figure_parameters(), mpl.rc_context({"svg.fonttype": fonttype}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "launchgap"}, dpi=72)
    return buffer.getvalue()


def render_png(figure: Figure, dpi: int = 144) -> bytes:
    """The figure as PNG at `dpi` dots per inch, without the version of the software that drew it."""
    buffer, kept = io.BytesIO(), figure.canvas
    with figure_parameters():
        OutlineCanvas(figure).print_figure(
            buffer, format="png", dpi=dpi, metadata={"Software": None}, pil_kwargs=_PACKING
        )
    figure.set_canvas(kept)
    return buffer.getvalue()


def render_as(suffix: str, draw: Callable[[], Figure]) -> bytes:
    """What `draw` gives as .svg or .png, for figures with names from foreign traces."""
    with warnings.catch_warnings():
        # A name that no font has letters for is drawn as boxes, which says it well enough.
        warnings.filterwarnings("ignore", message="Glyph")
        figure = draw()
        return render_png(figure) if suffix == ".png" else render_svg(figure)
