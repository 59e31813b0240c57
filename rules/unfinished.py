"""Which cases are whole, by the files that are there, and which are still to be run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contract import LaunchgapError
from rules.settings import trace_files, tracer, wanted_traces


def unfinished(
    case: str, traced_strategies: Sequence[str], preflight: Path, latency: Path, record: Path
) -> bool:
    """Whether something of a case is still to be run: measuring, a trace that is wanted, or its tables.

    `preflight` and `latency` are records, `record` is what the analysis says of the case's traces. Tables
    older than a trace or than the latencies are of an earlier run. That settings changed is not noticed.
    """
    try:
        names = wanted_traces(traced_strategies, preflight, latency)
        traces = trace_files(tracer(preflight), case, names)
    except LaunchgapError:
        return True  # not measured, or it cannot be read
    if not traces:
        return False
    made_of = [latency, *map(Path, traces)]
    try:
        return record.stat().st_mtime_ns < max(path.stat().st_mtime_ns for path in made_of)
    except OSError:
        return True
