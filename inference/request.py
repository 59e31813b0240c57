"""One request, measured the same way whether a profiler watches or not."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import torch

from contract import LaunchgapError, RangeName
from inference.annotate import Annotate, nothing
from inference.backends import Backend
from inference.strategies import ForwardStrategy


@dataclass(frozen=True)
class RequestTimes:
    """Milliseconds: the forward pass or replay by CUDA events, and the whole request by the host's clock."""

    event_ms: float
    wall_ms: float


def run_request(
    strategy: ForwardStrategy,
    input_ids: torch.Tensor,
    backend: Backend,
    *,
    forward_range: RangeName = RangeName.FORWARD,
    annotate: Annotate = nothing,
) -> RequestTimes:
    """Copy the prompt in, run it once, wait for it, and say how long both took.

    As a service would, nothing waits between the copy and the launch. The stream keeps their order, so
    `event_ms` begins when the copy has ended on the device and holds nothing of it; what the host needs to
    launch the first work may overlap the copy, for every strategy alike. `wall_ms` holds everything.
    """
    with annotate(RangeName.REQUEST):
        start_s = perf_counter()
        with annotate(RangeName.COPY):
            strategy.copy_in(input_ids)
        with annotate(forward_range):
            backend.start_timer()
            strategy.run()
            backend.stop_timer()
        with annotate(RangeName.SYNCHRONIZE):
            backend.synchronize()
        wall_ms = (perf_counter() - start_s) * 1e3
    return RequestTimes(backend.elapsed_ms(), wall_ms)


def random_prompt(length: int, vocab_size: int, generator: torch.Generator) -> torch.Tensor:
    """Fresh random token ids on the host, shape (1, length), int64."""
    return torch.randint(vocab_size, (1, length), generator=generator)


def as_prompt(input_ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Token ids as shape (1, n).

    Raises:
        LaunchgapError: no integers, more than one sequence, none at all, or an id outside the vocabulary,
            which on the GPU would poison the process.
    """
    if input_ids.is_floating_point() or input_ids.is_complex() or input_ids.dtype is torch.bool:
        raise LaunchgapError(
            f"input_ids of {input_ids.dtype}: token ids are integers; tokenise the text first"
        )
    if input_ids.dim() not in (1, 2) or (input_ids.dim() == 2 and input_ids.shape[0] != 1):
        raise LaunchgapError(
            f"input_ids of shape {tuple(input_ids.shape)}: batch size is 1; give shape (1, n)"
        )
    prompt = input_ids.reshape(1, -1)
    if prompt.numel() == 0:
        raise LaunchgapError("input_ids are empty; give at least one token")
    low, high = int(prompt.min()), int(prompt.max())
    if low < 0 or high >= vocab_size:
        raise LaunchgapError(
            f"token id {low if low < 0 else high}: outside the vocabulary of {vocab_size}; "
            "use the model's own tokeniser"
        )
    return prompt
