"""What a strategy costs before its first request, when that has paid, and how near the floor it gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, Literal

from contract import ON_OTHER_STREAMS, LatencyRecord, Strategy, StrategyFields

PaysAfter = int | Literal["never"]
"""Requests after which a strategy has paid for what it costs before the first one."""


def set_up_s(fields: StrategyFields | Mapping[str, Any]) -> float | None:
    """Seconds of compiling and capturing before the first request; None for a strategy that does neither."""
    known = [seconds for seconds in (fields.get("compile_s"), fields["capture_s"]) if seconds is not None]
    return sum(known) if known else None


def pays_after_requests(record: LatencyRecord | Mapping[str, Any], name: str) -> PaysAfter | None:
    """Set-up time over what a request saves, ceil(set-up / (eager's median wall time - its own)).

    None where nothing is set up, where either was not measured, and in a simulation, which saves nothing.
    """
    eager, other = record["strategies"].get(Strategy.EAGER.value), record["strategies"][name]
    seconds = set_up_s(other)
    if seconds is None or record["simulated"] or eager is None or not (eager["wall_ms"] and other["wall_ms"]):
        return None
    saved_ms = median(eager["wall_ms"]) - median(other["wall_ms"])
    return math.ceil(seconds * 1e3 / saved_ms) if saved_ms > 0 else "never"


def last_logits(record: LatencyRecord | Mapping[str, Any]) -> list[str]:
    """Strategies that give the last token's logits alone, which is less work than eager's."""
    return [name for name, fields in record["strategies"].items() if fields.get("logits") == "last"]


def last_logits_sentence(record: LatencyRecord | Mapping[str, Any]) -> str | None:
    """Which strategies give the last token's logits alone, and what to hold them against; None for none."""
    names = last_logits(record)
    if not names:
        return None
    fair = "" if names == [Strategy.EAGER_LAST] else f"; their eager counterpart is {Strategy.EAGER_LAST}"
    return f"The last token's logits alone, which is less work than eager's: {', '.join(names)}{fair}."


def other_streams_sentence(record: LatencyRecord | Mapping[str, Any]) -> str | None:
    """Which strategies made the graphs of all others slower by running kernels elsewhere; None for none.

    Seen on an H200, see docs/prediction.md.
    """
    names = [name for name in record["strategies"] if name in ON_OTHER_STREAMS]
    if record["simulated"] or not names:
        return None
    run = "runs" if len(names) == 1 else "run"
    return (
        f"{' and '.join(names)} {run} kernels on streams of torch's own, which can make every graph of the "
        "process slower: measure the other graphs without it to see them at their best."
    )


def floor_sentence(record: LatencyRecord | Mapping[str, Any]) -> str | None:
    """How long reading the weights takes, and each median latency as a multiple; None without a floor."""
    floor = record.get("floor") or {}
    weight_bytes, bandwidth = floor.get("weight_bytes_read"), floor.get("bandwidth_bytes_per_s")
    floor_ms = floor.get("floor_ms")
    if weight_bytes is None or bandwidth is None or floor_ms is None:
        return None
    ratios = [
        f"{name} {median(fields['event_ms']) / floor_ms:.1f}"
        for name, fields in record["strategies"].items()
        if fields["event_ms"]
    ]
    return (
        f"Floor: reading {weight_bytes / 2**20:.0f} MiB of weights once takes {floor_ms:.3f} ms at the "
        f"{bandwidth / 1e12:.2f} TB/s that were reached here. Median latency as a multiple of that: "
        f"{', '.join(ratios)}."
    )
