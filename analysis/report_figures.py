"""The figures of one case, each with a name, an alternative text and a caption, drawn when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from analysis.figures import (
    KernelPair,
    TimeSplit,
    latency_comparison,
    launches_by_api,
    top_kernels,
    where_time_went,
)
from analysis.figures_latency import format_ms
from analysis.figures_ledger import ledger_waterfall
from analysis.report_data import CaseReport
from analysis.report_traced import launch_rows
from analysis.report_views_time import case_floor_us, is_span, median_ledger, parts_us
from analysis.report_views_traced import comparison_rows
from analysis.report_words import case_heading
from analysis.waterfall import Picture, Waterfall
from contract import Strategy

TOP_KERNELS = 10


@dataclass(frozen=True)
class CaseFigure:
    """One figure: `draw(width_in, heading)` makes it, as wide as asked, with or without its own heading."""

    name: str
    alt: str
    caption: str
    draw: Callable[[float, bool], Figure]


def case_figures(case: CaseReport) -> list[CaseFigure]:
    """All figures that the case has data for; those without are left out."""
    figures = [_latency(case)]
    for make in (_time, _waterfall, _launches, _kernels):
        figure = make(case)
        if figure is not None:
            figures.append(figure)
    return figures


def _latency(case: CaseReport) -> CaseFigure:
    medians = [
        f"{one.name} {format_ms(one.latency.median)}" for one in case.strategies if one.latency is not None
    ]
    return CaseFigure(
        "latency_comparison",
        f"Histograms and cumulative shares of forward latency. Medians: {', '.join(medians) or 'none'}.",
        "Every request. Above, histograms with shared bins; below, the share of requests done by a time.",
        lambda width_in, heading: latency_comparison(case.record, width_in, heading),
    )


def time_splits(case: CaseReport) -> list[TimeSplit]:
    """Latency against GPU busy time, for each strategy that was measured."""
    splits = []
    for one in case.strategies:
        if one.latency is None:
            continue
        facts = one.traced
        splits.append(
            TimeSplit(
                strategy=one.name,
                latency_ms=one.latency.median,
                gpu_busy_ms=None if facts is None or facts.gpu_busy_us is None else facts.gpu_busy_us / 1e3,
                launch_share_percent=None if facts is None else facts.launch_share_percent,
            )
        )
    return splits


def _time(case: CaseReport) -> CaseFigure | None:
    splits = time_splits(case)
    known = [(split, split.gpu_busy_ms) for split in splits if split.gpu_busy_ms is not None]
    if not known:
        return None
    words = [f"{split.strategy} {busy / split.latency_ms * 100:.0f} %" for split, busy in known]
    return CaseFigure(
        "where_time_went",
        "Where one request's time went. GPU busy as traced in node mode, in percent of the median latency: "
        f"{', '.join(words)}.",
        "Bar: median latency without a profiler. Filled: GPU busy, union of kernels, copies and fills as "
        "traced in node mode. Hatched: GPU idle, the rest. Below: host time in launch calls, in percent of "
        "the traced request.",
        lambda width_in, heading: where_time_went(splits, case_heading(case) if heading else "", width_in),
    )


def _waterfall(case: CaseReport) -> CaseFigure | None:
    sides = [
        (name, median_ledger(case.explained, name)) if case.explained else (name, None)
        for name in (Strategy.EAGER.value, Strategy.GRAPH.value)
    ]
    known = [Waterfall(name, parts_us(row), is_span(row)) for name, row in sides if row is not None]
    if not known:
        return None
    floor_us = case_floor_us(case)
    words = [
        f"{one.strategy} {one.range_us:,.0f} us, of it {one.busy_name} {one.parts_us[1]:,.0f}"
        for one in known
    ]
    floor = "" if floor_us is None else f" Floor {floor_us:,.0f} us."
    title = f"Where the time of the median request went: {case_heading(case)}"
    return CaseFigure(
        "waterfall",
        f"The GPU's ledger of the median request, as traced: {'; '.join(words)}.{floor}",
        "Each bar begins where the one above it ends, and the last ends with the request. Filled: GPU busy, "
        "of a graph in graph mode its replay span. Hatched: gaps. Dashed: the floor. As traced, no latency.",
        lambda width_in, heading: ledger_waterfall(
            Picture(title if heading else "", tuple(known), floor_us), width_in
        ),
    )


def _launches(case: CaseReport) -> CaseFigure | None:
    rows = launch_rows(case.tables, [one.name for one in case.strategies]) if case.tables is not None else []
    if not rows:
        return None
    calls: dict[str, dict[str, float]] = {}
    for row in rows:
        by_api = calls.setdefault(row.strategy, {})
        by_api[row.api] = by_api.get(row.api, 0.0) + (row.calls_per_request or 0.0)
    kernels = {one.name: one.traced.kernels for one in case.strategies if one.traced is not None}
    return CaseFigure(
        "launches_by_api",
        "Launches by host API and kernels per request, for each strategy; the table has the numbers.",
        "Launches per request by host API, and the kernels that they ran.",
        lambda width_in, heading: launches_by_api(
            calls, kernels, case_heading(case) if heading else "", width_in
        ),
    )


def _kernels(case: CaseReport) -> CaseFigure | None:
    rows = comparison_rows(case.tables, Strategy.GRAPH)[:TOP_KERNELS] if case.tables is not None else []
    if not rows:
        return None
    pairs = [
        KernelPair(
            row.kernel,
            row.eager_us_per_request or 0.0,
            row.graph_us_per_request or 0.0,
            row.eager_calls_per_request or 0.0,
            row.graph_calls_per_request or 0.0,
        )
        for row in rows
    ]
    return CaseFigure(
        "top_kernels",
        "GPU time of the kernels that take most of it, eager against graph; the table has the numbers.",
        "Kernels with the most GPU time, eager against graph, as traced.",
        lambda width_in, heading: top_kernels(
            pairs, Strategy.GRAPH, case_heading(case) if heading else "", width_in
        ),
    )
