"""Runs `python -m analysis` in this process or one of its own; the small traces that its tests look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from analysis.__main__ import main
from tests.analysis.trace_file import PROCESS, THREAD, TraceFile
from tests.in_process import ROOT, Ran, in_process

OTHER_PROCESS = (1 << 48) | (4322 << 24)
OTHER_THREAD = OTHER_PROCESS | 4322


def analysis(*words: str | Path) -> Ran:
    """What `python -m analysis WORDS` does, in this process; `analysis_process` is for what needs its own."""
    return in_process(main, *words)


def analysis_process(*words: str | Path, **environ: str) -> Ran:
    """`python -m analysis WORDS` as a shell runs it."""
    command = [sys.executable, "-m", "analysis", *map(str, words)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, timeout=120, check=False, env=environ or None
    )
    # surrogateescape: a test may look at bytes that are no UTF-8.
    texts = [part.decode("utf-8", "surrogateescape") for part in (done.stdout, done.stderr)]
    assert "Traceback" not in texts[1], texts[1]
    return Ran(done.returncode, *texts)


def busy_trace(folder: Path) -> Path:
    """Two processes on two devices, nested and lonely ranges, an open one, and a graph replayed node by node.

    Process 4321, device 0: three steps of 1000 ns at 0, 2000 and 4000, each with a forward inside that
    launches two kernels and copies once, and a replay of a graph of two kernels after it. A `load` range
    launches nothing. Process 4322, device 1: one kernel, with a correlation id that the other uses as well.
    """
    file = TraceFile(folder / "busy.sqlite")
    file.insert("TARGET_INFO_GPU", id=0, name="GPU zero")
    file.insert("TARGET_INFO_GPU", id=1, name="GPU one")
    file.insert("PROCESSES", globalPid=PROCESS, pid=4321, name="serve")
    file.insert("PROCESSES", globalPid=PROCESS + (9 << 24), pid=4330, name="idle neighbour")
    file.insert("META_DATA_CAPTURE", name="PROCESS_0:COLLECT_CUDA_TRACE", value="true")
    file.insert("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT", value="TOKEN=hunter2")
    file.domain("engine", 1)
    for start in (0, 2000, 4000):
        file.range("step", start, start + 1000)
        file.range("forward", start + 100, start + 600)
        file.launch("gemm<float>", (start + 110, start + 120), (start + 130, start + 180))
        file.launch("gemm<float>", (start + 150, start + 160), (start + 170, start + 220))
        file.memcpy(start + 230, start + 240, file.call("cudaMemcpyAsync_v3020", start + 200, start + 210))
        replay = file.call("cudaGraphLaunch_v10000", start + 700, start + 720)
        for node in (1, 2):
            begin = start + 700 + 50 * node
            file.kernel("node", begin, begin + 40, replay, graphNodeId=node)
    file.range("load", -900, -800, domain=0)
    file.range("forward", 5000, None)
    file.launch("other", (10, 20), (30, 90), deviceId=1, globalPid=OTHER_PROCESS)
    file.execute(
        f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = {OTHER_THREAD}, correlationId = 1 "
        "WHERE start = 10 AND end = 20"
    )
    file.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 1 WHERE globalPid = {OTHER_PROCESS}")
    return file.save()


__all__ = ["ROOT", "THREAD", "Ran", "analysis", "analysis_process", "busy_trace"]
