"""The report's tables that come from traces: counts, launches by API, kernels, and the traces themselves.

Every duration here is "as traced": it was taken under the profiler and is never called a latency.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report_cells import (
    NOT_MEASURED,
    Cell,
    Table,
    bar_cell,
    columns,
    count_cell,
    number_cell,
    signed,
    text_cell,
)
from analysis.report_data import CaseReport
from analysis.report_tables import CaseTables, ComparisonRow, KernelRow, TraceInfo
from analysis.report_traced import launch_rows
from analysis.report_words import mask_note, varying_counts
from contract import Strategy

MAX_NAME_CHARACTERS = 400
"""Longer demangled names are cut in the report; the CSV has them whole."""

BUSY_NOTE = (
    "GPU busy: union of kernels, copies and fills as traced in node mode, the input copy included. Replay "
    "span: the replay as one interval, pauses between its kernels included, and the input copy."
)
SLOWED_PERCENT = 25.0
"""Eager that a profiler slows by more is reported: its host's time as traced says little of what it is."""

PROFILER_NOTE = (
    "Against latency without profiler: profiler and host together; a simulation or a noisy host makes it "
    "meaningless."
)


def counts_table(case: CaseReport) -> Table | None:
    """Per strategy, what one request did on host and GPU; None where no strategy was traced on a GPU."""
    rows = tuple(
        (
            text_cell(one.name, code=True),
            count_cell(one.traced.launches),
            count_cell(one.traced.graph_launches),
            count_cell(one.traced.kernels),
            count_cell(one.traced.memcpys),
            count_cell(one.traced.memsets),
            number_cell(one.traced.launch_api_us, 1),
            number_cell(one.traced.launch_share_percent, 0),
            number_cell(one.traced.gpu_span_us, 1),
            text_cell(f"{one.traced.time_mode} mode, {one.traced.requests} requests"),
            number_cell(one.traced.gpu_busy_us, 1),
            number_cell(one.traced.replay_span_us, 1),
        )
        for one in case.strategies
        if one.traced is not None
    )
    if not rows or case.tables is None:
        return None
    return Table(
        "One request. Counts come from node-mode traces, launches and times (as traced) from the one named, "
        "GPU busy from node mode and replay span from graph mode.",
        columns(":strategy", "launches", "of them graph launches", "kernels", "memcpys", "memsets",
            "in launch calls µs", "of the traced request %", "first to last GPU operation µs", ":times from",
            "GPU busy, node mode µs", "replay span, graph mode µs"),
        rows,
        f"{case.tables.source}/requests.csv",
        (BUSY_NOTE, *varying_counts(case)),
    )  # fmt: skip


def launches_table(case: CaseReport) -> Table | None:
    """Launches by host API, one row per strategy and API."""
    if case.tables is None:
        return None
    found = launch_rows(case.tables, [one.name for one in case.strategies])
    if not found:
        return None
    largest = max(row.calls_per_request or 0 for row in found)
    rows = tuple(
        (
            text_cell(row.api, code=True),
            text_cell(row.strategy, code=True),
            text_cell(row.kind),
            bar_cell([(row.calls_per_request, row.strategy)], largest),
            count_cell(row.calls_per_request),
            number_cell(row.launch_api_us_per_request, 1),
            number_cell(row.mean_us, 2),
            number_cell(row.p50_us, 2),
            number_cell(row.max_us, 2),
        )
        for row in found
    )
    return Table(
        "Launches by host API. Times are host time inside the call, as traced.",
        columns(
            ":API",
            ":strategy",
            ":kind",
            ":",
            "calls per request",
            "µs per request",
            "mean µs",
            "median µs",
            "max µs",
        ),
        rows,
        f"{case.tables.source}/launches.csv",
    )


def comparison_table(case: CaseReport, strategy: str) -> Table | None:
    """Kernels of eager against one graph strategy, those with the most GPU time first."""
    if case.tables is None:
        return None
    found = comparison_rows(case.tables, strategy)
    if not found:
        return None
    largest = max(_larger(row) for row in found)
    graph = case.strategy(strategy)
    note = mask_note(case, graph) if graph is not None else ""
    return Table(
        f"Kernels per request, eager against {strategy}. GPU time as traced in node mode; no latency.",
        columns("~kernel", ":", "calls, eager", "calls, graph", "eager µs", "graph µs", "difference µs"),
        tuple(_comparison_cells(row, largest) for row in found),
        f"{case.tables.source}/comparison.csv",
        (note,) if note else (),
    )


def comparison_rows(tables: CaseTables, strategy: str) -> list[ComparisonRow]:
    """Rows of one graph strategy, those with the most GPU time on either side first."""
    rows = [row for row in tables.comparison if row.strategy == strategy]
    return sorted(rows, key=lambda row: (-_larger(row), row.kernel, row.full_name))


def kernel_table(case: CaseReport, strategy: str) -> Table | None:
    """Kernels of one strategy by total GPU time."""
    if case.tables is None:
        return None
    found = [row for row in case.tables.kernels if row.strategy == strategy]
    if not found:
        return None
    found.sort(key=lambda row: (-(row.total_us_per_request or 0), row.kernel, row.full_name))
    largest = max(row.total_us_per_request or 0 for row in found)
    return Table(
        f"Kernels of {strategy}: {len(found)} names. GPU time as traced in node mode; no latency.",
        columns("~kernel", ":", "calls", "µs per request", "share %", "mean µs", "min µs", "max µs"),
        tuple(_kernel_cells(row, largest) for row in found),
        f"{case.tables.source}/kernels.csv",
    )


def traces_table(case: CaseReport) -> Table | None:
    """What became of each trace, and its times under the profiler against the latency without."""
    if case.tables is None or not case.tables.traces:
        return None
    return Table(
        "Traces. Times under the profiler judge the traces, not the model.",
        columns(":trace", ":mode", ":status", "requests", ":tracer", ":export schema",
            "median under the profiler ms", "without ms", "against latency without profiler, %", "~findings"),
        tuple(_trace_cells(case, trace) for trace in case.tables.traces),
        f"{case.tables.source}/traces.json",
        () if case.simulated else (PROFILER_NOTE,),
    )  # fmt: skip


def _trace_cells(case: CaseReport, trace: TraceInfo) -> tuple[Cell, ...]:
    one = case.strategy(trace.strategy)
    latency_ms = one.latency.median if one is not None and one.latency is not None else None
    profiled_ms = trace.profiled_event_ms_median
    export = f"{trace.export_schema or NOT_MEASURED} (nsys {trace.export_version or NOT_MEASURED})"
    return (
        text_cell(trace.strategy, code=True),
        text_cell(trace.trace_mode),
        text_cell(trace.status),
        count_cell(None if trace.requests is None or trace.status == "missing" else float(trace.requests)),
        text_cell(_tracer(trace)),
        text_cell(export if trace.export_schema or trace.export_version else NOT_MEASURED),
        number_cell(profiled_ms, 3),
        number_cell(latency_ms, 3),
        _change_cell(profiler_percent(case, trace)),
        text_cell(" ".join([*([trace.reason] if trace.reason else []), *trace.findings]) or "none"),
    )


def profiler_percent(case: CaseReport, trace: TraceInfo) -> float | None:
    """How much longer requests took under the profiler than without it, in percent; None without either."""
    one = case.strategy(trace.strategy)
    profiled_ms = trace.profiled_event_ms_median
    if case.simulated or one is None or one.latency is None or not profiled_ms:
        return None
    return (profiled_ms / one.latency.median - 1) * 100


def slowed_sentence(case: CaseReport) -> str | None:
    """That the profiler slowed eager so much that gaps as traced mislead; None where it did not."""
    for trace in case.tables.traces if case.tables is not None else ():
        percent = profiler_percent(case, trace)
        if trace.strategy == Strategy.EAGER and percent is not None and percent > SLOWED_PERCENT:
            return (
                f"Eager took {signed(percent, 0)} % longer under the profiler than without it: gaps, launch "
                "calls and ranges of eager as traced are longer than in service. Counts and times of "
                "kernels stand."
            )
    return None


def _tracer(trace: TraceInfo) -> str:
    if trace.tracer == "torch":
        return "torch.profiler"
    return f"nsys {trace.nsys_version}" if trace.nsys_version else NOT_MEASURED


def _change_cell(percent: float | None) -> Cell:
    if percent is None:
        return Cell(NOT_MEASURED, title="not comparable")
    return Cell(("+" if percent >= 0 else "") + signed(percent, 0), sort=percent)


def _larger(row: ComparisonRow) -> float:
    return max(row.eager_us_per_request or 0.0, row.graph_us_per_request or 0.0)


def _comparison_cells(row: ComparisonRow, largest: float) -> tuple[Cell, ...]:
    pair: Sequence[tuple[float | None, str]] = (
        (row.eager_us_per_request, Strategy.EAGER.value),
        (row.graph_us_per_request, row.strategy),
    )
    return (
        name_cell(row.kernel, row.full_name),
        bar_cell(pair, largest),
        count_cell(row.eager_calls_per_request),
        count_cell(row.graph_calls_per_request),
        number_cell(row.eager_us_per_request, 1),
        number_cell(row.graph_us_per_request, 1),
        number_cell(row.difference_us, 1),
    )


def _kernel_cells(row: KernelRow, largest: float) -> tuple[Cell, ...]:
    return (
        name_cell(row.kernel, row.full_name),
        bar_cell([(row.total_us_per_request, row.strategy)], largest),
        count_cell(row.calls_per_request),
        number_cell(row.total_us_per_request, 1),
        number_cell(row.share_percent, 1),
        number_cell(row.mean_us, 2),
        number_cell(row.min_us, 2),
        number_cell(row.max_us, 2),
    )


def name_cell(name: str, full_name: str) -> Cell:
    """A kernel's short name, with the full one behind it."""
    cut = full_name if len(full_name) <= MAX_NAME_CHARACTERS else full_name[: MAX_NAME_CHARACTERS - 1] + "…"
    return text_cell(name, title="" if full_name == name else cut, code=True)
