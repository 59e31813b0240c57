"""What else there is against launch costs: torch.compile and torch's own graphed callables.

They are called as a user writes it, and given what a user gives them: the model with its usual attention and,
where it takes that, the wish for the last token's logits alone. None of them is tuned here.
"""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, cast

import torch
from torch import nn
from torch._inductor.utils import fresh_cache
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference.backends import Backend
from inference.calling import Logits

CompileMode = Literal["default", "reduce-overhead"]
"""torch.compile's names: fused kernels launched one by one, or those in CUDA graphs."""

FIRST_CALLS = 3
"""Calls after which torch.compile is done: it compiles, records its graph, and replays it once."""

_REMEDY = "measure the other strategies, or use another torch"


class LastLogits(nn.Module):
    """A causal LM as a function of token ids alone, (1, n), to the last token's logits, (1, vocabulary)."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        takes = inspect.signature(model.forward).parameters
        self._more = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self.eval()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Run the model without a mask or a cache."""
        logits = self.model(input_ids=input_ids, use_cache=False, **self._more).logits
        assert isinstance(logits, torch.Tensor)
        return logits[:, -1]


class Compiled:
    """torch.compile of the model for one prompt length.

    Attributes:
        compile_s: seconds from the first call to the end of the third, nothing taken from a cache on disk:
            compiling, and for `reduce-overhead` warm-up and capture as well.
    """

    logits: Logits = "last"
    capture_s: float | None = None
    pool_bytes: int | None = None
    attention_mask: str | None = None

    def __init__(self, model: PreTrainedModel, length: int, backend: Backend, mode: CompileMode) -> None:
        """Compile for prompts of `length` tokens.

        Raises:
            LaunchgapError: whatever the compiler says, on one line.
            torch.cuda.OutOfMemoryError: no memory.
        """
        self._device = backend.device
        self._steps = mode == "reduce-overhead"
        self._compiled = torch.compile(LastLogits(model), mode=mode, dynamic=False)
        self._ids = torch.zeros((1, length), dtype=torch.int64, device=self._device)
        backend.synchronize()
        start_s = time.perf_counter()
        with fresh_compiler():
            for _ in range(FIRST_CALLS):
                self.run()
                backend.synchronize()
        self.compile_s: float | None = time.perf_counter() - start_s

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """See `ForwardStrategy.copy_in`."""
        self._ids = input_ids.to(self._device, non_blocking=True)

    @torch.no_grad()
    def run(self) -> torch.Tensor:
        """See `ForwardStrategy.run`.

        Raises:
            LaunchgapError: whatever the compiler says, on one line.
            torch.cuda.OutOfMemoryError: no memory.
        """
        try:
            if self._steps:
                torch.compiler.cudagraph_mark_step_begin()
            return cast(torch.Tensor, self._compiled(self._ids))
        except torch.cuda.OutOfMemoryError:
            raise
        except (
            Exception
        ) as error:  # Dynamo, Inductor, Triton and a C++ compiler each have errors of their own
            raise _refusal("torch.compile", error) from error

    def close(self) -> None:
        """Let go of the compiled code; `compilers_reset` frees what torch keeps of it."""
        del self._compiled


class GraphedCallable:
    """torch.cuda.make_graphed_callables around the model, at one prompt length.

    It warms up and captures by itself, and hands every parameter to autograd at each call.
    """

    logits: Logits = "last"
    compile_s: float | None = None
    attention_mask: str | None = None

    def __init__(self, model: PreTrainedModel, length: int, backend: Backend) -> None:
        """Capture for prompts of `length` tokens.

        Raises:
            LaunchgapError: whatever torch says of a broken capture, on one line.
            torch.cuda.OutOfMemoryError: no memory.
        """
        self._device = backend.device
        self._ids = torch.zeros((1, length), dtype=torch.int64, device=self._device)
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_reserved(self._device)
        start_s = time.perf_counter()
        try:
            # The sample becomes the static input, so it must not be the tensor that prompts are copied to.
            with torch.no_grad():
                self._graphed = torch.cuda.make_graphed_callables(LastLogits(model), (self._ids.clone(),))
                self._graphed(self._ids)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            raise _refusal("make_graphed_callables", error) from error
        backend.synchronize()
        self.capture_s: float | None = time.perf_counter() - start_s
        self.pool_bytes: int | None = torch.cuda.memory_reserved(self._device) - before_bytes

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """See `ForwardStrategy.copy_in`."""
        self._ids = input_ids.to(self._device, non_blocking=True)

    @torch.no_grad()
    def run(self) -> torch.Tensor:
        """See `ForwardStrategy.run`."""
        return cast(torch.Tensor, self._graphed(self._ids))

    def close(self) -> None:
        """Free the graph: torch's wrapper around it is a cycle, which waits for a collection."""
        del self._graphed
        gc.collect()


@contextmanager
def compilers_reset() -> Iterator[None]:
    """Forget all compiled code before and after: peers share code, and torch keeps at most a few versions."""
    torch.compiler.reset()
    try:
        yield
    finally:
        torch.compiler.reset()


@contextmanager
def fresh_compiler() -> Iterator[None]:
    """Compile with empty caches, on disk as well, so that its time does not depend on what ran before."""
    failure = None
    with fresh_cache():
        try:
            yield
        except Exception as error:  # in sight of an error torch would keep its folder, and log where
            failure = error
    if failure is not None:
        raise failure


def refuse_simulation(backend: Backend) -> None:
    """Say that a peer needs a GPU.

    Raises:
        LaunchgapError: the backend is the simulation.
    """
    if backend.simulated:
        raise LaunchgapError(
            "torch.compile and graphed callables need CUDA, since the simulation records single operations; "
            "run it on a GPU, or choose other strategies"
        )


def _refusal(what: str, error: Exception) -> LaunchgapError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return LaunchgapError(
        f"{what} failed ({type(error).__name__}: {lines[0] if lines else 'no reason'}); {_REMEDY}"
    )
