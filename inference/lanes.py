"""Streams to capture on, each with scratch space for cuBLAS that nobody can take away from a graph.

cuBLAS works in a buffer that torch allocates for each stream, outside of any graph's pool, at the first
matrix product on it. A graph keeps the buffer's address, and torch does not know: `torch.compile` with
`mode="reduce-overhead"`, which `generate` uses for a static cache, gives all such buffers back whenever it
records (`torch._C._cuda_clearCublasWorkspaces`). Graphs captured before would go on writing to memory that
by then is another's, or no longer there.

So the buffers are allocated here, in a pool of their own, where they stay mapped and of no use to anyone else
even when they are given back. No kernel is launched on the lane for that: on an H200 a handful of them on any
stream but the default one makes every graph of the process slower (docs/prediction.md). Who captures borrows
a lane for as long as its graphs live: two that may run at the same time never share a buffer.
"""

from __future__ import annotations

import ctypes
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

_LEAST_BUFFER_BYTES = 2**20

_buffers: dict[torch.device, torch.cuda.MemPool] = {}
_free: dict[torch.device, list[Lane]] = {}
_in_use: set[int] = set()
_lock = threading.Lock()


@dataclass(eq=False)
class Lane:
    """A stream whose cuBLAS buffer lies where nobody else allocates.

    `usable` is False once a capture on it broke: what that leaves behind is not to be met again.
    """

    stream: torch.cuda.Stream
    usable: bool = True

    def prepare(self) -> None:
        """Have the buffer allocated, if it was given back or if this thread has none yet."""
        device = self.stream.device
        with torch.cuda.use_mem_pool(_buffer_pool(device), device), torch.cuda.stream(self.stream):
            torch.cuda.current_blas_handle()


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
        before_bytes = torch.cuda.memory_allocated(device)
        lane = Lane(stream)
        lane.prepare()
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


def _buffer_pool(device: torch.device) -> torch.cuda.MemPool:
    """The pool of all cuBLAS buffers on a device, which is never taken down, not even when Python ends.

    Once a capture broke, torch (2.11) ends the process in the destructor of any pool.
    """
    if device not in _buffers:
        pool = _buffers[device] = torch.cuda.MemPool()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return _buffers[device]
