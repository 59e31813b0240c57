"""Streams to capture on, each with scratch space for cuBLAS that nobody can take away from a graph.

cuBLAS works in a buffer that torch allocates for each stream, outside of any graph's pool, at the first
matrix product on it. A graph keeps the buffer's address, and torch does not know: `torch.compile` with
`mode="reduce-overhead"`, which `generate` uses for a static cache, gives all such buffers back whenever it
records (`torch._C._cuda_clearCublasWorkspaces`). Graphs captured before would go on writing to memory that
by then is another's, or no longer there.

So the buffer is made to be allocated inside a small pool of its own, by capturing matrix products that are
never replayed. Given back, it stays there, mapped and of no use to anyone else. Whoever captures borrows a
lane for as long as its graphs live: two graphs that may run at the same time never share a buffer.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from contract import CaptureError

logger = logging.getLogger(__name__)

Handle = tuple[int, int]
"""A memory pool, as `torch.cuda.graph_pool_handle` gives it."""

_STREAMS = 32
"""Streams of a priority that torch hands out in turn before the first one comes again."""

_PRIORITIES = (0, -1, -2, -3)
"""CUDA's priorities that torch has streams for; they matter only between graphs that run at the same time."""

_SIDE = 64
"""Rows and columns of the products that make cuBLAS ask for its buffer."""

_LEAST_BUFFER_BYTES = 2**20

_free: dict[torch.device, list[Lane]] = {}
_in_use: set[int] = set()
_lock = threading.Lock()


@dataclass(eq=False)
class Lane:
    """A stream, and the pool that its cuBLAS buffer lies in, kept alive by an anchor.

    `usable` is False once a capture on it broke: what that leaves behind is not to be met again.
    """

    stream: torch.cuda.Stream
    handle: Handle
    anchor: torch.cuda.CUDAGraph
    usable: bool = True
    served: bool = False

    def prepare(self, *, just_made: bool = False) -> None:
        """Have the buffer allocated again if it was given back, or if this thread has none yet.

        `just_made`: this thread has asked for the lane a moment ago, and a new one needs nothing.
        """
        if self.served or not just_made:
            _capture_products(self.stream, self.handle)
        self.served = True


@dataclass(eq=False)
class Pool:
    """A memory pool that several captures may share, and the lane that they take."""

    lane: Lane
    handle: Handle = field(default_factory=torch.cuda.graph_pool_handle)


def new_pool(device: torch.device) -> Pool:
    """An empty pool on a lane that nobody else has; the lane is free again when the pool is forgotten."""
    with torch.cuda.device(device):
        with _lock:
            waiting = _free.setdefault(device, [])
            lane = waiting.pop() if waiting else None
        pool = Pool(lane or _make_lane(device))
    weakref.finalize(pool, _give_back, device, pool.lane)
    return pool


def _give_back(device: torch.device, lane: Lane) -> None:
    # No lock: a finalizer may run in the middle of anything, and appending is atomic.
    if lane.usable:
        _free[device].append(lane)


def _make_lane(device: torch.device) -> Lane:
    """A stream that no graph of ours has and that had no buffer yet, if there is one left.

    Raises:
        CaptureError: every stream is taken.
    """
    lane = None
    for stream in _unused_streams(device):
        handle = torch.cuda.graph_pool_handle()
        before_bytes = torch.cuda.memory_allocated(device)
        lane = Lane(stream, handle, _capture_products(stream, handle))
        if torch.cuda.memory_allocated(device) - before_bytes >= _LEAST_BUFFER_BYTES:
            break
    else:
        # All have seen products before, or cuBLAS was told to do without (CUBLAS_WORKSPACE_CONFIG).
        logger.debug("no stream without a cuBLAS buffer of its own is left")
    if lane is None:
        raise CaptureError(
            f"no stream is left to capture on: {len(_in_use)} are held by open runners or were spoilt by "
            "captures that broke; close runners that are not needed, or start a new process"
        )
    _in_use.add(lane.stream.cuda_stream)
    return lane


def _unused_streams(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """Streams that no graph of ours has, of the first priority with any; torch makes each when asked."""
    for priority in _PRIORITIES:
        any_left = False
        for _ in range(_STREAMS):
            stream = torch.cuda.Stream(device, priority=priority)
            if stream.cuda_stream not in _in_use:
                any_left = True
                yield stream
        if any_left:
            return


def _capture_products(stream: torch.cuda.Stream, handle: Handle) -> torch.cuda.CUDAGraph:
    """Capture products through cuBLAS and cuBLASLt into a pool; run once first, since both load lazily."""
    with torch.inference_mode(False), torch.no_grad():
        square = torch.zeros((_SIDE, _SIDE), device=stream.device)
        _multiply(square)
        torch.cuda.synchronize(stream.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=handle, capture_error_mode="thread_local")  # type: ignore[arg-type]
            try:
                _multiply(square)
            finally:
                graph.capture_end()
    return graph


def _multiply(square: torch.Tensor) -> None:
    torch.mm(square, square)
    torch.addmm(square[0], square, square)
