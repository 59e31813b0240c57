"""A trial capture of one call, and whether its replay gives on other inputs what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from contract import CaptureError
from inference.backends import Backend, Capture
from inference.blame import blame

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
_HALF_TOLERANCE = 5e-2
"""Largest difference from eager, as a share of eager's largest absolute value: wrong inputs are far off."""


@dataclass(frozen=True)
class Inputs:
    """Arguments of one call of a module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def copied(self) -> Inputs:
        """The same with every tensor in storage of its own."""
        args, kwargs = pytree.tree_map_only(Tensor, lambda tensor: tensor.clone(), (self.args, self.kwargs))
        return Inputs(args, kwargs)

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, in a fixed order."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def fits(self, other: Inputs) -> bool:
        """Whether the other call's tensors could be copied into those of this one."""
        mine, others = self.tensors(), other.tensors()
        return [(t.shape, t.dtype) for t in mine] == [(t.shape, t.dtype) for t in others]


@dataclass(frozen=True)
class Trial:
    """How a trial capture went.

    `refused` says where it broke. `difference` is the largest one between a replay and eager on other inputs,
    as a share of eager's largest value; None where they were not compared, and `why_not` says why.
    """

    refused: str | None
    difference: float | None = None
    is_wrong: bool = False
    why_not: str = ""


@torch.no_grad()
def try_capture(
    call: Callable[[Inputs], object], first: Inputs, second: Inputs | None, backend: Backend
) -> Trial:
    """Capture a call on `first`, then replay it on `second`, if that has the same shapes."""
    static = first.copied()
    outputs: list[list[Tensor]] = []

    def forward() -> Tensor:
        outputs[:] = [_answers(call(static))]
        return outputs[0][0] if outputs[0] else torch.empty(0)

    try:
        capture = backend.capture(forward)
    except CaptureError as error:
        return Trial(str(error))
    except (RuntimeError, TypeError, ValueError) as error:
        return Trial(f"capture failed at {blame(error)}")
    try:
        return _replayed(call, static, second, capture, outputs[0], backend)
    finally:
        capture.graph.reset()


def _replayed(
    call: Callable[[Inputs], object],
    static: Inputs,
    second: Inputs | None,
    capture: Capture,
    answers: list[Tensor],
    backend: Backend,
) -> Trial:
    if second is None or not static.fits(second):
        return Trial(None, why_not="no other inputs of the same shapes")
    wanted, again = ([t.clone() for t in _answers(call(second.copied()))] for _ in range(2))
    if not _same_shapes(wanted, again) or _difference(wanted, again) > _tolerance(wanted):
        return Trial(None, why_not="two eager calls on the same inputs differ: it draws or keeps something")
    for target, source in zip(static.tensors(), second.tensors(), strict=True):
        target.copy_(source)
    try:
        capture.graph.replay()
        backend.synchronize()
    except CaptureError as error:
        return Trial(str(error), is_wrong=True)
    if not _same_shapes(wanted, answers):
        return Trial(None, float("inf"), is_wrong=True)
    difference = _difference(wanted, answers)
    return Trial(None, difference, is_wrong=difference > _tolerance(wanted))


def _answers(result: object) -> list[Tensor]:
    """Tensors of numbers that a call returned."""
    leaves = pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.numel()]


def _same_shapes(left: list[Tensor], right: list[Tensor]) -> bool:
    return [t.shape for t in left] == [t.shape for t in right]


def _difference(wanted: list[Tensor], got: list[Tensor]) -> float:
    """Largest difference as a share of the largest wanted value of the same tensor."""
    worst = 0.0
    for want, have in zip(wanted, got, strict=True):
        scale = float(want.double().abs().nan_to_num().max()) or 1.0
        apart = (want.double() - have.double()).abs().nan_to_num(nan=0.0)
        worst = max(worst, float(apart.max()) / scale)
        if not torch.equal(want.isnan(), have.isnan()):
            return float("inf")
    return worst


def _tolerance(answers: list[Tensor]) -> float:
    floats = [t.dtype for t in answers if t.is_floating_point()]
    return max((_TOLERANCE.get(dtype, _HALF_TOLERANCE) for dtype in floats), default=0.0)
