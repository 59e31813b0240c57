"""What differs between versions of nsys in the same report, found out by asking the one at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from analysis.trace import Trace
from tests.analysis.nvidia.hard_cases import COPY_KINDS, labelled
from tests.analysis.nvidia.oracle import analyses, projection, stats
from tests.analysis.trace_file import TraceFile

_OLD_COPY_KINDS = (
    *(
        "memcpy Unknown",
        "memcpy HtoD",
        "memcpy DtoH",
        "memcpy HtoA",
        "memcpy AtoH",
        "memcpy AtoA",
        "memcpy AtoD",
    ),
    *("memcpy DtoA", "memcpy DtoD", "memcpy HtoH", "memcpy PtoP", "Unified Memory memcpy HtoD"),
    *("Unified Memory memcpy DtoH", "Unified Memory memcpy DtoD"),
)
_TITLES = ("Name", "Range", "NVTX Range")


@dataclass(frozen=True)
class Traits:
    """How this nsys reports.

    Attributes:
        colon_without_domain: a range of the default domain is shown as `:name`, not as `name`.
        long_copy_kinds: a copy is shown as `Host-to-Device`, not as `HtoD`.
        projects_replays: a whole replay of graph mode belongs to the range that it was launched in.
        busy_replays: a whole replay of graph mode is busy time for the gaps.
    """

    colon_without_domain: bool
    long_copy_kinds: bool
    projects_replays: bool
    busy_replays: bool


@cache
def traits() -> Traits:
    with TemporaryDirectory() as folder:
        path = _probe(Path(folder) / "probe.sqlite")
        (projected,) = projection(path).to_dict("records")
        (copied,) = stats(path, "cuda_gpu_mem_time_sum")["Operation"]
        (found,) = analyses(path, "gpu_gaps:gap=0")
    return Traits(
        colon_without_domain=_yes_or_no(projected["Name"], yes=":r", no="r"),
        long_copy_kinds=_yes_or_no(copied, yes="[CUDA memcpy Host-to-Device]", no="[CUDA memcpy HtoD]"),
        projects_replays=_yes_or_no(projected["NumGPUOps"], yes="3", no="2"),
        busy_replays=_yes_or_no(len(found), yes=2, no=1),
    )


def _yes_or_no(found: object, *, yes: object, no: object) -> bool:
    """Which of two answers was found; a third one is no answer."""
    assert found in (yes, no)
    return found == yes


def _probe(path: Path) -> Path:
    """A kernel, a replay and a copy in one range, in this order and with a gap before each."""
    trace = labelled(TraceFile(path))
    trace.range("r", 0, 100, domain=0)
    trace.launch("k", (10, 20), (200, 300))
    trace.replay(400, 500, trace.call("cudaGraphLaunch", 30, 40))
    trace.memcpy(600, 700, trace.call("cudaMemcpyAsync", 50, 60))
    return trace.save()


def seen_by_nsys(trace: Trace, report: str) -> Trace:
    """The trace without the replays that this nsys does not look at in a report."""
    looks = {
        "nvtx_gpu_proj_sum": traits().projects_replays,
        "nvtx_gpu_proj_trace": traits().projects_replays,
        "gpu_gaps": traits().busy_replays,
    }
    return trace if looks.get(report, True) else replace(trace, graph_launches=trace.graph_launches.iloc[:0])


def as_named_by_nsys(table: pd.DataFrame, report: str) -> pd.DataFrame:
    """A table of ours with the names of ranges and copies as this nsys writes them."""
    if report.startswith("nvtx") and not traits().colon_without_domain:
        titles = [title for title in _TITLES if title in table]
        return table.assign(**{title: table[title].str.removeprefix(":") for title in titles})
    if report == "cuda_gpu_mem_time_sum" and not traits().long_copy_kinds:
        pairs = zip(COPY_KINDS, _OLD_COPY_KINDS, strict=True)
        old = {f"[CUDA memcpy {new}]": f"[CUDA {title}]" for new, title in pairs}
        return table.assign(Operation=table["Operation"].replace(old))
    return table
