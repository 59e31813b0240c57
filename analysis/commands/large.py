"""Very large traces, whose overview is summed up from the file without holding every event."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analysis import overview, schema
from analysis.aggregate import Summary
from analysis.commands.sections import Fact, Section
from analysis.database import Database
from analysis.finding import Finding
from analysis.findings import nsys_findings
from analysis.launches import LaunchKind

LARGE_EVENTS = 5_000_000
"""More kernels and API calls than this are only summed up; to look at each took 20 s and a gigabyte."""

BYTES_PER_EVENT = 200
"""What a kernel or an API call takes while a whole trace is looked at; measured, rounded up."""

TABLES = ("launches", "kernels", "ranges")
"""What `sections` has of the tables that there are of a whole trace."""

_COUNTED = (schema.KERNELS, schema.API_CALLS)


def events(database: Database) -> int:
    """Kernels and API calls of a trace, as many as there are or a little more; quick for any size."""
    counts = [
        int(database.query(f'SELECT ifnull(max(rowid), 0) AS n FROM "{spec.source}"')["n"].iloc[0])
        for spec in _COUNTED
        if database.has(spec.source)
    ]
    return sum(counts)


def facts(summary: Summary) -> dict[str, Fact]:
    """How much is in the trace, as far as summing up tells."""
    rest = summary.rest
    launches = overview.launches(summary.api_calls)
    graphs = launches.loc[launches["kind"] == LaunchKind.GRAPH, "calls"]
    return {
        "domains": int(rest.ranges["domain"].nunique()),
        "ranges": len(rest.ranges),
        "api_calls": int(summary.api_calls["instances"].sum()),
        "launches": int(launches["calls"].sum()),
        "kernels": int(summary.kernels["instances"].sum()),
        "memcpys": len(rest.memcpys),
        "memsets": len(rest.memsets),
        "graph_launches": int(graphs.sum()),
    }


def memory_gib(events: int) -> float:
    """What it takes to look at every event of a trace."""
    return events * BYTES_PER_EVENT / 2**30


def report_findings(events: int) -> tuple[Finding, ...]:
    """What to know about reports of a trace of this size."""
    return (
        Finding(
            "note",
            f"a report of NVIDIA's reads all {events:,} kernels and API calls",
            events,
            f"that took minutes and {memory_gib(events):.1f} GiB of memory",
            "without --report the trace is only summed up, in a part of both",
        ),
    )


def findings(summary: Summary, events: int) -> tuple[Finding, ...]:
    """What can be said of the trace without looking at each event; first of all that this was not done."""
    return tuple(_findings(summary, events))


def sections(summary: Summary, shares: str, long: tuple[str, ...]) -> dict[str, Callable[[], Section]]:
    """Tables of the whole trace; ranges have no launches here, and are by time."""
    return {
        "launches": lambda: Section("launches", "Launches", overview.launches(summary.api_calls), shares),
        "kernels": lambda: Section("kernels", "Kernels", overview.kernels(summary.kernels), shares, long),
        "ranges": lambda: Section("ranges", "NVTX ranges", overview.range_times(summary.ranges)),
    }


def _findings(summary: Summary, count: int) -> Iterator[Finding]:
    kernels = int(summary.kernels["instances"].sum())
    launches = int(overview.launches(summary.api_calls)["calls"].sum())
    if launches and not kernels and not summary.rest.has_gpu_work:
        yield Finding(
            "fatal",
            f"no GPU work recorded, though {launches:,} launches were",
            launches,
            "every GPU count would be zero",
            "close other profilers, install a newer Nsight Systems, capture again",
        )
    yield Finding(
        "note",
        f"the trace holds {count:,} kernels and API calls and was only summed up",
        count,
        "launches were not matched with what they started, so some checks and tables are left out",
        f"ask for --full ({memory_gib(count):.1f} GiB of memory), or for a part with --range, "
        "--process, --device or --between",
    )
    yield from nsys_findings(summary.rest)
