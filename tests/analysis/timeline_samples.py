"""A made-up timeline of a request: a launch call and a kernel for each name, the GPU waiting in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.host_parts import HostPart
from analysis.timeline import Gap, GapKind, HostCall, Operation, Row, SubRange, Timeline, WorkKind
from analysis.timeline_json import timelines_text
from contract import TraceMode

EVERY_NS, RUN_NS = 1_000, 400


def timeline(strategy: str, names: Sequence[str]) -> Timeline:
    places = range(len(names))
    starts = [place * EVERY_NS for place in places]
    busy_ns = len(names) * RUN_NS
    gap_ns = EVERY_NS - RUN_NS
    return Timeline(
        strategy=strategy,
        trace_mode=TraceMode.NODE,
        tracer="Nsight Systems",
        request=1,
        requests=3,
        range_ns=500 + busy_ns + (len(names) - 1) * gap_ns + 100,
        head_ns=500,
        busy_ns=busy_ns,
        tail_ns=100,
        outside_ns=0,
        undrawn=0,
        ranges=(SubRange("forward", 0, 500),),
        calls=tuple(HostCall("cudaLaunchKernel", HostPart.LAUNCHES, start, 200, 0) for start in starts),
        rows=(Row(0, 7),),
        operations=tuple(
            Operation(name, WorkKind.KERNEL, "grid 1×1×1, block 32×1×1", start + 500, RUN_NS, 0, place)
            for place, (name, start) in enumerate(zip(names, starts, strict=True))
        ),
        gaps=tuple(Gap(GapKind.LAUNCH_BOUND, start + 500 + RUN_NS, gap_ns) for start in starts[:-1]),
    )


def write_timelines(folder: Path, case: str, kernels: Sequence[str], *, traced: bool) -> None:
    found = [timeline(name, kernels) for name in ("eager", "graph")] if traced else []
    (folder / "timeline.json").write_text(timelines_text(case, found), encoding="utf-8")
