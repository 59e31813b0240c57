"""One request on a time axis: host calls, GPU operations, and the gaps of the GPU's ledger.

All times are nanoseconds from the start of the request's range. Nothing is cut off: a call that began before
the range has a negative start, and work that outlasts the range ends after it. The parts of the ledger are
those of `analysis.ledger`, of which head + busy + gaps + tail = range to the nanosecond.
`analysis.timeline_trace` reads it from a trace. Nothing here needs more than the standard library, so that a
report that draws timelines from tables starts quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from analysis.host_parts import HostPart
from contract import TraceMode

NO_LAUNCH = -1
"""`call` of an operation whose launch call is not among the request's calls."""


class WorkKind(StrEnum):
    """What ran on the GPU. A `graph` is a whole replay, as graph mode records it."""

    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"
    GRAPH = "graph"


@dataclass(frozen=True)
class SubRange:
    """An NVTX range inside the request's: of its thread and domain, and in no other such range."""

    name: str
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class HostCall:
    """A CUDA API call of the request's thread; `depth` is how many other calls it lies in."""

    name: str
    part: HostPart
    start_ns: int
    duration_ns: int
    depth: int


@dataclass(frozen=True)
class Row:
    """A row that operations are drawn in: part of a stream in which they follow each other."""

    device: int
    stream: int


@dataclass(frozen=True)
class Operation:
    """GPU work of the request. `row` and `call` are places in the timeline's rows and calls."""

    name: str
    kind: WorkKind
    shape: str
    start_ns: int
    duration_ns: int
    row: int
    call: int


class GapKind(StrEnum):
    """Why the GPU had nothing to do, by the ledger's rule."""

    LAUNCH_BOUND = "launch-bound"
    DEVICE = "device"


@dataclass(frozen=True)
class Gap:
    """A pause of all devices between two operations; nanoseconds from the start of the request's range."""

    kind: GapKind
    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Timeline:
    """One request of a trace.

    Attributes:
        strategy: what was run.
        trace_mode: node (each node of a graph is an operation) or graph (a replay is one).
        tracer: what recorded it, by the name its users call it.
        request: number of the request, from 0; of `requests` in the trace.
        range_ns: length of its range, as traced: no latency.
        head_ns, busy_ns, tail_ns: the ledger's parts that are no gaps.
        outside_ns: GPU work beyond the ends of the range.
        undrawn: operations of the request without a time, or on the host as nodes of a graph.
        ranges, calls, operations, gaps: each in order of start.
        rows: where operations are drawn, by device and stream.
    """

    strategy: str
    trace_mode: TraceMode
    tracer: str
    request: int
    requests: int
    range_ns: int
    head_ns: int
    busy_ns: int
    tail_ns: int
    outside_ns: int
    undrawn: int
    ranges: tuple[SubRange, ...]
    calls: tuple[HostCall, ...]
    rows: tuple[Row, ...]
    operations: tuple[Operation, ...]
    gaps: tuple[Gap, ...]

    def count(self, kind: WorkKind) -> int:
        """How many operations are of a kind."""
        return sum(one.kind is kind for one in self.operations)
