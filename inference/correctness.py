"""Is the graph's answer the baseline's answer? Several fresh random prompts, judged by a stated rule.

A strategy that gives the last token's logits alone is compared with that row of eager's, and of the fp32
reference's; its rule says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from contract import CorrectnessFields
from inference.backends import Backend
from inference.strategies import ForwardStrategy

ATOL = 1e-5
RTOL = 1e-5
"""torch.allclose's own default, stated because fp32 logits near 100 are already 7.6e-6 apart."""

HALF_TOLERANCE_FACTOR = 1.5
"""Half precision: a graph may be this much further from the fp32 reference than eager itself is."""

_FULL_RULE = f"allclose(atol={ATOL:g}, rtol={RTOL:g}) against eager"
_HALF_RULE = f"largest error against an fp32 reference at most {HALF_TOLERANCE_FACTOR:g} x eager's own"
_NO_REFERENCE_RULE = "bitwise equality with eager (no fp32 reference: not enough memory)"
_LAST_RULE = ", the last token's logits alone"


@dataclass(frozen=True)
class Reference:
    """What eager says of each prompt, and what the same weights in fp32 say where that is the judge."""

    prompts: Sequence[torch.Tensor]
    eager: Sequence[torch.Tensor]
    fp32: Sequence[torch.Tensor] | None


def outputs(
    strategy: ForwardStrategy, prompts: Sequence[torch.Tensor], backend: Backend
) -> list[torch.Tensor]:
    """Logits of each prompt, copied to the host before the next run can overwrite them."""
    results = []
    for prompt in prompts:
        strategy.copy_in(prompt)
        results.append(strategy.run().to("cpu", copy=True))
        backend.synchronize()
    return results


def compare(strategy: ForwardStrategy, reference: Reference, backend: Backend) -> CorrectnessFields:
    """Run the reference's prompts through a strategy and judge the logits that it gives."""
    found = outputs(strategy, reference.prompts, backend)
    last = strategy.logits == "last"
    eager, fp32 = (_last_rows(side) if last else side for side in (reference.eager, reference.fp32))
    assert eager is not None
    pairs = list(zip(found, eager, strict=True))
    bitwise = all(torch.equal(a, b) for a, b in pairs)
    close = all(torch.allclose(a, b, atol=ATOL, rtol=RTOL) for a, b in pairs)
    half = pairs[0][1].dtype is not torch.float32
    error = eager_error = None
    if half and fp32 is not None:
        error = _largest(found, fp32)
        eager_error = _largest(eager, fp32)
    rule = _FULL_RULE if not half else _HALF_RULE if error is not None else _NO_REFERENCE_RULE
    within = _within(half, close, error, eager_error)
    return CorrectnessFields(
        inputs=len(pairs),
        bitwise=bitwise,
        allclose=close,
        atol=ATOL,
        rtol=RTOL,
        max_abs_difference=_largest(found, eager),
        same_argmax=all(torch.equal(a.argmax(-1), b.argmax(-1)) for a, b in pairs),
        error_vs_fp32=error,
        eager_error_vs_fp32=eager_error,
        half_tolerance_factor=HALF_TOLERANCE_FACTOR if error is not None else None,
        verdict="equal" if bitwise else "within tolerance" if within else "DIFFERENT",
        rule=rule + _LAST_RULE if last else rule,
    )


def _last_rows(logits: Sequence[torch.Tensor] | None) -> list[torch.Tensor] | None:
    """The last token's logits of each prompt, shape (1, vocabulary)."""
    return None if logits is None else [one[:, -1] for one in logits]


def _within(half: bool, close: bool, error: float | None, eager_error: float | None) -> bool:
    if not half:
        return close
    return error is not None and eager_error is not None and error <= HALF_TOLERANCE_FACTOR * eager_error


def _largest(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float | None:
    """Largest absolute difference, or None, which no rule passes, where it is not a finite number."""
    worst = torch.stack([(a.float() - b.float()).abs().max() for a, b in zip(left, right, strict=True)]).max()
    return float(worst) if torch.isfinite(worst) else None
