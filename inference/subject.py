"""A graphed runner under test, and one line of what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from inference.forward import GraphedForward
from inference.judge import Judge, largest_difference
from inference.ladder import Ladder
from inference.rung import static_inputs
from inference.staging import StaticInputs

BITWISE = "bitwise equal"


@dataclass(frozen=True)
class Check:
    """One line of the table.

    `difference` is the largest absolute one, in logits; None where none is taken. `notes` say which lengths
    are left eager, and why, and which answers passed only beside eager over the same padding.
    """

    runner: str
    name: str
    inputs: str
    difference: float | None
    rule: str
    passed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A runner under test. `prompt` draws fresh random ids, shape (1, n), on the host."""

    label: str
    forward: GraphedForward
    judge: Judge
    prompt: Callable[[int], torch.Tensor]
    lengths: tuple[int, ...]

    @property
    def middle(self) -> int:
        """A prompt length that is padded, if any is."""
        return max(1, self.lengths[len(self.lengths) // 2] - 1)

    def bitwise(
        self, name: str, inputs: str, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], rule: str = BITWISE
    ) -> Check:
        """A check that answers are the same to the last bit."""
        return Check(
            self.label,
            name,
            inputs,
            max(largest_difference(a, b) for a, b in pairs),
            rule,
            all(torch.equal(a, b) for a, b in pairs),
        )

    @property
    def ladder(self) -> Ladder:
        """What the runner has captured."""
        built = self.forward._built
        assert built is not None
        return built.ladder

    def padded(self, prompt: torch.Tensor) -> StaticInputs | None:
        """The prompt as the graph that serves it reads it, in storage of its own; None where eager does."""
        rung = self.ladder.find(prompt.shape[1])
        if rung is None:
            return None
        side = self.forward.padding_side
        inputs = static_inputs(rung.length, rung.output.device, side, rung.attention_mask)
        inputs.fill(prompt[0].numpy())
        return inputs
