"""Which token comes next, decided on the device with fixed shapes, so that a graph can hold it.

The rules are transformers' own, in its order: temperature, top-k, top-p (`TemperatureLogitsWarper`,
`TopKLogitsWarper`, `TopPLogitsWarper`). What they read are numbers on the device, so a request with other
settings replays the same graph. One of the tokens left is drawn without reading a value: dividing
probabilities by exponential noise and taking the largest draws each with its probability, as in
`torch.multinomial` (the exponential race), from a generator of its own that a graph can be registered with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from contract import LaunchgapError


@dataclass(frozen=True)
class Greedy:
    """The most likely token, the first of equals."""


@dataclass(frozen=True)
class Sampling:
    """A token drawn at random.

    Attributes:
        temperature: divides the logits; above 0.
        top_k: draw from that many likeliest tokens, ties with the last of them included; None from all.
        top_p: draw from the likeliest tokens that together have this probability; above 0, 1 for all.
        seed: the same request with the same seed on the same device gives the same tokens. None draws on.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what has no meaning.

        Raises:
            LaunchgapError: names the setting.
        """
        # The smallest normal float32 would still turn logits of ordinary size into infinities.
        if not _is_number(self.temperature) or not 1e-6 <= self.temperature < math.inf:
            raise LaunchgapError(f"temperature {self.temperature!r}: must be at least 1e-6; or use Greedy()")
        if self.top_k is not None and (not _is_whole(self.top_k) or self.top_k < 1):
            raise LaunchgapError(
                f"top_k {self.top_k!r}: must be a whole number of 1 or more, or None for all"
            )
        if not _is_number(self.top_p) or not 0.0 < self.top_p <= 1.0:
            raise LaunchgapError(f"top_p {self.top_p!r}: must be above 0 and at most 1")
        if self.seed is not None and (not _is_whole(self.seed) or not 0 <= self.seed < 2**63):
            raise LaunchgapError(f"seed {self.seed!r}: must be a whole number from 0 to 2**63 - 1, or None")


class Chooser(Protocol):
    """Chooses tokens on the device.

    Attributes:
        name: `greedy` or `sampled`, for ledgers.
        generators: what a graph must be registered with.
    """

    name: str
    generators: tuple[torch.Generator, ...]

    def set(self, sampling: Greedy | Sampling) -> None:
        """Take the settings of the next request, without waiting for the device."""

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The chosen token, shape (1,), int64, of logits of shape (1, vocabulary)."""


class GreedyChooser:
    """Chooses as `Greedy` says."""

    name = "greedy"
    generators: tuple[torch.Generator, ...] = ()

    def set(self, sampling: Greedy | Sampling) -> None:
        """Nothing to set."""

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """See `Chooser.choose`."""
        return logits.argmax(-1)


class SamplingChooser:
    """Chooses as the `Sampling` last set says; its settings and its generator are on the device."""

    name = "sampled"

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._vocabulary = vocabulary
        self._temperature = torch.ones(1, dtype=torch.float32, device=device)
        self._weakest = torch.zeros(1, dtype=torch.int64, device=device)
        self._tail = torch.full((1,), -1.0, dtype=torch.float32, device=device)
        self._generator = torch.Generator(device)
        self._generator.seed()
        self.generators: tuple[torch.Generator, ...] = (self._generator,)

    def set(self, sampling: Greedy | Sampling) -> None:
        """See `Chooser.set`."""
        assert isinstance(sampling, Sampling)
        kept = min(sampling.top_k or self._vocabulary, self._vocabulary)
        self._temperature.fill_(sampling.temperature)
        self._weakest.fill_(self._vocabulary - kept)
        # Below 0 nothing is cut: rounding alone would otherwise cut tokens of no weight at top_p 1.
        self._tail.fill_(1.0 - sampling.top_p if sampling.top_p < 1.0 else -1.0)
        if sampling.seed is not None:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """See `Chooser.choose`."""
        probabilities, tokens = self.ranked(logits)
        noise = torch.empty_like(probabilities).exponential_(generator=self._generator)
        winner = (probabilities / noise).argmax(-1, keepdim=True)
        return tokens.gather(-1, winner).view(1)

    def ranked(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities after all settings, ascending but for the zeros of what was cut, and their tokens.

        Both of shape (1, vocabulary).
        """
        scores, tokens = torch.sort(logits.float() / self._temperature)
        weakest = scores.index_select(-1, self._weakest)
        scores = scores.masked_fill(scores < weakest, -math.inf)
        # Sums on CUDA differ in their last bits from run to run: taken in fp64 and rounded, they do not.
        sums = scores.softmax(-1).cumsum(-1, dtype=torch.float64).float()
        is_cut = sums <= self._tail
        is_cut.narrow(-1, self._vocabulary - 1, 1).fill_(False)
        return scores.masked_fill(is_cut, -math.inf).softmax(-1), tokens


def make_chooser(sampling: Greedy | Sampling, vocabulary: int, device: torch.device) -> Chooser:
    """What chooses in that way; `set` the settings before each request."""
    return GreedyChooser() if isinstance(sampling, Greedy) else SamplingChooser(vocabulary, device)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
