"""Small traces that hold what real ones rarely do, each the way nsys exports it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.analysis.trace_file import PROCESS, THREAD, TraceFile

OTHER_PROCESS = (1 << 48) | (4322 << 24)
OTHER_THREAD = OTHER_PROCESS | 4322
MS = 1_000_000
COPY_KINDS = (
    *("Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array"),
    *("Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer"),
    *("Unified Host-to-Device", "Unified Device-to-Host", "Unified Device-to-Device"),
)


def labelled(trace: TraceFile) -> TraceFile:
    """Add the table of copy kinds, which nsys from 2023 on takes their names from."""
    trace.execute("CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER PRIMARY KEY, name TEXT, label TEXT)")
    for number, label in enumerate(COPY_KINDS):
        trace.execute(f"INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES ({number}, 'KIND_{number}', '{label}')")
    return trace


def equal_correlation_ids(trace: TraceFile) -> None:
    """Two processes on two GPUs whose calls have the same correlation ids and whose ranges the same names."""
    for place, (process, thread) in enumerate(((PROCESS, THREAD), (OTHER_PROCESS, OTHER_THREAD))):
        trace.domain("app", 1, process=process)
        trace.range("step", 100, 2_000, thread=thread)
        trace.range("half", 100, 900 + place, thread=thread)
        on_gpu = {"globalPid": process, "deviceId": place, "contextId": place + 1}
        for correlation in range(1, 8):
            start = 100 + 250 * (correlation - 1)
            trace.call("cudaLaunchKernel_v7000", start, start + 40, thread=thread, correlation=correlation)
            trace.kernel(
                f"k{correlation % 3}", start + 90 * place, start + 60 + 95 * place, correlation, **on_gpu
            )
        trace.call("cudaMemcpyAsync", 1_900, 1_950, thread=thread, correlation=8)
        trace.memcpy(1_960 + place, 1_999, 8, **on_gpu)


def nested_ranges(trace: TraceFile) -> None:
    """Ranges in and across each other, of one span, open, unnamed, ended elsewhere; launches at edges."""
    trace.domain("app", 1)
    trace.range("outer", 0, 1_000)
    trace.range("inner", 100, 500)
    trace.range("outer", 200, 300, registered=False)
    trace.range("across", 250, 650, event_type=60)
    trace.range("twin a", 700, 800)
    trace.range("twin b", 700, 800)
    trace.range("in a twin", 710, 790)
    trace.range("default", 100, 650, domain=0)
    trace.range("nameless", 0, 990, domain=9)
    trace.range("handed over", 0, 1_000, event_type=60, end_thread=THREAD + 1)
    trace.range("open", 400, None)
    trace.range("idle", 820, 830)
    trace.range("elsewhere", 0, 1_000, thread=THREAD + 1)
    for start, end in ((0, 10), (100, 110), (240, 250), (290, 300), (300, 310), (495, 505), (640, 650)):
        trace.launch(f"k{start % 3}", (start, end), (end + 2_000, end + 2_000 + start))
    for start, end in ((705, 709), (720, 730), (820, 830), (985, 995), (1_000, 1_001), (1_500, 1_510)):
        trace.launch("late", (start, end), (end + 5_000, end + 5_003))
    trace.memset(9_000, 9_010, trace.call("cudaMemsetAsync", 260, 270))
    trace.kernel("no call", 10_000, 10_100, 999_999)
    trace.kernel("no id", 10_200, 10_300, None)


def queue_delays(trace: TraceFile) -> None:
    """Kernels that start before, at and after the return of their call; groups of one; versions."""
    trace.requests((0, 100_000))
    for turn in range(6):
        start = 1_000 * turn
        trace.launch("late", (start, start + 50), (start + 50 + turn * 37, start + 900))
        trace.launch("early", (start + 100, start + 400), (start + 200, start + 250 + turn))
        correlation = trace.call("cuLaunchKernelEx", start + 500, start + 560)
        trace.kernel("mixed", start + 540 + 11 * turn, start + 700, correlation)
    trace.kernel("late", 50_000, 60_000, trace.call("cudaLaunchKernel", 40_000, 40_010))
    trace.kernel("late", 70_000, 70_001, trace.call("cudaLaunchKernel_v10000", 69_000, 70_500))
    trace.kernel("one", 80_000, 80_000, trace.call("cudaLaunchKernel_ptsz", 79_999, 80_000))


def graph_nodes(trace: TraceFile) -> None:
    """Node mode: kernels, a copy and a fill of one launch, in which a nested driver call has its id, too."""
    trace.requests((0, 5_000), (5_000, 10_000))
    for replay in range(2):
        begin = 5_000 * replay
        launch = trace.call("cudaGraphLaunch_v10000", begin, begin + 1_500)
        trace.call("cuGraphLaunch", begin + 10, begin + 1_490, correlation=launch)
        for node in range(5):
            start = begin + 1_000 + 300 * node
            trace.kernel(f"node{node % 2}", start, start + 200 + node, launch, graphNodeId=100 + node)
        trace.memcpy(begin + 2_600, begin + 2_700, launch, graphNodeId=110, copyKind=8)
        trace.memset(begin + 2_800, begin + 2_801, launch, graphNodeId=111)


def gaps(trace: TraceFile) -> None:
    """Streams, devices, processes; gaps of exactly a threshold; the profiler's time; work before time 0."""
    for place, process in enumerate((PROCESS, OTHER_PROCESS)):
        on_gpu = {"globalPid": process, "deviceId": place, "contextId": 5 + place}
        trace.kernel("before", -50, -10, None, **on_gpu)
        trace.kernel("at", 0, 40, None, **on_gpu)
        trace.kernel("a", 100, 300, None, **on_gpu)
        trace.kernel("b", 200, 250, None, **on_gpu, streamId=8)
        trace.memcpy(300, 400, None, **on_gpu)
        trace.memset(400 + MS, 500 + MS, None, **on_gpu)
        trace.kernel("c", 501 + 2 * MS + place, 600 + 2 * MS + place, None, **on_gpu)
        trace.kernel("d", 600 + 7 * MS, 700 + 7 * MS, None, **on_gpu)
        trace.kernel("other device", 5_000, 6_000, None, **(on_gpu | {"deviceId": 7, "contextId": 9}))
        trace.kernel("other device", 2 * MS, 2 * MS + 5, None, **(on_gpu | {"deviceId": 7, "contextId": 9}))
    for name, start, end in (
        ("CUDA profiling overhead", 3 * MS, 4 * MS),
        ("CUDA profiling data flush overhead", 5 * MS, 5 * MS + 10),
        ("CUDA profiling stop overhead", 7 * MS, 8 * MS),
        ("OpenGL profiling overhead", 6 * MS, 6 * MS + 10),
    ):
        trace.insert("PROFILER_OVERHEAD", start=start, end=end, globalTid=THREAD, nameId=trace.string(name))


def calls_and_copies(trace: TraceFile) -> None:
    """Every kind of copy; calls with and without versions; waits for the GPU, and calls that only look so."""
    names = (
        *("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize", "cudaStreamSynchronize_v3020"),
        *(
            "cudaStreamSynchronize_ptsz",
            "cudaEventSynchronize_v3020",
            "cuCtxSynchronize",
            "cuStreamSynchronize",
        ),
        *("cudaMalloc_v3020", "cudaMalloc", "cudaLaunch_v10000", "x"),
    )
    for place, name in enumerate(names * 3):
        trace.call(name, 1_000 * place, 1_000 * place + 7 * place + 1)
    trace.call("cudaStreamSynchronize_v3020", 5, 9, thread=OTHER_THREAD)
    for kind in range(len(COPY_KINDS)):
        for turn in range(kind % 3 + 1):
            trace.memcpy(10_000 * kind, 10_000 * kind + 100 * turn + kind, None, copyKind=kind)
    trace.memset(-500, -100, None)
    trace.memset(500, 900, None)


def hours_and_names(trace: TraceFile) -> None:
    """Kernels from no time at all to an hour; a name with commas and letters; times before 0."""
    trace.requests((-4_000, 10**13))
    hostile = "void f<a, b>('x', y) µ – 漢"  # without double quotes, which nsys does not escape in its CSV
    for turn, duration in enumerate((0, 1, 2, 3_600 * 10**9, 3_600 * 10**9 + 1, 17)):
        start = -4_000 + turn * 10**12
        trace.launch(
            hostile, (start, start + 5), (start + 3, start + 3 + duration), gridX=turn // 2, blockX=32
        )
        trace.launch(
            "k", (start + 6, start + 7), (start + 5, start + 5 + duration), gridX=12_345, blockX=1024
        )


def no_time_at_all(trace: TraceFile) -> None:
    """Everything took 0 ns, so that there is no total to take a share of."""
    trace.requests((10, 10))
    trace.launch("k", (10, 10), (10, 10))
    trace.memset(10, 10, trace.call("cudaMemsetAsync", 10, 10))


def ranges_only(trace: TraceFile) -> None:
    """A program that never touched the GPU."""
    trace.requests((0, 10), (10, 20))


def whole_replays(trace: TraceFile) -> None:
    """Graph mode: replays in place of their kernels, one without a time, beside a kernel of its own."""
    trace.requests((0, 1_000), (1_000, 2_000), (2_000, 3_000))
    trace.launch("input", (100, 150), (200, 250))
    for begin in (300, 1_300):
        trace.replay(begin + 60, begin + 600, trace.call("cudaGraphLaunch_v10000", begin, begin + 50))
    trace.replay(0, 0, trace.call("cudaGraphLaunch_v10000", 2_300, 2_350))
    trace.launch("output", (2_400, 2_450), (2_500, 2_550))


CASES: dict[str, Callable[[TraceFile], None]] = {
    case.__name__: case
    for case in (
        equal_correlation_ids,
        nested_ranges,
        queue_delays,
        graph_nodes,
        gaps,
        calls_and_copies,
        hours_and_names,
        no_time_at_all,
        ranges_only,
    )
}


def build(case: Callable[[TraceFile], None], path: Path, schema: str) -> Path:
    """Write one case in the shape of an export schema."""
    trace = labelled(TraceFile(path, schema))
    case(trace)
    return trace.save()
