"""Builds traces as torch.profiler writes them, event by event.

The shape of each event follows libkineto: `output_json.cpp` (handleActivity, finalizeTrace) and the
`metadataJson` of `CuptiActivity.cpp` with the field names of `CudaMetadataFields.h`; that of a range is
copied from a CPU profile of torch 2.13. Time stamps count from 1970, as older versions have it: a float would
lose their nanoseconds.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

BASE_US = 1_790_857_026_000_000
PID, TID, STREAM = 15019, 15021, 7

Event = dict[str, Any]


def us(ns: int) -> str:
    """A time stamp as libkineto prints it."""
    return f"{BASE_US + ns // 1000}.{ns % 1000:03d}"


class ChromeFile:
    """A trace under construction. Times are ns after the base; correlation ids are given out by `call`."""

    def __init__(self, **about: object) -> None:
        self.events: list[tuple[Event, int, int | None]] = []
        self._about = about
        self._next_correlation = 1

    def add(self, cat: str, name: str, start: int, end: int | None, **more: object) -> None:
        """An `X` event; `pid`, `tid` and `args` in `more`."""
        event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": TID} | more
        self.events.append((event, start, end))

    def range(self, name: str, start: int, end: int, **args: object) -> None:
        """A `record_function` range."""
        told = {"External id": 1, "Record function id": 0, "Ev Idx": 0} | args
        self.add("user_annotation", name, start, end, args=told)

    def call(self, name: str, start: int, end: int, cat: str = "cuda_runtime", **more: object) -> int:
        """A CUDA call; returns its correlation id."""
        correlation = self._next_correlation
        self._next_correlation += 1
        self.add(cat, name, start, end, args={"cbid": 211, "correlation": correlation}, **more)
        return correlation

    def kernel(self, name: str, start: int, end: int, correlation: int, **args: object) -> None:
        more = {"registers per thread": 16, "shared memory": 0, "blocks per SM": 0.5, "warps per SM": 2.0}
        shape = {"grid": [2, 3, 4], "block": [128, 1, 1], "est. achieved occupancy %": 0}
        self.work("kernel", name, start, end, correlation, **(more | shape | {"queued": 0} | args))

    def memcpy(self, start: int, end: int, correlation: int, kind: str = "HtoD", **args: object) -> None:
        name = f"Memcpy {kind} (Pageable -> Device)"
        size = {"bytes": 400, "memory bandwidth (GB/s)": 0.2}
        self.work("gpu_memcpy", name, start, end, correlation, **(size | args))

    def memset(self, start: int, end: int, correlation: int, **args: object) -> None:
        size = {"bytes": 16, "memory bandwidth (GB/s)": 0.1}
        self.work("gpu_memset", "Memset (Device)", start, end, correlation, **(size | args))

    def work(self, cat: str, name: str, start: int, end: int, correlation: int, **args: object) -> None:
        device = args.get("device", 0)
        common = {"External id": 9, "device": device, "context": 1, "stream": STREAM}
        told = common | {"correlation": correlation} | args
        self.add(cat, name, start, end, pid=device, tid=STREAM, args=told)

    def launch(self, kernel: str, call: tuple[int, int], run: tuple[int, int], **args: object) -> None:
        """A cudaLaunchKernel call and the kernel that it started."""
        self.kernel(kernel, run[0], run[1], self.call("cudaLaunchKernel", *call), **args)

    def text(self) -> str:
        """The whole document."""
        about = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 1}],
            "cupti_version": 26,
            "trace_id": "C29F50FE467942DE8160DCC58E42BEDB",
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        } | self._about
        lines = [self._line(*event) for event in self.events]
        noise = [
            '{"ph":"X","cat":"Trace","ts":1.000,"dur":2.000,"pid":"Spans","tid":"Profiler","name":"s"}',
            '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":15019,"tid":15021,"ts":1.000,"dur":2.000}',
            '{"ph":"X","cat":"gpu_user_annotation","name":"request","pid":0,"tid":7,"ts":1.000,"dur":2.000}',
            '{"ph":"s","id":1,"pid":15019,"tid":15021,"ts":1.000,"cat":"ac2g","name":"ac2g"}',
            '{"name":"Record Window End","ph":"i","s":"g","pid":"","tid":"","ts":9.000}',
        ]
        head = json.dumps(about, indent=2)[:-2]
        return f'{head},\n"traceEvents": [\n' + ",\n".join(lines + noise) + '\n], "traceName": "t.json"\n}'

    def save(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    @staticmethod
    def _line(event: Event, start: int, end: int | None) -> str:
        times = f', "ts": {us(start)}'
        if end is not None:
            times += f', "dur": {(end - start) // 1000}.{(end - start) % 1000:03d}'
        return json.dumps(event)[:-1] + times + "}"


def eager_and_graph() -> ChromeFile:
    """Two requests: one of two launched kernels and a copy, one replay of three kernels and a fill."""
    file = ChromeFile()
    file.range("warm-up", 0, 900)
    file.launch("warm", (100, 200), (300, 400))
    file.range("request", 1_000, 9_000)
    file.memcpy(1_500, 1_700, file.call("cudaMemcpyAsync", 1_100, 1_300))
    file.range("forward", 2_000, 6_000)
    file.launch("void gemm<float>(float*)", (2_100, 2_300), (2_501, 3_508))
    triton = file.call("cuLaunchKernelEx", 2_400, 2_600, cat="cuda_driver")
    file.kernel("triton_red_fused_0", 3_600, 3_999, triton)
    file.call("cudaStreamSynchronize", 6_100, 8_000)
    file.range("request", 10_000, 19_000)
    graph = file.call("cudaGraphLaunch", 11_000, 12_000)
    for position in range(3):
        start = 13_000 + 100 * position
        file.kernel("void gemm<float>(float*)", start, start + 90, graph)
    file.memset(13_300, 13_310, graph)
    return file
