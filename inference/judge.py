"""How far a graph's logits may be from eager's.

fp32 is judged against eager of the same run; half precision against an fp32 copy of the model, where a graph
may be `HALF_TOLERANCE_FACTOR` times further off than eager itself is, on the same prompt or on any of those
that it was calibrated with.

Models that choose need one rule more: where two experts score alike, rounding decides which one a token gets,
and a padded pass rounds otherwise than an unpadded one, in a graph or not. An answer that is further off also
passes if it is what eager says over the same padding, within that error, and if in fp32 that padding
changes next to nothing: then the graph is right, and so is the padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from inference.calling import Logits, ModelCall
from inference.correctness import ATOL, HALF_TOLERANCE_FACTOR, RTOL
from inference.staging import StaticInputs

_NEXT_TO_NOTHING = 0.05
"""How far padding may move fp32 logits, as a share of eager's own largest error in half precision."""


@dataclass(frozen=True)
class Verdict:
    """Of one answer.

    Attributes:
        difference: from the reference, the largest absolute one.
        passed: whether the answer is right.
        by_padding: only because it is eager's over the same padding.
    """

    difference: float
    passed: bool
    by_padding: bool = False


class Judge:
    """What eager says of a prompt, and how far from it an answer may be. `rule` says that in words."""

    def __init__(self, model: PreTrainedModel, reference: PreTrainedModel | None, logits: Logits) -> None:
        """Judge against the model itself, or one in half precision against `reference`, its fp32 copy."""
        self._call = ModelCall(model, logits)
        self._reference = self._call if reference is None else ModelCall(reference, logits)
        self._half = reference is not None
        self._eager_error = 0.0
        self.rule = (
            f"error vs fp32 <= {HALF_TOLERANCE_FACTOR:g} x eager's"
            if self._half
            else f"allclose(atol={ATOL:g}, rtol={RTOL:g})"
        )

    def calibrate(self, prompts: Sequence[torch.Tensor]) -> None:
        """Find eager's own largest error against fp32 over these prompts."""
        if self._half:
            self._eager_error = max(
                largest_difference(self._ask(self._call, prompt), self._ask(self._reference, prompt))
                for prompt in prompts
            )

    def compare(
        self,
        prompt: torch.Tensor,
        answer: torch.Tensor,
        padded: Callable[[], StaticInputs | None] = lambda: None,
    ) -> Verdict:
        """Judge the answer to a prompt of shape (1, n); `padded` gives the prompt as the graph read it."""
        wanted = self._ask(self._reference, prompt)
        difference = largest_difference(answer, wanted)
        if not self._half:
            return Verdict(difference, torch.allclose(answer, wanted, atol=ATOL, rtol=RTOL))
        own = largest_difference(self._ask(self._call, prompt), wanted)
        if self._is_small(difference, own):
            return Verdict(difference, passed=True)
        inputs = padded() if math.isfinite(difference) else None
        by_padding = inputs is not None and self._is_padded_eager(answer, inputs, prompt.shape[1], wanted)
        return Verdict(difference, by_padding, by_padding)

    def _is_small(self, difference: float, own: float = 0.0) -> bool:
        return math.isfinite(difference) and difference <= HALF_TOLERANCE_FACTOR * max(self._eager_error, own)

    def _is_padded_eager(
        self, answer: torch.Tensor, padded: StaticInputs, n: int, wanted: torch.Tensor
    ) -> bool:
        moved = largest_difference(_logits_over(self._reference, padded, n), wanted)
        if not moved <= _NEXT_TO_NOTHING * self._eager_error:
            return False
        return self._is_small(largest_difference(answer, _logits_over(self._call, padded, n)))

    def _ask(self, call: ModelCall, prompt: torch.Tensor) -> torch.Tensor:
        logits = call.eager(prompt.to(call.device))
        return logits[:, 0] if call.wanted == "last" else logits


def _logits_over(call: ModelCall, padded: StaticInputs, n: int) -> torch.Tensor:
    """Eager's logits of a prompt of n tokens in static storage."""
    logits = call.static(padded)
    return logits[:, 0] if call.wanted == "last" else logits[:, padded.start(n) : padded.start(n) + n]


def largest_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Absolute, infinite where a value is not a number."""
    return float((left.float() - right.float()).abs().max().nan_to_num(torch.inf))
