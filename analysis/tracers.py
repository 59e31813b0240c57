"""What recorded a trace, and how to speak of it: advice on nsys is of no use to a user of torch.profiler."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.chrome_trace import ChromeTrace
from analysis.trace import Trace


@dataclass(frozen=True)
class Tracer:
    """What recorded a trace.

    Attributes:
        name: what its users call it.
        ranges: what it calls the ranges of a program.
        add_ranges: how a program without ranges gets some.
        record_again: how CUDA calls and GPU work get recorded.
        see_that: what to look at where nothing was recorded at all.
        why_no_gpu_work: reasons for CUDA calls without any work on the GPU.
        rivals: other profilers, which keep it from the GPU's counters.
        find_replays: what to do about replays without GPU work.
        where_messages: where its own messages are found.
        lose_less: what to do where it says that records were lost.
        newer: what a newer one is called.
        all_calls: whether every CUDA call is recorded, not only those that matter to it.
        replays: whether it can record a replay of a graph as a whole, instead of its nodes.
        domains: whether ranges have domains.
    """

    name: str
    ranges: str
    add_ranges: str
    record_again: str
    see_that: str
    why_no_gpu_work: str
    rivals: str
    find_replays: str
    where_messages: str
    lose_less: str
    newer: str
    all_calls: bool
    replays: bool
    domains: bool


NSYS = Tracer(
    name="nsys",
    ranges="NVTX ranges",
    add_ranges="add ranges (nvtx.annotate, torch.cuda.nvtx.range) and capture with `-t cuda,nvtx`; "
    "nvtx 0.2.12 and newer records none under nsys older than 2025",
    record_again="capture again with `-t cuda,nvtx`",
    see_that="with a capture range, see that cudaProfilerStart is called",
    why_no_gpu_work="another profiler held the GPU's counters, the driver is newer than this nsys knows, or "
    "all records were lost",
    rivals="(Nsight, torch.profiler)",
    find_replays="nsys before 2024 cannot export graph mode, so use a newer one or --cuda-graph-trace=node",
    where_messages="see the diagnostics of the .nsys-rep and capture again",
    lose_less="trace less, end the capture after a synchronisation, add --cuda-flush-interval=100, or trace "
    "with `-t cuda-sw` where nsys knows it",
    newer="Nsight Systems",
    all_calls=True,
    replays=True,
    domains=True,
)
TORCH = Tracer(
    name="torch.profiler",
    ranges="record_function ranges",
    add_ranges="put torch.profiler.record_function around what should be counted and record again",
    record_again="record again with ProfilerActivity.CPU and ProfilerActivity.CUDA",
    see_that="see that the program uses the GPU while the profiler runs",
    why_no_gpu_work="another profiler held the GPU's counters, or it ran without ProfilerActivity.CUDA",
    rivals="(nsys, Nsight)",
    find_replays="record longer, and synchronise before the profiler stops",
    where_messages="see what the profiler printed and record again",
    lose_less="record fewer steps, and synchronise before the profiler stops",
    newer="torch",
    all_calls=False,
    replays=False,
    domains=False,
)


def tracer_of(trace: Trace) -> Tracer:
    """What recorded a trace; of a file made for Perfetto, what recorded the trace that it was made of."""
    return TORCH if isinstance(trace, ChromeTrace) and trace.tracer == "torch" else NSYS
