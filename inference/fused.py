"""A forward pass as Inductor compiles it, fewer and larger kernels, for a capture of our own.

`torch.compile` by itself checks its guards and calls each kernel from Python on every request, and its own
CUDA graphs (`mode="reduce-overhead"`) keep the guards and copy inputs. Captured here, a request costs one
launch, and neither Dynamo nor Inductor is on its path. The price is paid once for each captured length: tens
of seconds of compiling.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch._inductor
from torch._dynamo.exc import TorchDynamoException
from torch.fx import GraphModule

from contract import CaptureError
from inference.backends import Backend
from inference.blame import first_line, is_users, place_of
from inference.merging import Compiler, MergingCompiler
from inference.tuning import timed_by_the_gpu

logger = logging.getLogger(__name__)

Pass = Callable[[], torch.Tensor]
"""A forward pass over static storage."""

_TUNED: dict[str, bool] = {
    "coordinate_descent_tuning": True,
    "coordinate_descent_check_all_directions": True,
}
"""Matrices times one vector, the whole of a decoding step, reach the memory's bandwidth only when tuned.

Along one direction at a time the search ends now in one optimum, now in another: the last logits of gpt2 took
23 to 62 us on an H200.
"""

_OVERLAPPED: dict[str, bool] = {"triton.enable_pdl": True}
"""Programmatic dependent launch: a kernel starts up while another one ends. From compute capability 9."""


def fuse(forward: Pass, backend: Backend) -> tuple[Pass, float]:
    """Compile a pass for the shapes and addresses it reads, and run it once.

    Products of one input are merged where their weights lie side by side, unless that does not compile; see
    `inference.merging`. In the simulation the pass is traced, merged and run as it was traced, so that what
    Dynamo refuses is refused there too, and given back as it was: compiled kernels cannot be recorded one
    operation at a time.

    Returns:
        The compiled pass and the seconds that it took.

    Raises:
        CaptureError: not all of it can be traced or compiled; names the operation and the line.
        torch.cuda.OutOfMemoryError: no memory for the trials of tuning.
    """
    compiler: Compiler = _as_traced if backend.simulated else partial(_inductor, backend.device)
    merging = MergingCompiler(compiler)
    start_s = time.perf_counter()
    try:
        compiled = _compiled(forward, merging, backend.device)
    except CaptureError as error:
        if not merging.merged:
            raise
        logger.warning("compiled again with every product by itself: %s", error)
        compiled = _compiled(forward, compiler, backend.device)
    else:
        logger.debug("%d products became %d", sum(merging.merged), len(merging.merged))
    backend.synchronize()
    seconds = time.perf_counter() - start_s
    return (forward if backend.simulated else compiled), seconds


def _compiled(forward: Pass, compiler: Compiler, device: torch.device) -> Pass:
    """The compiled pass, run once.

    Raises:
        CaptureError: see `fuse`.
    """
    compiled = torch.compile(_with_code_of_its_own(forward), backend=compiler, fullgraph=True, dynamic=False)
    try:
        with timed_by_the_gpu(device):
            compiled()
    except (TorchDynamoException, RuntimeError) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        raise CaptureError(f"cannot be compiled: {_refusal(error)}; use fused=False") from error
    return compiled


def _as_traced(module: GraphModule, _: list[Any]) -> Callable[..., object]:
    return module.forward


def _inductor(device: torch.device, module: GraphModule, inputs: list[Any]) -> Callable[..., object]:
    compiled: Callable[..., object] = torch._inductor.compile(module, inputs, options=_options(device))
    return compiled


def _options(device: torch.device) -> dict[str, bool]:
    """Inductor's settings for this device."""
    return _TUNED | (_OVERLAPPED if torch.cuda.get_device_capability(device) >= (9, 0) else {})


def _refusal(error: Exception) -> str:
    """The line that Dynamo stopped at and why, or what Inductor said."""
    reason = getattr(error, "inner_exception", error)  # of a backend: the outer one names only which
    said = first_line(reason)
    frames = [f for f in getattr(error, "real_stack", None) or () if is_users(f.filename)]
    return f"{place_of(frames[-1].filename, frames[-1].lineno or 0)} ({said})" if frames else said


def _with_code_of_its_own(forward: Pass) -> Pass:
    """The same function with another code object, where Dynamo keeps what it compiled.

    All captures run the same few lines over other objects: sharing their code, they would reach Dynamo's
    limit of recompilations, and nothing compiled would be freed with the capture that it was made for.
    """
    assert isinstance(forward, FunctionType)
    return FunctionType(
        forward.__code__.replace(),
        forward.__globals__,
        forward.__name__,
        forward.__defaults__,
        forward.__closure__,
    )
