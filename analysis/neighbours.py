"""Other processes that computed on the GPU when a case was measured, in words: they spoil its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from contract import LatencyRecord

_TIMES = {"neighbours_before": "before", "neighbours_after": "after"}


def neighbour_doubts(record: LatencyRecord) -> Iterator[str]:
    """A sentence if another process was on the GPU before or after measuring; none where that is unknown.

    Records from before this was looked at say nothing of it, and nothing is said of them.
    """
    environment: dict[str, Any] = record["environment"]
    seen = {when: environment.get(key) for key, when in _TIMES.items()}
    told = [f"{_names(found)} {when} measuring" for when, found in seen.items() if found]
    if told:
        yield (
            f"Not alone on the GPU: {' and '.join(told)}. Other processes take its time, so these latencies "
            "may be too long and scattered; measure again when the GPU is free."
        )


def _names(found: list[dict[str, Any]]) -> str:
    """Programs with their number, where one is there more than once."""
    counted = Counter(str(one.get("program", "unknown")) for one in found)
    return ", ".join(
        name if count == 1 else f"{count} times {name}" for name, count in sorted(counted.items())
    )
