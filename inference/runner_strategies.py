"""`GraphedForward` as a strategy: the runner that a user calls, its checks and its guard included."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from transformers import PreTrainedModel

from inference.calling import Logits
from inference.forward import GraphedForward
from inference.lengths import DEFAULT_LENGTHS
from inference.peers import fresh_compiler


class RunnerForward:
    """The last token's logits of a prompt, by the smallest captured length that holds it.

    Attributes:
        logits: always `last`.
        compile_s: seconds that Inductor took for all lengths; None where nothing was compiled.
        capture_s: seconds of warm-up, capture and first replay, all lengths together.
        pool_bytes: memory that all graphs keep to themselves.
        attention_mask: what the graphs hold, as `StrategyFields` names it; several where lengths differ.
    """

    logits: Logits = "last"

    def __init__(self, model: PreTrainedModel, lengths: Sequence[int], *, fused: bool = False) -> None:
        """Capture, and prove each length equal to eager.

        Raises:
            CaptureError: an operation that a graph cannot hold, or that Inductor cannot compile.
            LaunchgapError: no memory, logits that are not eager's, or a model that the runner refuses.
        """
        with fresh_compiler() if fused else nullcontext():
            # A length shall be measured though it does not pay, and never fall back to eager unseen.
            self._forward = GraphedForward(
                model, lengths, copy=False, strict=True, only_if_faster=False, fused=fused
            )
        entries = self._forward.ledger
        compiled_s = [one.compile_s for one in entries if one.compile_s is not None]
        self.compile_s: float | None = sum(compiled_s) if compiled_s else None
        self.capture_s: float | None = sum(one.capture_s or 0.0 for one in entries)
        self.pool_bytes: int | None = sum(one.pool_bytes or 0 for one in entries)
        self.attention_mask: str | None = ", ".join(
            dict.fromkeys(one.attention_mask for one in entries if one.attention_mask is not None)
        )

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """See `ForwardStrategy.copy_in`."""
        self._forward.copy_in(input_ids)

    def run(self) -> torch.Tensor:
        """See `ForwardStrategy.run`."""
        return self._forward.replay()

    def close(self) -> None:
        """Free the graphs."""
        self._forward.close()


def bucketed_lengths(max_length: int) -> tuple[int, ...]:
    """The usual lengths below `max_length`, and `max_length` itself, in tokens."""
    return (*(length for length in DEFAULT_LENGTHS if length < max_length), max_length)
