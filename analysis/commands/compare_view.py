"""Puts together what `python -m analysis compare` shows."""

from __future__ import annotations

import pandas as pd

from analysis.commands.sections import Fact, Section, View
from analysis.compare import Comparison
from analysis.compare_sides import Side
from analysis.compare_work import What
from analysis.latency import DRIFT_PERCENT

_LATENCY = (
    "Median of the forward pass or replay without a profiler, and its change in percent of OLD with the 95 % "
    "interval. A change counts beyond the floor alone, which is what noise did within these runs. Cliff's "
    "delta is P(NEW slower) - P(NEW faster) over all pairs of samples."
)
_COUNTS = "Per request as traced."
_KERNELS = (
    "Durations are means of a call as traced. A kernel that changed count is not judged by its duration. "
    f"Without an interval, which takes two traces, it is slower if its mean rose by over {DRIFT_PERCENT:g} %."
)
_LAUNCHES = "Per request as traced; microseconds are host time in the call, under the profiler."
_ENVIRONMENT = "What differs is a reason that a change may have, no proof of it."
_LATENCY_LONG = ("floor_from", "old_samples", "new_samples")


def compare_view(
    old: Side, new: Side, found: Comparison, gate: tuple[str, ...], reasons: tuple[str, ...]
) -> View:
    """The view of a comparison; `gate` is what was asked of it, `reasons` are why it fails."""
    sections = (
        Section("latency", "Latency", found.latency, _LATENCY, _LATENCY_LONG, whole=True),
        Section("missing", "On one side only, or failed", found.missing, whole=True),
        Section("environment", "Environments differ in", found.environment, _ENVIRONMENT, whole=True),
        Section("counts", "Launches and kernels", found.counts, _COUNTS, whole=True),
        Section("launches", "Launch calls that changed", _changed(found.launches), _LAUNCHES, ("kind",)),
        Section(
            "kernels",
            "Kernels that changed",
            _changed(found.kernels),
            _KERNELS,
            ("full_name", "floor_percent"),
        ),
        Section("same_kernels", "Kernels that did not change", _same(found.kernels), quiet=True),
    )
    shown = [one for one in sections if one.name in _always(old) or len(one.table)]
    facts = _facts(old, found, gate, reasons)
    return View("comparison", new.name, facts, found.findings, tuple(shown))


def _always(side: Side) -> tuple[str, ...]:
    return ("latency",) if side.kind == "run" else ("counts", "launches", "kernels")


def _facts(old: Side, found: Comparison, gate: tuple[str, ...], reasons: tuple[str, ...]) -> dict[str, Fact]:
    told: dict[str, Fact] = {"against": old.name}
    if len(found.latency):
        told["latency"] = _tally(found.latency["verdict"], ("slower", "faster", "same", "unsure"))
    if len(found.kernels):
        told["kernels"] = _tally(found.kernels["what"], tuple(map(str, What)))
    if gate:
        told["fail_on"] = gate
        told["gate"] = "; ".join(reasons) or "passed"
    return told


def _tally(values: pd.Series[str], words: tuple[str, ...]) -> str:
    counts = {word: int((values == word).sum()) for word in words}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _changed(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["what"] != What.SAME].reset_index(drop=True)


def _same(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["what"] == What.SAME].reset_index(drop=True)
