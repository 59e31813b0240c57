"""What speaks against the ledgers of a trace, or qualifies them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from analysis.attribute import Attributed
from analysis.finding import Finding
from analysis.launches import LaunchKind
from analysis.trace import Trace
from analysis.tracers import tracer_of
from contract import TraceMode

_NS_PER_US = 1_000.0


def has_replays(attributed: Attributed) -> bool:
    """Whether any request replays a graph."""
    launched = (attributed.launches["kind"] == LaunchKind.GRAPH).any()
    return bool(launched or len(attributed.graph_launches) or (attributed.kernels["graph_node"] >= 0).any())


def ledger_findings(trace: Trace, attributed: Attributed, gpu: pd.DataFrame) -> Iterator[Finding]:
    """What qualifies the ledgers of a trace's requests; `gpu` is their `gpu_ledger`."""
    n = len(attributed.requests)
    if n == 1:
        yield Finding(
            "warning",
            "the range is there once",
            1,
            "one request has no spread, and often the first does what no later one does",
            "capture several requests",
        )
    idle = int((gpu["busy_ns"] == 0).sum())
    if idle:
        yield Finding(
            "warning",
            f"no GPU work ran inside {idle} of {n} ranges",
            idle,
            "all of such a range is head",
            "name the range around the work, and end it after a synchronisation",
        )
    untimed = int((~gpu["timed"]).sum())
    if untimed:
        yield Finding(
            "warning",
            f"{untimed} of {n} requests replay a graph that the trace gives no time",
            untimed,
            "their heads and gaps hold the replay",
            "trace again, with --cuda-graph-trace=graph",
        )
    yield from _outside(gpu)
    yield from _node_mode(trace, attributed)
    yield from _uncalled(trace)


def _uncalled(trace: Trace) -> Iterator[Finding]:
    if not tracer_of(trace).all_calls:
        yield Finding(
            "warning",
            f"{tracer_of(trace).name} leaves out some CUDA calls",
            1,
            "the host's `rest` holds those that it left out",
            "trace with nsys for the host's side",
        )


def _outside(gpu: pd.DataFrame) -> Iterator[Finding]:
    late = int((gpu["outside_ns"] > 0).sum())
    if late:
        yield Finding(
            "warning",
            f"of {late} of {len(gpu)} requests GPU work ran outside the range, "
            f"{gpu['outside_ns'].mean() / _NS_PER_US:,.1f} us per request",
            late,
            "it is no part of the ledger",
            "end the range after a synchronisation",
        )


def _node_mode(trace: Trace, attributed: Attributed) -> Iterator[Finding]:
    if has_replays(attributed) and trace.graph_trace_mode is TraceMode.NODE:
        by_nsys = "" if tracer_of(trace).replays else " of nsys"
        yield Finding(
            "warning",
            "graphs were traced node by node",
            len(attributed.requests),
            "that makes the gaps between the nodes longer",
            f"take a graph's ledger from a trace{by_nsys} with --cuda-graph-trace=graph",
        )


def no_floor(path: Path | None) -> Finding:
    """A latency record without a floor."""
    return Finding(
        "warning",
        f"{path} tells no floor",
        1,
        "so none is shown",
        "measure again with this launchgap, on a GPU",
    )
