"""Two ways to capture and time a forward pass: a CUDA graph on the GPU, or its simulation on the CPU.

The strategies above this module are written once; what differs between a real graph and the recorder that
stands in for it is here and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from inference.capture_guards import (
    LaunchedOn,
    as_capture_error,
    garbage_collection_off,
    generator_kept,
    spoilt_by_failure,
)
from inference.lanes import Pool, new_pool
from inference.simulation import RecordedGraph, record

WARM_UP_CALLS = 3
"""Eager calls before capture: kernels are loaded, plans made and buffers allocated lazily."""


class Graph(Protocol):
    """What a captured forward pass can do."""

    def replay(self) -> None:
        """Run the captured work again on the captured addresses."""

    def reset(self) -> None:
        """Free the graph; it cannot be replayed afterwards."""


class Mark(Protocol):
    """A place in the device's queue of work."""

    def wait(self) -> None:
        """Block the host until the device has passed it."""


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

    def new_pool(self) -> Pool | None:
        """A memory pool that several captures may share, or None where there are none.

        Sharing is safe if whatever a graph leaves behind is copied, within the graph, out of the pool: the
        intermediates of one graph then may overwrite those of another between replays.
        """

    def capture(
        self,
        forward: Callable[[], torch.Tensor],
        pool: Pool | None = None,
        generators: Sequence[torch.Generator] = (),
    ) -> Capture:
        """Warm up, capture one call and return the graph with its static output.

        Random operations of a replay draw from `generators`, reseeded at any time by `manual_seed`, if the
        forward pass names them. After a failure throw them away, with every graph that they serve: torch has
        no way to take one out of a broken capture.

        Raises:
            CaptureError: an operation that a graph cannot hold.
        """

    def host_buffer(self, length: int) -> torch.Tensor:
        """Host memory for int64 numbers, shape (length,), that the device can write without waiting."""

    def mark(self) -> Mark:
        """Mark the end of all work queued on the current stream so far."""

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

    def new_pool(self) -> Pool | None:
        """See `Backend.new_pool`."""
        return new_pool(self.device)

    def capture(
        self,
        forward: Callable[[], torch.Tensor],
        pool: Pool | None = None,
        generators: Sequence[torch.Generator] = (),
    ) -> Capture:
        """See `Backend.capture`. Launches on the caller's stream alone: nothing ever runs on the lane's.

        On an H200 all graphs of a process take up to 10 % longer once a handful of kernels ran on a stream
        other than the default one (docs/prediction.md): warm-up on a side stream, as PyTorch's recipe has
        it, or four captures by `torch.cuda.graph`, each of which writes the seed on the stream it captures.
        cuBLAS's buffer, the reason for the side stream, is the lane's own business.
        """
        pool = pool or new_pool(self.device)
        stream = pool.lane.stream
        pool.lane.prepare()
        for _ in range(WARM_UP_CALLS):
            forward()
        self.synchronize()
        # Capturing starts by emptying the allocator's cache, so do it here too: the growth is then the pool.
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_reserved(self.device)
        graph = _PooledGraph()
        graph.kept = pool
        graph.callers = torch.cuda.current_stream(self.device)
        for generator in generators:
            graph.register_generator_state(generator)
        with (
            garbage_collection_off(),
            as_capture_error(),
            generator_kept(self.device),
            spoilt_by_failure(pool.lane),
            torch.cuda.graph(
                graph,
                pool=pool.handle,  # type: ignore[arg-type]  # a NewType of the tuple
                stream=stream,
                capture_error_mode="thread_local",
            ),
        ):
            output = forward()
        # The first replay uploads the graph to the device: it must not be the first one timed.
        graph.replay()
        self.synchronize()
        return Capture(graph, output, torch.cuda.memory_reserved(self.device) - before_bytes)

    def host_buffer(self, length: int) -> torch.Tensor:
        """See `Backend.host_buffer`: pinned, so that copies into it are asynchronous."""
        return torch.zeros(length, dtype=torch.int64, pin_memory=True)

    def mark(self) -> Mark:
        """See `Backend.mark`: a CUDA event."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return _EventMark(event)

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


class _PooledGraph(torch.cuda.CUDAGraph):
    """Keeps the pool, so that its lane stays taken as long as the graph lives."""

    kept: Pool
    callers: torch.cuda.Stream

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - of this torch version
        """As torch's, but for the seeds that it writes before capturing: on the caller's stream."""
        with LaunchedOn(self.callers):
            super().capture_begin(*args, **kwargs)


@dataclass(frozen=True)
class _EventMark:
    event: torch.cuda.Event

    def wait(self) -> None:
        self.event.synchronize()


class _Passed:
    """The mark of a device that has finished whenever a call returns."""

    def wait(self) -> None:
        """Nothing to wait for."""


class SimulationBackend:
    """The CPU stand-in: operations recorded and replayed under a graph's rules, timed by `perf_counter`."""

    simulated = True

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._start_s = self._end_s = 0.0

    def new_pool(self) -> Pool | None:
        """None: a recording keeps storages of its own."""
        return None

    def capture(
        self,
        forward: Callable[[], torch.Tensor],
        pool: Pool | None = None,  # noqa: ARG002 - of CUDA only
        generators: Sequence[torch.Generator] = (),  # noqa: ARG002
    ) -> Capture:
        """See `Backend.capture`. A replayed operation draws from the generator it was recorded with."""
        graph = RecordedGraph()
        with record(graph):
            output = forward()
        return Capture(graph, output, graph.pool_bytes)

    def host_buffer(self, length: int) -> torch.Tensor:
        """See `Backend.host_buffer`."""
        return torch.zeros(length, dtype=torch.int64)

    def mark(self) -> Mark:
        """See `Backend.mark`."""
        return _Passed()

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
