"""Two ways to capture and time a forward pass: a CUDA graph on the GPU, or its simulation on the CPU.

The strategies above this module are written once; what differs between a real graph and the recorder that
stands in for it is here and nowhere else.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from contract import CaptureError
from inference.blame import blame, root_cause
from inference.simulation import RecordedGraph, record

WARM_UP_CALLS = 3
"""Eager calls on the capture stream before capture: cuBLAS workspaces and lazy allocations happen there."""


class Graph(Protocol):
    """What a captured forward pass can do."""

    def replay(self) -> None:
        """Run the captured work again on the captured addresses."""

    def reset(self) -> None:
        """Free the graph; it cannot be replayed afterwards."""


@dataclass(frozen=True)
class Capture:
    """A captured call. `pool_bytes` is the memory that the graph keeps to itself."""

    graph: Graph
    output: torch.Tensor
    pool_bytes: int


class Backend(Protocol):
    """Capture, timing and synchronisation on one kind of device."""

    device: torch.device
    simulated: bool

    def capture(self, forward: Callable[[], torch.Tensor]) -> Capture:
        """Warm up, capture one call and return the graph with its static output.

        Raises:
            CaptureError: an operation that a graph cannot hold.
        """

    def start_timer(self) -> None:
        """Mark the beginning of the timed region on the current stream."""

    def stop_timer(self) -> None:
        """Mark its end."""

    def elapsed_ms(self) -> float:
        """Milliseconds between the marks; call `synchronize` first."""

    def synchronize(self) -> None:
        """Wait until the device has finished."""


class CudaBackend:
    """CUDA graphs, timed by CUDA events."""

    simulated = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def capture(self, forward: Callable[[], torch.Tensor]) -> Capture:
        """See `Backend.capture`. Warm-up and capture share a side stream, since workspaces are per stream."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                forward()
        stream.synchronize()
        # Capturing starts by emptying the allocator's cache, so do it here too: the growth is then the pool.
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_reserved(self.device)
        graph = torch.cuda.CUDAGraph()
        with (
            _garbage_collection_off(),
            _as_capture_error(),
            _generator_kept(self.device),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            output = forward()
        # The first replay uploads the graph to the device: it must not be the first one timed.
        graph.replay()
        self.synchronize()
        return Capture(graph, output, torch.cuda.memory_reserved(self.device) - before_bytes)

    def start_timer(self) -> None:
        """See `Backend.start_timer`."""
        self._start.record()

    def stop_timer(self) -> None:
        """See `Backend.stop_timer`."""
        self._end.record()

    def elapsed_ms(self) -> float:
        """See `Backend.elapsed_ms`."""
        return float(self._start.elapsed_time(self._end))

    def synchronize(self) -> None:
        """See `Backend.synchronize`."""
        torch.cuda.synchronize(self.device)


class SimulationBackend:
    """The CPU stand-in: operations recorded and replayed under a graph's rules, timed by `perf_counter`."""

    simulated = True

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._start_s = self._end_s = 0.0

    def capture(self, forward: Callable[[], torch.Tensor]) -> Capture:
        """See `Backend.capture`."""
        graph = RecordedGraph()
        with record(graph):
            output = forward()
        return Capture(graph, output, graph.pool_bytes)

    def start_timer(self) -> None:
        """See `Backend.start_timer`."""
        self._start_s = time.perf_counter()

    def stop_timer(self) -> None:
        """See `Backend.stop_timer`."""
        self._end_s = time.perf_counter()

    def elapsed_ms(self) -> float:
        """See `Backend.elapsed_ms`."""
        return (self._end_s - self._start_s) * 1e3

    def synchronize(self) -> None:
        """Nothing to wait for: the CPU has finished when a call returns."""


def make_backend(device: torch.device) -> Backend:
    """The backend of a device: real graphs on CUDA, the simulation elsewhere."""
    return CudaBackend(device) if device.type == "cuda" else SimulationBackend()


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """A collection during capture may free CUDA memory, which is not permitted there."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _generator_kept(device: torch.device) -> Iterator[None]:
    """A capture that breaks leaves the random generator believing in it for good: swap its state out."""
    generator = torch.cuda.default_generators[torch.device(device).index or 0]
    spare = generator.clone_state()
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(spare)
        raise


@contextmanager
def _as_capture_error() -> Iterator[None]:
    """Turn what CUDA says of a broken capture into one line that names the operation and its source line."""
    try:
        yield
    except RuntimeError as error:
        first = root_cause(error)
        if isinstance(first, torch.cuda.OutOfMemoryError):
            raise first from None
        raise CaptureError(
            f"capture failed at {blame(error)}; keep host reads and host data out of the forward pass"
        ) from error
