"""Whether the times in a trace can be times: of operations against their calls, and against the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.attribute import NO_CALL, IntArray, has_time
from analysis.database import open_sqlite
from analysis.finding import Finding
from analysis.trace import Trace
from analysis.tracers import tracer_of
from contract import LaunchgapError

EARLY_NS = 10_000
"""A GPU operation may seem to start this long before its launch call did: two clocks are compared."""

OUTSIDE_NS = 1_000_000_000
"""Events may lie this far outside the session: buffers are read out after it was stopped."""

_NS_PER_MS = 1e6


def clock_findings(trace: Trace, operations: pd.DataFrame, call: IntArray) -> Iterator[Finding]:
    """What is wrong with times.

    Args:
        trace: the trace.
        operations: its GPU work of all kinds; start_ns, end_ns.
        call: position in `trace.api_calls` of the call that launched each operation, or `NO_CALL`.
    """
    timed = has_time(operations).to_numpy()
    yield from _timeless(trace, operations, int((~timed).sum()))
    yield from _backwards(trace, operations)
    yield from _early(trace, operations, call, timed)
    yield from _outside(trace, operations[timed])


def session_span(path: Path) -> tuple[int, int] | None:
    """Earliest and latest possible time of an event, in ns since the session's start; None if not told.

    `ANALYSIS_DETAILS` holds when nsys started the session, by a clock that began with nsys, and how long it
    took. Ranges and graphs begun before the session keep their negative times.
    """
    try:
        with open_sqlite(path) as database:
            if not {"startTime", "duration"} <= database.columns.get("ANALYSIS_DETAILS", frozenset()):
                return None
            rows = database.query(
                "SELECT min(-startTime) AS first, max(duration) AS last FROM ANALYSIS_DETAILS"
            )
    except LaunchgapError:  # the trace is of another kind, or its export is gone
        return None
    first, last = rows["first"].iloc[0], rows["last"].iloc[0]
    whole = isinstance(first, int | np.integer) and isinstance(last, int | np.integer)
    return (int(first), int(last)) if whole else None


def _timeless(trace: Trace, operations: pd.DataFrame, count: int) -> Iterator[Finding]:
    if count:
        yield Finding(
            "warning",
            f"{count} of {len(operations)} GPU operations carry no time",
            count,
            "GPU times of what holds them are left empty or too low",
            "use a newer driver" + (", or --cuda-graph-trace=node" if tracer_of(trace).replays else ""),
        )


def _backwards(trace: Trace, operations: pd.DataFrame) -> Iterator[Finding]:
    ranges = trace.ranges[trace.ranges["end_ns"].notna()]
    tables = {"GPU operations": operations, "CUDA calls": trace.api_calls, "ranges": ranges}
    for name, table in tables.items():
        count = int((table["end_ns"] < table["start_ns"]).sum())
        if count:
            yield Finding(
                "fatal" if count == len(table) else "warning",
                f"{count} of {len(table)} {name} end before they start",
                count,
                "their negative durations lower every sum and mean that they are in",
                f"capture again; if it repeats, use another {tracer_of(trace).newer} or driver",
            )


def _early(
    trace: Trace, operations: pd.DataFrame, call: IntArray, timed: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Iterator[Finding]:
    known = timed & (call != NO_CALL)
    called_ns = trace.api_calls["start_ns"].to_numpy(dtype=np.int64)[call[known]]
    early_ns = called_ns - operations["start_ns"].to_numpy(dtype=np.int64)[known]
    count = int((early_ns > EARLY_NS).sum())
    if count:
        yield Finding(
            "warning",
            f"{count} of {int(known.sum())} GPU operations start before the call that launched them, "
            f"by up to {early_ns.max() / _NS_PER_MS:,.3f} ms",
            count,
            "the clocks of host and GPU disagree, so queue delays and times across both mean nothing; "
            "durations on one side stand",
            f"capture again after a warm-up; if it repeats, use another {tracer_of(trace).newer} or driver",
        )


def _outside(trace: Trace, operations: pd.DataFrame) -> Iterator[Finding]:
    span = session_span(trace.path)
    if span is None:
        return
    first, last = span[0] - OUTSIDE_NS, span[1] + OUTSIDE_NS
    tables = {"GPU operations": operations, "CUDA calls": trace.api_calls, "ranges": trace.ranges}
    for name, table in tables.items():
        outside = (table["start_ns"] < first) | (table["end_ns"].fillna(table["start_ns"]) > last)
        count = int(outside.sum())
        if count:
            yield Finding(
                "warning",
                f"{count} of {len(table)} {name} lie outside the session",
                count,
                "their clock jumped, so spans, gaps and order over them mean nothing",
                f"capture again; if it repeats, use another {tracer_of(trace).newer} or driver",
            )
