"""Condenses a case's tables to what one request of each strategy did, and picks the trace to take times from.

Counts and GPU busy time come from node mode, which shows every kernel and every pause, alike for eager and
for a graph. Launches and their host time come from graph mode where it exists, because node mode slows the
launch of a graph; eager has no graph, so its only trace serves for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.report_tables import CaseTables, LaunchRow, RequestRow
from contract import TraceMode


@dataclass(frozen=True)
class TracedFacts:
    """Means over the traced requests of one strategy; None where no trace shows the quantity.

    `gpu_busy_us` is the union of kernels, copies and fills in node mode. `replay_span_us` is what graph mode
    shows: the replay as one interval, pauses included, and the input copy; None without a graph.
    `time_mode` is the trace mode that launches, `launch_api_us`, `gpu_span_us` and `range_us` come from.
    `varies` names counts that differ between requests, with their extremes, since they should not.
    """

    kernels: float | None
    memcpys: float | None
    memsets: float | None
    launches: float | None
    graph_launches: float | None
    launch_api_us: float | None
    gpu_busy_us: float | None
    replay_span_us: float | None
    gpu_span_us: float | None
    range_us: float | None
    time_mode: str
    requests: int
    varies: tuple[str, ...]

    @property
    def launch_share_percent(self) -> float | None:
        """Host time in launch calls, in percent of the same traced request."""
        if self.launch_api_us is None or not self.range_us:
            return None
        return self.launch_api_us / self.range_us * 100


def traced_facts(tables: CaseTables, strategy: str) -> TracedFacts | None:
    """What one request of the strategy did, or None where it was not traced on a GPU."""
    rows = [row for row in tables.requests if row.strategy == strategy]
    node = [row for row in rows if row.trace_mode == TraceMode.NODE]
    graph = [row for row in rows if row.trace_mode == TraceMode.GRAPH and row.graph_launches]
    mode = time_mode(tables, strategy)
    timed = [row for row in rows if row.trace_mode == mode]
    if mode is None or all(row.launches is None and row.gpu_busy_us is None for row in timed):
        return None
    return TracedFacts(
        kernels=_mean(row.kernels for row in node),
        memcpys=_mean(row.memcpys for row in node),
        memsets=_mean(row.memsets for row in node),
        launches=_mean(row.launches for row in timed),
        graph_launches=_mean(row.graph_launches for row in timed),
        launch_api_us=_mean(row.launch_api_us for row in timed),
        gpu_busy_us=_mean(row.gpu_busy_us for row in node),
        replay_span_us=_mean(row.gpu_busy_us for row in graph),
        gpu_span_us=_mean(row.gpu_span_us for row in timed),
        range_us=_mean(row.range_us for row in timed),
        time_mode=mode,
        requests=len(timed),
        varies=(
            *_varies("kernels", [row.kernels for row in node]),
            *_varies("launches", [r.launches for r in timed]),
        ),
    )


def time_mode(tables: CaseTables, strategy: str) -> str | None:
    """Trace mode to take a strategy's times from: graph mode if it saw the GPU, else node mode, else None."""
    for mode in (TraceMode.GRAPH, TraceMode.NODE):
        if any(
            _has_gpu(row) for row in tables.requests if row.strategy == strategy and row.trace_mode == mode
        ):
            return mode.value
    return None


def launch_rows(tables: CaseTables, strategies: Sequence[str]) -> list[LaunchRow]:
    """The launch table of each strategy from the trace that its times come from, busiest API first."""
    chosen = []
    for strategy in strategies:
        mode = time_mode(tables, strategy)
        rows = [row for row in tables.launches if row.strategy == strategy and row.trace_mode == mode]
        chosen += sorted(rows, key=lambda row: (-(row.calls_per_request or 0), row.api))
    return chosen


def _has_gpu(row: RequestRow) -> bool:
    return row.gpu_busy_us is not None or row.launches is not None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _varies(what: str, values: Sequence[float | None]) -> tuple[str, ...]:
    known = [value for value in values if value is not None]
    if not known or min(known) == max(known):
        return ()
    return (f"{what} vary from {min(known):g} to {max(known):g} between requests; the mean is shown",)
