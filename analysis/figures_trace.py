"""Pictures of what the traces showed: where a request's time went, its launches, and its kernels.

A duration taken under the profiler is labelled "as traced" and is never called a latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import blended_transform_factory

from analysis.figures_latency import format_ms
from analysis.figures_style import (
    BODY_POINTS,
    GRID,
    INK,
    MUTED,
    PAPER,
    SMALL_POINTS,
    WIDE_IN,
    StrategyStyle,
    add_axes,
    add_bar,
    figure_parameters,
    new_figure,
    shorten_middle,
    strategy_style,
)

KERNELS_ROW = "kernels executed on the GPU"
"""Label of the last group of `launches_by_api`."""

_SIDE_IN = 0.14
_AXIS_IN = 0.42
_SPLIT_ROW_IN = 0.82
_KEY_ENTRY_IN = 1.4
_BAR_IN = 0.17
_CHARACTERS_PER_IN = 12.4


@dataclass(frozen=True)
class TimeSplit:
    """Where one request's time went, in milliseconds per request.

    `latency_ms` is the unprofiled median; `gpu_busy_ms` comes from a node-mode trace. `launch_share_percent`
    is host time in launch calls in percent of the traced request that it was seen in: the profiler stretches
    both, so it is never laid against the latency. None where no trace shows them.
    """

    strategy: str
    latency_ms: float
    gpu_busy_ms: float | None
    launch_share_percent: float | None

    @property
    def gpu_idle_ms(self) -> float | None:
        """Latency minus busy time: negative where the profiler stretched the GPU work beyond the latency."""
        return None if self.gpu_busy_ms is None else self.latency_ms - self.gpu_busy_ms


@dataclass(frozen=True)
class KernelPair:
    """One kernel's calls and GPU microseconds per request, eager against a graph."""

    name: str
    eager_us: float
    graph_us: float
    eager_calls: float
    graph_calls: float


def where_time_went(splits: Sequence[TimeSplit], title: str, width_in: float = WIDE_IN) -> Figure:
    """One bar per strategy, as long as its unprofiled median latency: GPU busy, then GPU idle.

    Host time inside launch calls is told in words, as a share of the traced request.
    """
    subtitle = (
        "bar: median latency without a profiler · filled: GPU busy, union of kernels, copies and fills as "
        "traced in node mode · hatched: GPU idle (the rest)"
    )
    with figure_parameters():
        figure, heading_in = new_figure(width_in, _SPLIT_ROW_IN * len(splits) + _AXIS_IN, title, subtitle)
        axes = add_axes(figure, _SIDE_IN, _SIDE_IN + 0.08, heading_in, _AXIS_IN)
        axes.set_ylim(len(splits), 0)
        longest = max(max(split.latency_ms, split.gpu_busy_ms or 0) for split in splits)
        axes.set_xlim(0, longest * 1.02)
        for row, split in enumerate(splits):
            _draw_split(figure, axes, row, split, strategy_style(split.strategy, row))
        _finish_bars(axes, "milliseconds per request")
    return figure


def launches_by_api(
    calls: Mapping[str, Mapping[str, float]],
    kernels: Mapping[str, float | None],
    title: str,
    width_in: float = WIDE_IN,
) -> Figure:
    """Grouped bars of calls per request: strategy -> API -> calls, then the kernels that ran on the GPU.

    `kernels` maps each strategy to its kernels per request, None where no trace shows them.
    """
    apis = sorted(
        {api for by_api in calls.values() for api in by_api}, key=lambda api: (-_most(calls, api), api)
    )
    groups = [(api, {name: by_api[api] for name, by_api in calls.items() if by_api.get(api)}) for api in apis]
    groups.append((KERNELS_ROW, {name: count for name, count in kernels.items() if count is not None}))
    subtitle = "calls per request by host API (no bar: no such call), then the kernels that those calls ran"
    return _grouped_bars(groups, "{:g}", title, subtitle, "per request", width_in)


def top_kernels(
    pairs: Sequence[KernelPair], graph_strategy: str, title: str, width_in: float = WIDE_IN
) -> Figure:
    """Paired bars of GPU microseconds per request by kernel name, eager against one graph strategy."""
    groups = []
    for pair in pairs:
        calls = f"{pair.eager_calls:g} → {pair.graph_calls:g} calls"
        name = shorten_middle(pair.name, max(16, int(width_in * _CHARACTERS_PER_IN * 0.9) - len(calls) - 3))
        groups.append((f"{name}   {calls}", {"eager": pair.eager_us, graph_strategy: pair.graph_us}))
    subtitle = f"GPU time per request by kernel, eager → {graph_strategy}, node-mode traces; not a latency"
    return _grouped_bars(groups, "{:.1f}", title, subtitle, "microseconds per request, as traced", width_in)


def _most(calls: Mapping[str, Mapping[str, float]], api: str) -> float:
    return max(by_api.get(api, 0.0) for by_api in calls.values())


def _draw_split(figure: Figure, axes: Axes, row: int, split: TimeSplit, style: StrategyStyle) -> None:
    height = _BAR_IN / _SPLIT_ROW_IN
    y = row + 0.36
    _row_text(
        figure, axes, row + 0.16, split.strategy, f"{format_ms(split.latency_ms)}: {_split_words(split)}"
    )
    if split.launch_share_percent is not None:
        place = blended_transform_factory(axes.transAxes, axes.transData)
        words = f"as traced, launch calls take {split.launch_share_percent:.0f} % of the request"
        axes.text(0, row + 0.72, words, fontsize=SMALL_POINTS, color=MUTED, transform=place, va="center")
    if split.gpu_busy_ms is None or split.gpu_idle_ms is None:
        add_bar(
            axes, y + height / 2, split.latency_ms, height, facecolor=GRID, edgecolor=MUTED, linewidth=0.6
        )
        return
    add_bar(axes, y + height / 2, split.gpu_busy_ms, height, facecolor=style.colour)
    if split.gpu_idle_ms > 0:
        look: dict[str, Any] = {
            "facecolor": PAPER,
            "edgecolor": style.colour,
            "hatch": "/////",
            "linewidth": 0.8,
        }
        add_bar(axes, y + height / 2, split.gpu_idle_ms, height, split.gpu_busy_ms, **look)
    else:
        axes.plot([split.latency_ms] * 2, [y - 0.04, y + height + 0.04], color=INK, linewidth=1.6)


def _split_words(split: TimeSplit) -> str:
    if split.gpu_busy_ms is None or split.gpu_idle_ms is None:
        return "not traced, so not split"
    share = split.gpu_busy_ms / split.latency_ms * 100
    words = f"GPU busy {format_ms(split.gpu_busy_ms)} ({share:.0f} %)"
    return f"{words}, by tracing" if split.gpu_idle_ms < 0 else words


def _row_text(figure: Figure, axes: Axes, y: float, name: str, words: str) -> None:
    """A bold name and what is to be said about it, above the row's bars, cut to the figure's width."""
    place = blended_transform_factory(axes.transAxes, axes.transData)
    width_in = figure.get_figwidth()
    name = shorten_middle(name, int(width_in * _CHARACTERS_PER_IN * 0.6))
    ground = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    look: dict[str, Any] = {"transform": place, "va": "center", "bbox": ground}
    axes.text(0, y, name, fontsize=BODY_POINTS, fontweight="bold", color=INK, **look)
    left_in = len(name) * 0.09 + 0.1
    words = shorten_middle(words, int((width_in - left_in) * _CHARACTERS_PER_IN * 1.2))
    x = left_in / (width_in - 2 * _SIDE_IN)
    axes.text(x, y, words, fontsize=SMALL_POINTS, color=MUTED, **look)


def _grouped_bars(
    groups: Sequence[tuple[str, Mapping[str, float]]],
    number: str,
    title: str,
    subtitle: str,
    x_label: str,
    width_in: float,
) -> Figure:
    """Horizontal bars in groups; each group has its name on a line above one bar per strategy."""
    bar_in, name_in = 0.15, 0.3
    heights = [name_in + bar_in * len(values) for _, values in groups]
    strategies = list(dict.fromkeys(name for _, values in groups for name in values))
    with figure_parameters():
        per_line = max(1, int(width_in / _KEY_ENTRY_IN))
        key_in = 0.3 + 0.17 * ((len(strategies) - 1) // per_line)
        figure, heading_in = new_figure(width_in, sum(heights) + _AXIS_IN + key_in, title, subtitle)
        axes = add_axes(figure, _SIDE_IN, _SIDE_IN + 0.5, heading_in + key_in, _AXIS_IN)
        axes.set_ylim(sum(heights), 0)
        axes.set_xlim(
            0, max([value for _, values in groups for value in values.values()], default=1) * 1.02 or 1
        )
        y = 0.0
        for (name, values), height in zip(groups, heights, strict=True):
            cut = shorten_middle(name, int(width_in * _CHARACTERS_PER_IN))
            axes.text(0, y + name_in * 0.62, cut, va="center", fontsize=SMALL_POINTS, color=INK)
            for position, (strategy, value) in enumerate(values.items()):
                centre = y + name_in + bar_in * (position + 0.5)
                _draw_bar(
                    axes, centre, bar_in, value, number, strategy_style(strategy, strategies.index(strategy))
                )
            y += height
        _key(axes, strategies, per_line)
        _finish_bars(axes, x_label)
    return figure


def _draw_bar(
    axes: Axes, centre: float, height: float, value: float, number: str, style: StrategyStyle
) -> None:
    look: dict[str, Any] = {
        "facecolor": style.colour,
        "edgecolor": PAPER,
        "hatch": style.hatch,
        "linewidth": 0,
    }
    add_bar(axes, centre, value, height * 0.78, **look)
    text = number.format(value)
    points = SMALL_POINTS - 0.5
    axes.annotate(
        text,
        (value, centre),
        (4, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=points,
        color=MUTED,
    )


def _key(axes: Axes, strategies: Sequence[str], per_line: int) -> None:
    """A key of the strategies above the bars, on one line if it fits."""
    handles = []
    for position, name in enumerate(strategies):
        style = strategy_style(name, position)
        look: dict[str, Any] = {"facecolor": style.colour, "edgecolor": PAPER, "hatch": style.hatch}
        handles.append(Rectangle((0, 0), 0, 0, label=name, **look))
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=max(1, min(len(handles), per_line)),
        frameon=False,
        fontsize=SMALL_POINTS,
        borderaxespad=0.1,
        borderpad=0.1,
        handlelength=1.4,
        handleheight=0.8,
        columnspacing=1.4,
    )


def _finish_bars(axes: Axes, x_label: str) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_xlabel(x_label)
