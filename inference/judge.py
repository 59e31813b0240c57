"""How far a graph's logits may be from eager's.

fp32 is judged against eager of the same run; half precision against an fp32 copy of the model, where a graph
may be `HALF_TOLERANCE_FACTOR` times further off than eager itself is, on the same prompt or on any of those
that it was calibrated with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from inference.calling import Logits, ModelCall
from inference.correctness import ATOL, HALF_TOLERANCE_FACTOR, RTOL


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

    def compare(self, prompt: torch.Tensor, answer: torch.Tensor) -> tuple[float, bool]:
        """Largest difference from the reference, and whether it is small enough."""
        wanted = self._ask(self._reference, prompt)
        difference = largest_difference(answer, wanted)
        if self._half:
            own = largest_difference(self._ask(self._call, prompt), wanted)
            return difference, difference <= HALF_TOLERANCE_FACTOR * max(self._eager_error, own)
        return difference, torch.allclose(answer, wanted, atol=ATOL, rtol=RTOL)

    def _ask(self, call: ModelCall, prompt: torch.Tensor) -> torch.Tensor:
        logits = call.eager(prompt.to(call.device))
        return logits[:, 0] if call.wanted == "last" else logits


def largest_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Absolute, infinite where a value is not a number."""
    return float((left.float() - right.float()).abs().max().nan_to_num(torch.inf))
