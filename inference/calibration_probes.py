"""Operations that do as little as an operation can, to see what it costs to launch them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from contract import LaunchgapError
from contract.calibration import NodeKind

SMALL = "small"
"""The kernel that the probes of fills and copies take turns with."""

_SMALL_NUMBERS = 50 * 768
"""Activations of gpt2 for 50 tokens: a few dozen blocks that wait for what the last kernel wrote."""

_WIDE_NUMBERS = 2**20
"""Enough blocks for every multiprocessor, in a buffer that stays in the cache."""

_HOLD_CYCLES = 3_000_000

_FILL_BYTES = 256
"""As cuBLAS clears them for a split sum."""


@dataclass(frozen=True)
class Probe:
    """One operation to repeat.

    Attributes:
        kind: of the operation that is looked at; `layer` for all operations of a decoder layer.
        kinds: what a step launches, in order; empty where only a recording can tell.
        step: launch it, given its place in the chain from 0; a fill or a copy comes after one kernel of the
            probe `small`.
    """

    name: str
    kind: NodeKind | Literal["layer"]
    kinds: tuple[NodeKind, ...]
    step: Callable[[int], object]

    def chain(self, steps: int) -> Callable[[], torch.Tensor]:
        """A function that launches so many steps and gives an empty tensor, as a capture wants one."""
        nothing = torch.empty(0)

        def forward() -> torch.Tensor:
            for number in range(steps):
                self.step(number)
            return nothing

        return forward


def make_probes(device: torch.device) -> tuple[Probe, ...]:
    """All probes. `empty` touches no memory at all; on the CPU a sum of one number stands in for it.

    Raises:
        LaunchgapError: CUDA's driver library cannot be loaded.
    """
    one = torch.zeros(1, device=device)
    small = torch.zeros(_SMALL_NUMBERS, device=device)
    copied = torch.zeros_like(small)
    wide = torch.zeros(_WIDE_NUMBERS, device=device)
    fill = _filler(torch.zeros(_FILL_BYTES, dtype=torch.uint8, device=device))

    def empty_step(_: int) -> object:
        return torch.cuda._sleep(0) if device.type == "cuda" else one.add_(1.0)

    def small_step(_: int) -> object:
        return small.add_(1.0)

    def fill_step(_: int) -> None:
        small.add_(1.0)
        fill()

    def copy_step(_: int) -> object:
        small.add_(1.0)
        return copied.copy_(small)

    return (
        Probe("empty", "kernel", ("kernel",), empty_step),
        Probe(SMALL, "kernel", ("kernel",), small_step),
        Probe("wide", "kernel", ("kernel",), lambda _: wide.add_(1.0)),
        Probe("memset", "memset", ("kernel", "memset"), fill_step),
        Probe("memcpy", "memcpy", ("kernel", "memcpy"), copy_step),
    )


def hold(device: torch.device) -> None:
    """Keep the GPU busy for one or two milliseconds: what is launched meanwhile waits in the queue."""
    if device.type == "cuda":
        torch.cuda._sleep(_HOLD_CYCLES)


def _filler(buffer: torch.Tensor) -> Callable[[], object]:
    """A function that fills a buffer by the driver's own fill: torch's `zero_` launches a kernel on a GPU."""
    if buffer.device.type != "cuda":
        return buffer.zero_
    try:
        memset = ctypes.CDLL("libcuda.so.1").cuMemsetD8Async
    except (OSError, AttributeError) as error:
        raise LaunchgapError(f"calibrate: CUDA's driver cannot be loaded ({error}); reinstall it") from error
    memset.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]
    memset.restype = ctypes.c_int

    def fill() -> None:
        stream = torch.cuda.current_stream(buffer.device).cuda_stream
        status = memset(buffer.data_ptr(), 0, buffer.nbytes, stream)
        if status:
            raise LaunchgapError(f"calibrate: cuMemsetD8Async failed with CUDA error {status}; try again")

    return fill
