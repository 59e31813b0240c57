"""The picture of one latency record: every request of every strategy, as histograms and ECDFs on one axis."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from analysis.case_words import request_words
from analysis.figures_style import (
    BODY_POINTS,
    GRID,
    INK,
    MUTED,
    SMALL_POINTS,
    WIDE_IN,
    StrategyStyle,
    add_axes,
    figure_parameters,
    margin_text,
    new_figure,
    shorten_middle,
    strategy_style,
)
from contract import LatencyRecord, Strategy

SIMULATION_NOTE = "simulation on the CPU: no speed-up is to be expected"
LOG_SCALE_RATIO = 8.0
"""Medians further apart than this go on a logarithmic axis."""

_ZOOM_RATIO = 1.25
_BINS, _ZOOMED_BINS = 96, 44
_NAME_CHARACTERS = 16
_LEFT_IN, _RIGHT_IN, _BOTTOM_IN = 1.58, 0.24, 0.58
_ROW_IN, _ROW_GAP_IN, _BETWEEN_IN, _ECDF_IN = 0.88, 0.2, 0.24, 1.35


@dataclass(frozen=True)
class _Series:
    """One strategy's latencies in milliseconds, sorted, with its looks."""

    name: str
    times_ms: NDArray[np.float64]
    median_ms: float
    style: StrategyStyle


def latency_comparison(record: LatencyRecord, width_in: float = WIDE_IN, heading: bool = True) -> Figure:
    """Draw the forward latency (`event_ms`) of each strategy that succeeded, `width_in` inches wide.

    One histogram per strategy, all with the same bins, above the ECDFs on the same millisecond axis; medians
    are marked and named. Far outliers may lie beyond the axis: their row then says how many and how far. The
    heading, if wanted, says what was measured and which strategy failed.
    """
    series = _series(record)
    rows_in = _ROW_IN * max(1, len(series))
    body_in = rows_in + _BETWEEN_IN + _ECDF_IN + _BOTTOM_IN
    with figure_parameters():
        figure, heading_in = new_figure(
            width_in, body_in, case_title(record) if heading else "", _subtitle(record)
        )
        if not series:
            _say_nothing_measured(figure)
            return figure
        edges, logarithmic = _bin_edges([one.times_ms for one in series])
        below_in = _BOTTOM_IN + _ECDF_IN + _BETWEEN_IN
        axes = add_axes(figure, _LEFT_IN, _RIGHT_IN, heading_in + rows_in + _BETWEEN_IN, _BOTTOM_IN)
        _set_x_axis(axes, edges, logarithmic)
        _draw_ecdfs(figure, axes, series, edges)
        lines_ms = [place for place in axes.get_xticks() if edges[0] <= place <= edges[-1]]
        for position, one in enumerate(series):
            top_in = heading_in + _ROW_IN * position + _ROW_GAP_IN
            bottom_in = below_in + _ROW_IN * (len(series) - 1 - position)
            axes = add_axes(figure, _LEFT_IN, _RIGHT_IN, top_in, bottom_in)
            _set_row_axis(axes, edges, logarithmic, lines_ms)
            _draw_histogram(axes, one, edges)
            _name_row(figure, axes, one, None if record["simulated"] else _baseline_ms(series))
    return figure


def case_title(record: LatencyRecord) -> str:
    """Model, dtype and prompt length of a record, in one line."""
    case = record["case"]
    return f"{case['model']} · {case['dtype']} · {request_words(case)}"


def device_name(record: Mapping[str, Any]) -> str:
    """Name of the GPU that a record was made on, or of the CPU in a simulation."""
    environment = record["environment"]
    if record["simulated"]:
        return SIMULATION_NOTE
    gpu = environment.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else gpu
    return str(name or environment.get("gpu_name") or "unnamed GPU")


def format_ms(milliseconds: float) -> str:
    """A time with three significant digits, plain decimals, and its unit."""
    if milliseconds >= 100:
        return f"{milliseconds:.0f} ms"
    if milliseconds >= 10:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds:.2f} ms" if milliseconds >= 1 else f"{milliseconds:.3f} ms"


def _series(record: LatencyRecord) -> list[_Series]:
    found = []
    for position, (name, fields) in enumerate(record["strategies"].items()):
        if fields["status"] == "ok" and fields["event_ms"]:
            times_ms = np.sort(np.asarray(fields["event_ms"], dtype=np.float64))
            found.append(_Series(name, times_ms, median(fields["event_ms"]), strategy_style(name, position)))
    return found


def _subtitle(record: LatencyRecord) -> str:
    measured = {
        len(fields["event_ms"]) for fields in record["strategies"].values() if fields["status"] == "ok"
    }
    runs = "" if not measured else f", {'/'.join(map(str, sorted(measured)))} requests each"
    clock = "wall clock" if record["simulated"] else "CUDA events, no profiler"
    text = f"{device_name(record)} · time of one forward pass by {clock}{runs}"
    failed = [name for name, fields in record["strategies"].items() if fields["status"] != "ok"]
    return text + (f" · failed: {', '.join(failed)}" if failed else "")


def _bin_edges(samples: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], bool]:
    """Shared bin edges in ms over the axis to be drawn, and whether that axis is logarithmic."""
    medians = [float(np.median(times_ms)) for times_ms in samples]
    low, high = (
        min(float(times_ms[0]) for times_ms in samples),
        max(float(times_ms[-1]) for times_ms in samples),
    )
    p95 = max(float(np.quantile(times_ms, 0.95)) for times_ms in samples)
    # One request in a hundred may take ten times as long; it must not squeeze the others into one bin.
    zoomed = max(medians) < _ZOOM_RATIO * min(medians)
    high = min(high, 2 * p95 - low if zoomed else 1.5 * p95)
    if low > 0 and max(medians) / min(medians) > LOG_SCALE_RATIO:
        return np.geomspace(low / 1.35, high * 1.35, _BINS + 1), True
    if not zoomed:
        return np.linspace(0.0, high * 1.04, _BINS + 1), False
    margin = 0.06 * (high - low) or 0.05 * high or 1.0
    return np.linspace(max(0.0, low - margin), high + margin, _ZOOMED_BINS + 1), False


def _baseline_ms(series: Sequence[_Series]) -> float | None:
    return next((one.median_ms for one in series if one.name == Strategy.EAGER), None)


def _draw_histogram(axes: Axes, one: _Series, edges: NDArray[np.float64]) -> None:
    counts, _ = np.histogram(one.times_ms, edges)
    # Each row has its own height: a replay's spike would flatten the baseline's spread.
    top = max(1, int(counts.max())) * 1.12
    colour, hatch = one.style.colour, one.style.hatch or None
    # Not by `axes.stairs`, which works out limits that are set below.
    axes.add_artist(StepPatch(counts, edges, fill=True, facecolor=colour, alpha=0.32, linewidth=0))
    axes.add_artist(StepPatch(counts, edges, fill=False, edgecolor=colour, linewidth=1.1, hatch=hatch))
    axes.plot([one.median_ms] * 2, [0, top], color=INK, linewidth=1.0)
    axes.plot(
        one.median_ms, top, marker=one.style.marker, color=one.style.colour, markersize=6, clip_on=False
    )
    axes.set_ylim(0, top)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    beyond = one.times_ms[one.times_ms > edges[-1]]
    if beyond.size:
        text = f"{beyond.size} beyond, up to {format_ms(float(beyond[-1]))} →"
        median_at = axes.transLimits.transform(axes.transScale.transform((one.median_ms, 0)))[0]
        x, side = (0.0, "left") if median_at > 0.5 else (1.0, "right")
        axes.text(x, 1.02, text, transform=axes.transAxes, ha=side, fontsize=SMALL_POINTS, color=MUTED)


def _name_row(figure: Figure, axes: Axes, one: _Series, baseline_ms: float | None) -> None:
    """The strategy's name, its median and what that means against eager, in the left margin."""
    margin_text(figure, axes, 0.74, shorten_middle(one.name, _NAME_CHARACTERS), BODY_POINTS, INK, "bold")
    margin_text(figure, axes, 0.44, format_ms(one.median_ms), BODY_POINTS, INK)
    if baseline_ms is not None and one.name != Strategy.EAGER:
        percent = (one.median_ms - baseline_ms) / baseline_ms * 100
        words = f"{abs(percent):.0f} % {'slower' if percent > 0 else 'less time'}"
        margin_text(figure, axes, 0.16, words, SMALL_POINTS, MUTED)


def _draw_ecdfs(figure: Figure, axes: Axes, series: Sequence[_Series], edges: NDArray[np.float64]) -> None:
    for one in series:
        share = np.arange(1, one.times_ms.size + 1) / one.times_ms.size
        x = np.concatenate([[edges[0]], one.times_ms, [max(edges[-1], one.times_ms[-1])]])
        y = np.concatenate([[0.0], share, [1.0]])
        axes.step(x, y, where="post", color=one.style.colour, linestyle=one.style.line, linewidth=1.4)
        axes.plot(one.median_ms, 0.5, marker=one.style.marker, color=one.style.colour, markersize=6)
    axes.set_ylim(0, 1.04)
    axes.set_yticks([0, 0.5, 0.95], ["0 %", "50 %", "95 %"])
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    label = "milliseconds per forward pass; marks are medians; each histogram has a height of its own"
    characters = int((figure.get_figwidth() - _LEFT_IN) * 15)
    axes.set_xlabel("\n".join(textwrap.wrap(label, characters)))
    margin_text(figure, axes, 0.72, "share of\nrequests\ndone by", SMALL_POINTS, MUTED)


def _set_x_axis(axes: Axes, edges: NDArray[np.float64], logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(axis="x", color=GRID, linewidth=0.6)


def _set_row_axis(
    axes: Axes, edges: NDArray[np.float64], logarithmic: bool, lines_ms: Sequence[float]
) -> None:
    """The same axis without ticks, which take long to draw; only the lines of its grid, in one go."""
    if logarithmic:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(edges[0], edges[-1])
    place = axes.get_xaxis_transform()
    axes.vlines(lines_ms, 0, 1, colors=GRID, linewidth=0.6, zorder=0.5, transform=place)


def _say_nothing_measured(figure: Figure) -> None:
    text = "No strategy succeeded: nothing was measured."
    figure.text(0.5, 0.4, text, ha="center", color=MUTED)
