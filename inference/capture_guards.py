"""What a capture on CUDA needs around it: nothing freed meanwhile, and a clean process when it breaks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from contract import CaptureError, LaunchgapError
from inference.blame import blame, blamed_place, first_line, root_cause
from inference.lanes import Lane


@contextmanager
def garbage_collection_off() -> Iterator[None]:
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
def generator_kept(device: torch.device) -> Iterator[None]:
    """A capture that breaks leaves the random generator believing in it for good: swap its state out."""
    generator = torch.cuda.default_generators[torch.device(device).index or 0]
    spare = generator.clone_state()
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(spare)
        raise


@contextmanager
def spoilt_by_failure(lane: Lane) -> Iterator[None]:
    """A lane that a capture broke on is not used again."""
    try:
        yield
    except BaseException:
        lane.usable = False
        raise


@contextmanager
def as_capture_error() -> Iterator[None]:
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


@contextmanager
def refusing_failures() -> Iterator[None]:
    """Turn an error of the model's own, on inputs as a graph needs them, into a refusal that names it."""
    try:
        yield
    except (LaunchgapError, torch.cuda.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        first = root_cause(error)
        what = f"{type(first).__name__}: {first_line(first)}"
        raise CaptureError(f"the model fails at {blamed_place(error)}: {what}") from error


class LaunchedOn(TorchDispatchMode):
    """Operations run on this stream, whatever the current one is, also those that torch's C++ asks for."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stream = stream

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation gives
        """See torch."""
        with torch.cuda.stream(self._stream):
            return func(*args, **(kwargs or {}))
