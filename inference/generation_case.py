"""What a generation benchmark is asked for: sizes that fit the model, and all prompts, drawn up front."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from contract import CaseFields, GenerationStrategy, LaunchgapError, case_name
from inference.case import CaseOptions, ReadyCase, open_case
from inference.generation_request import DEFAULT_BUCKETS
from inference.request import random_prompt


@dataclass(frozen=True)
class GenerationSettings:
    """How to measure: whole requests of `new_tokens` tokens, `runs` of them for each strategy."""

    strategies: Sequence[GenerationStrategy]
    new_tokens: int = 200
    runs: int = 10
    seed: int = 0

    @property
    def half_tokens(self) -> int:
        """Tokens of the shorter requests that the cost of a token is told by; 0 if there can be none."""
        return self.new_tokens // 2


@dataclass(frozen=True)
class Request:
    """A prompt, token ids of shape (1, n) on the host, and how many tokens are wanted after it."""

    prompt: torch.Tensor
    new_tokens: int


@dataclass(frozen=True)
class Plan:
    """All requests of a run: the same ones for every strategy.

    Attributes:
        warm_up: the first request, which everybody's tokens are compared on, and others that are not timed.
        rounds: those of each round: a long one and, if `half_tokens` is not 0, a short one.
    """

    warm_up: tuple[Request, ...]
    rounds: tuple[tuple[Request, ...], ...]

    @property
    def first(self) -> Request:
        """The request that everything is built for."""
        return self.warm_up[0]


def draw_plan(settings: GenerationSettings, prompt_length: int, vocab_size: int) -> Plan:
    """Draw a fresh random prompt for every request."""
    generator = torch.Generator().manual_seed(settings.seed)

    def request(new_tokens: int) -> Request:
        return Request(random_prompt(prompt_length, vocab_size, generator), new_tokens)

    lengths = [count for count in (settings.new_tokens, settings.half_tokens) if count]
    # The longest comes first: a static cache and what is compiled for it keep the largest size asked for.
    warm_up = tuple(request(count) for count in (*lengths, settings.new_tokens))
    return Plan(warm_up, tuple(tuple(request(count) for count in lengths) for _ in range(settings.runs)))


def open_generation_case(options: CaseOptions, new_tokens: int) -> ReadyCase:
    """Load the model and size the cache: to `max_length`, or to the bucket that prompt and new tokens need.

    Raises:
        LaunchgapError: an unusable device, dtype, model or number of tokens.
    """
    if new_tokens < 1:
        raise LaunchgapError(f"{new_tokens} new tokens: must be 1 or more")
    case = open_case(dataclasses.replace(options, max_length=options.prompt_length))
    slots, positions = options.prompt_length + new_tokens, case.loaded.fields["max_positions"]
    if slots > positions:
        raise LaunchgapError(
            f"prompt of {options.prompt_length} tokens and {new_tokens} new ones: the model has {positions} "
            "positions; ask for fewer new tokens or shorten the prompt"
        )
    cache = options.max_length or min(_bucket(slots), positions)
    if not slots <= cache <= positions:
        raise LaunchgapError(
            f"maximum length {cache}: prompt and new tokens are {slots} and the model has {positions} "
            f"positions; use --max-length {slots} to {positions}, or leave it out"
        )
    name = case_name(options.model, options.dtype, options.prompt_length, cache, options.attn_implementation)
    fields = CaseFields(**(case.fields | {"name": name, "max_length": cache}))
    return dataclasses.replace(case, fields=fields)


def _bucket(slots: int) -> int:
    return next((bucket for bucket in DEFAULT_BUCKETS if bucket >= slots), slots)
