"""How good predictions were, in a sentence; needs no table, so that a report of many starts quickly."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

TARGET_MEDIAN_PERCENT = 5.0
TARGET_WORST_PERCENT = 15.0
"""What is asked of all cases together, and of each."""


def errors_sentence(errors_percent: Sequence[tuple[str, float]]) -> str | None:
    """All predictions against what is asked of them, from each one's case and error; None without any."""
    if not errors_percent:
        return None
    middle = median(abs(error) for _, error in errors_percent)
    case, error = max(errors_percent, key=lambda one: abs(one[1]))
    met = middle <= TARGET_MEDIAN_PERCENT and abs(error) <= TARGET_WORST_PERCENT
    return (
        f"{len(errors_percent)} predictions: median absolute error {middle:.1f} % (at most "
        f"{TARGET_MEDIAN_PERCENT:g} % asked), worst {abs(error):.1f} % in {case} (at most "
        f"{TARGET_WORST_PERCENT:g} % asked): {'met' if met else 'missed'}."
    )
