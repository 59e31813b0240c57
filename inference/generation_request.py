"""What a generator can be asked for, checked on the host before the device hears of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from contract import LaunchgapError
from inference.decode import RUNS_AT_CAPTURE
from inference.request import real_tokens
from inference.sampling import Greedy, Sampling

DEFAULT_BUCKETS = (64, 128, 256, 512, 1024)
"""Prompt and cache lengths, in tokens, unless told otherwise."""


@dataclass(frozen=True)
class GenerationRequest:
    """A checked request.

    Attributes:
        prompt: token ids, shape (n,).
        new_tokens: most tokens to generate.
        sampling: how they are chosen.
        ends: tokens that end the sequence.
    """

    prompt: NDArray[np.int64]
    new_tokens: int
    sampling: Greedy | Sampling
    ends: frozenset[int]

    @property
    def slots(self) -> int:
        """Tokens of the prompt and its longest continuation."""
        return int(self.prompt.size) + self.new_tokens


def check_request(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    new_tokens: int,
    sampling: Greedy | Sampling | None,
    ends: int | Collection[int] | None,
    *,
    vocabulary: int,
    slots: int,
) -> GenerationRequest:
    """A request for a model of so many token ids and a cache of so many slots.

    Raises:
        LaunchgapError: ids outside the vocabulary, no prompt or more than one, a mask that does not fit, no
            new tokens, more tokens than the cache holds, or settings that are none.
    """
    prompt = real_tokens(input_ids, attention_mask, vocabulary)
    whole_number("max_new_tokens", new_tokens)
    if prompt.size + new_tokens > slots:
        raise LaunchgapError(
            f"prompt of {prompt.size} tokens and {new_tokens} new ones: the cache holds {slots}; ask for "
            "fewer, shorten the prompt, or raise max_length as far as the model has positions"
        )
    if sampling is not None and not isinstance(sampling, (Greedy, Sampling)):
        raise LaunchgapError(f"sampling {sampling!r}: unknown; give Greedy() or Sampling(...)")
    return GenerationRequest(prompt, int(new_tokens), sampling or Greedy(), _ends(ends, vocabulary))


def usable_buckets(
    max_length: int | None, buckets: Sequence[int] | None, unroll: int, positions: int
) -> tuple[int, ...]:
    """Bucket lengths, ascending, up to the longest sequence and with it.

    Raises:
        LaunchgapError: a length that is none, or above the model's positions or the longest sequence; more
            unrolled steps than the smallest bucket has room to warm up.
    """
    whole_number("unroll", unroll)
    longest = min(DEFAULT_BUCKETS[-1], positions) if max_length is None else max_length
    whole_number("max_length", longest, least=2)
    if longest > positions:
        raise LaunchgapError(
            f"max_length {longest}: the model has {positions} positions; use up to {positions}"
        )
    given = [bucket for bucket in DEFAULT_BUCKETS if bucket < longest] if buckets is None else buckets
    for bucket in given:
        whole_number("bucket", bucket, least=2)
        if bucket > longest:
            raise LaunchgapError(
                f"bucket {bucket}: above max_length {longest}; leave it out, or raise max_length"
            )
    ladder = tuple(sorted({*map(int, given), int(longest)}))
    if unroll * RUNS_AT_CAPTURE > ladder[0]:
        raise LaunchgapError(
            f"unroll {unroll}: the smallest bucket has {ladder[0]} slots and a capture runs "
            f"{unroll * RUNS_AT_CAPTURE} steps; unroll less, or use larger buckets"
        )
    return ladder


def whole_number(name: str, value: object, least: int = 1) -> None:
    """Raise LaunchgapError unless the value is a whole number of at least so many."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:  # type: ignore[operator]
        raise LaunchgapError(f"{name} {value!r}: must be a whole number of {least} or more")


def _ends(ends: int | Collection[int] | None, vocabulary: int) -> frozenset[int]:
    tokens = () if ends is None else ends if isinstance(ends, Collection) else (ends,)
    for token in tokens:
        whole_number("eos_token_id", token, least=0)
        if token >= vocabulary:
            raise LaunchgapError(
                f"eos_token_id {token}: outside the vocabulary of {vocabulary}, so it would never end; "
                "use the model's own tokeniser's"
            )
    return frozenset(map(int, tokens))
