"""One request, measured the same way whether a profiler watches or not."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from contract import LaunchgapError, RangeName
from inference.annotate import Annotate, nothing
from inference.backends import Backend
from inference.strategies import ForwardStrategy

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


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
    if not isinstance(input_ids, torch.Tensor):
        raise LaunchgapError(f"input_ids of type {type(input_ids).__name__}: give a tensor of token ids")
    if not _is_plain(input_ids):
        raise LaunchgapError("input_ids are sparse or nested; give a plain tensor of token ids")
    if input_ids.dtype not in _INTEGERS:
        raise LaunchgapError(
            f"input_ids of {input_ids.dtype}: token ids are integers, int64 best; tokenise the text first"
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


def host_tokens(input_ids: torch.Tensor, vocab_size: int) -> NDArray[np.int64]:
    """Token ids as `as_prompt` takes them, checked, on the host, shape (n,): where microseconds count.

    Ids on a device are brought to the host, which waits for that device: they cannot be checked otherwise.

    Raises:
        LaunchgapError: see `as_prompt`.
    """
    if getattr(input_ids, "dtype", None) is torch.int64 and _is_plain(input_ids):
        shape = input_ids.shape
        if input_ids.is_meta:
            raise LaunchgapError("input_ids on the meta device hold no values; give ids on the host or a GPU")
        if (len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)) and shape[-1] > 0:
            tokens: NDArray[np.int64] = input_ids.cpu().numpy().reshape(-1)
            # Seen as unsigned, a negative id is a large one: one pass finds both.
            if int(tokens.view(np.uint64).max()) < vocab_size:
                return tokens
    return as_prompt(input_ids, vocab_size)[0].cpu().numpy().astype(np.int64)


def _is_plain(input_ids: torch.Tensor) -> bool:
    return input_ids.layout is torch.strided and not input_ids.is_nested


def real_tokens(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, vocab_size: int
) -> NDArray[np.int64]:
    """The token ids of `host_tokens` without the padding that a mask hides at either end.

    Raises:
        LaunchgapError: see `host_tokens` and `real_span`.
    """
    tokens = host_tokens(input_ids, vocab_size)
    if attention_mask is None:
        return tokens
    start, end = real_span(attention_mask, tokens.size)
    return tokens[start:end]


def real_span(attention_mask: torch.Tensor, length: int) -> tuple[int, int]:
    """First real token and one past the last, by a mask of ones and zeros, shape (1, length).

    Raises:
        LaunchgapError: another shape or other values, no real token, or zeros between real tokens.
    """
    if not isinstance(attention_mask, torch.Tensor):
        raise LaunchgapError(f"attention_mask of type {type(attention_mask).__name__}: give a tensor")
    if attention_mask.shape not in ((1, length), (length,)):
        raise LaunchgapError(
            f"attention_mask of shape {tuple(attention_mask.shape)}: the prompt has shape (1, {length}); "
            "give one value for each token"
        )
    mask = attention_mask.reshape(-1).float().cpu().numpy()
    ones = np.flatnonzero(mask)
    if not (mask[ones] == 1).all():
        raise LaunchgapError("attention_mask has values other than 0 and 1; give 1 for tokens, 0 for padding")
    if ones.size == 0:
        raise LaunchgapError("attention_mask hides every token; give 1 for at least one")
    start, end = int(ones[0]), int(ones[-1]) + 1
    if end - start != ones.size:
        hole = start + int(np.flatnonzero(mask[start:end] == 0)[0])
        raise LaunchgapError(
            f"attention_mask has a hole at token {hole}; give one with padding at the ends only, or none"
        )
    return start, end
