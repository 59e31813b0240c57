"""Decides whether a comparison fails a build: what `--fail-on` asks for, and one line for each reason."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.compare import NOT_THERE, THERE, Comparison
from contract import WITHOUT_GRAPH, LaunchgapError

CRITERIA = ("regression=PERCENT", "launches=N", "kernels=N", "missing", "output")
"""What may be asked for."""

_COUNTS = ("launches", "kernels")


@dataclass(frozen=True)
class Gate:
    """What fails a build. None and False: not asked for.

    Attributes:
        regression_percent: latency may become so many percent longer.
        launches, kernels: so many more per request are allowed.
        missing: a case or strategy that is gone or failed now fails.
        output: a strategy whose output differs from eager's now fails.
    """

    regression_percent: float | None = None
    launches: float | None = None
    kernels: float | None = None
    missing: bool = False
    output: bool = False


def parse_gate(words: Sequence[str]) -> Gate:
    """The gate that words such as `regression=5%`, `launches=0` and `missing` describe.

    Raises:
        LaunchgapError: a word is none of `CRITERIA` or comes twice, or its number is missing or negative.
    """
    found: dict[str, float | bool] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in found:
            raise LaunchgapError(f"--fail-on {word}: {name} is given twice; give it once")
        if name in ("missing", "output") and not value:
            found[name] = True
        elif name in ("regression", *_COUNTS) and value:
            found[name] = _number(word, value.removesuffix("%") if name == "regression" else value)
        else:
            raise LaunchgapError(f"--fail-on {word}: is none of {', '.join(CRITERIA)}; give one of them")
    return Gate(
        regression_percent=found.get("regression"),
        launches=found.get("launches"),
        kernels=found.get("kernels"),
        missing="missing" in found,
        output="output" in found,
    )


def failures(found: Comparison, gate: Gate, strategies: Collection[str] = ()) -> tuple[str, ...]:
    """Why a comparison fails the gate, one line each; none if it passes.

    `strategies` are those that count. If none is named, latency counts for strategies that replay a graph, as
    the others' is the host's, and all else counts for all.

    Raises:
        LaunchgapError: something that is asked for cannot be told from the two sides, so nothing is passed
            that was not looked at; or a named strategy is on neither side.
    """
    _check_names(found, strategies)
    reasons: list[str] = []
    if gate.regression_percent is not None:
        reasons += _regressions(found.latency, gate.regression_percent, strategies)
    for name in _COUNTS:
        allowed = getattr(gate, name)
        if allowed is not None:
            reasons += _counted(found.counts, name, allowed, strategies)
    if gate.missing:
        reasons += _missing(found.missing, strategies)
    if gate.output:
        reasons += [
            f"output: {case}: {strategy}'s output differs from eager's"
            for case, strategy in found.wrong_outputs
            if not strategies or strategy in strategies
        ]
    return tuple(reasons)


def _number(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise LaunchgapError(f"--fail-on {word}: {text!r} is no number from 0 on; give one, as regression=5%")
    return value


def _check_names(found: Comparison, strategies: Collection[str]) -> None:
    there = {*found.latency["strategy"], *found.counts["strategy"], *found.missing["strategy"]} - {""}
    for name in strategies:
        if name not in there:
            raise LaunchgapError(
                f"--strategies {name}: neither side has it; they have {', '.join(sorted(there)) or 'none'}"
            )


def _regressions(latency: pd.DataFrame, allowed: float, strategies: Collection[str]) -> Iterator[str]:
    is_gated = (
        latency["strategy"].isin(strategies) if strategies else ~latency["strategy"].isin(WITHOUT_GRAPH)
    )
    rows = latency[is_gated]
    if rows.empty:
        raise LaunchgapError(
            "--fail-on regression: no latency of a strategy that counts is on both sides; give runs that "
            "measured one, or name others with --strategies"
        )
    for row in rows.to_dict("records"):
        named = f"{row['case']}: {row['strategy']}"
        if math.isnan(row["low_percent"]):
            raise LaunchgapError(
                f"--fail-on regression: {named} has no interval without two samples or more on each side; "
                "give the results folders or latency.json, which hold the samples"
            )
        if row["low_percent"] > max(allowed, row["floor_percent"]):
            yield (
                f"regression: {named} went from {row['old_ms']:.3f} to {row['new_ms']:.3f} ms, "
                f"{row['change_percent']:+.1f} % (95 % interval {row['low_percent']:+.1f} to "
                f"{row['high_percent']:+.1f} %), beyond {allowed:g} % and the noise of "
                f"{row['floor_percent']:.1f} % ({row['floor_from']})"
            )


def _counted(counts: pd.DataFrame, name: str, allowed: float, strategies: Collection[str]) -> Iterator[str]:
    rows = counts[counts["strategy"].isin(strategies)] if strategies else counts
    if rows.empty:
        raise LaunchgapError(
            f"--fail-on {name}: no strategy that counts is traced on both sides; give runs with tables"
        )
    for row in rows.to_dict("records"):
        named, old, new = f"{row['case']}: {row['strategy']}", row[f"old_{name}"], row[f"new_{name}"]
        if math.isnan(old) or math.isnan(new):
            side = "OLD" if math.isnan(old) else "NEW"
            remedy = "trace it node by node on both sides"
            raise LaunchgapError(f"--fail-on {name}: {named} has no count of {name} in {side}; {remedy}")
        if new - old > allowed + 1e-6:
            yield f"{name}: {named} has {new:,.6g} {name} per request, {new - old:,.6g} more than {old:,.6g}"


def _missing(missing: pd.DataFrame, strategies: Collection[str]) -> Iterator[str]:
    for row in missing.to_dict("records"):
        counts = not strategies or row["what"] == "case" or row["strategy"] in strategies
        if counts and row["old"] == THERE and row["new"] != THERE:
            named = f"{row['case']}: {row['strategy']}" if row["strategy"] else row["case"]
            what = "" if row["what"] in ("case", "strategy") else f"{row['what']}, "
            state = "is gone" if row["new"] == NOT_THERE else f"now {row['new']}"
            yield f"missing: {named}: {what}{state}"
