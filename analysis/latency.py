"""Latency statistics: summaries, the reduction with its interval, and the acceptance verdict.

All samples are milliseconds of one request each, measured without a profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from contract import ACCEPTANCE_PERCENT, LatencyRecord, LaunchgapError, Strategy

CONFIDENCE = 0.95
"""Coverage of every interval that launchgap prints."""

RESAMPLES = 10_000
"""Bootstrap resamples behind an interval."""

DRIFT_PERCENT = 5.0
"""A strategy whose second half of rounds is this much slower or faster than the first is reported."""

P99_MIN_SAMPLES = 1_000
"""Fewer samples hold less than ten values above the 99th percentile, so it is not printed."""

_BATCH = 1_000

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LatencySummary:
    """One series of samples, in milliseconds. `p99` is None below `P99_MIN_SAMPLES` samples."""

    n: int
    mean: float
    median: float
    p95: float
    min: float
    max: float
    p99: float | None


@dataclass(frozen=True)
class Reduction:
    """How much shorter than the baseline, in percent of the baseline's median; negative is slower.

    `low` and `high` bound the 95 % interval; None with a single sample, which has no spread to estimate from.
    """

    percent: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Verdict:
    """The acceptance criterion judged on one record, and a sentence that says so to people.

    `none` means that nothing can be judged: a simulation, a failed strategy, a single sample, an output that
    was never compared with eager's. `wrong_output` says that it was compared and differs.
    `noise` is the reduction of eager against eager over the same rounds; it would be 0 on a silent machine.
    """

    status: Literal["met", "missed", "none"]
    strategy: str
    reduction: Reduction | None
    noise: Reduction | None
    sentence: str
    wrong_output: bool = False


def summarise(samples_ms: Sequence[float]) -> LatencySummary:
    """Summarise one series of samples in milliseconds.

    Raises:
        LaunchgapError: no samples, or one that is no positive finite number.
    """
    values = _checked(samples_ms, "samples")
    p99 = float(np.percentile(values, 99)) if values.size >= P99_MIN_SAMPLES else None
    return LatencySummary(
        n=int(values.size),
        mean=float(values.mean()),
        median=float(np.median(values)),
        p95=float(np.percentile(values, 95)),
        min=float(values.min()),
        max=float(values.max()),
        p99=p99,
    )


def reduction(baseline_ms: Sequence[float], other_ms: Sequence[float], seed: int = 0) -> Reduction:
    """Reduction of the median, (baseline - other) / baseline in percent, with a 95 % percentile bootstrap.

    Sample i of both series comes from round i, which runs every strategy once within milliseconds, so rounds
    are resampled as pairs: what slows both at once (clocks) cancels. Much does not: a busy host slows eager
    and leaves a replay alone, and it stays busy over many rounds. Neighbouring rounds are therefore drawn
    together, in blocks of about sqrt(n) rounds that start anywhere and wrap around at the end: the circular
    block bootstrap of Politis and Romano (1992), after Künsch (1989). Rounds drawn one by one would take
    correlated samples for independent ones, and the interval would be too narrow.
    The same seed gives the same interval.

    Raises:
        LaunchgapError: a series is empty, their lengths differ, or a sample is no positive finite number.
    """
    baseline, other = paired(baseline_ms, other_ms)
    percent = float(_percent(baseline, other))
    if baseline.size == 1:
        return Reduction(percent, None, None)
    random = np.random.default_rng(seed)
    batches = (block_rounds(baseline.size, _BATCH, random) for _ in range(RESAMPLES // _BATCH))
    resampled = np.concatenate([_percent(baseline[rounds], other[rounds]) for rounds in batches])
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [outside, 1 - outside])
    return Reduction(percent, float(low), float(high))


def drift(samples_ms: Sequence[float]) -> float:
    """How much the median of the second half of the rounds exceeds that of the first, in percent.

    A middle round belongs to neither half; a single sample has no drift, 0.

    Raises:
        LaunchgapError: no samples, or one that is no positive finite number.
    """
    values = _checked(samples_ms, "samples")
    half = values.size // 2
    if not half:
        return 0.0
    return -float(_percent(values[:half], values[-half:]))


def drift_sentence(record: LatencyRecord | Mapping[str, Any]) -> str | None:
    """Which strategies drifted by more than `DRIFT_PERCENT` while they were measured; None if none did."""
    runs = record["strategies"].items()
    drifts = [(name, drift(run["event_ms"])) for name, run in runs if run["event_ms"]]
    words = [f"{name} by {percent:+.1f} %" for name, percent in drifts if abs(percent) > DRIFT_PERCENT]
    if not words:
        return None
    return (
        f"Drift: from the first half of the rounds to the second the median moved, {', '.join(words)}. "
        "The machine did not hold still, so another run may well differ."
    )


def noise(record: LatencyRecord | Mapping[str, Any]) -> Reduction | None:
    """Eager against eager over the same rounds (A/A); None where either series is missing."""
    eager = record["strategies"].get(Strategy.EAGER.value)
    if eager is None or not eager["event_ms"] or not record["aa_event_ms"]:
        return None
    return reduction(eager["event_ms"], record["aa_event_ms"], _seed(record))


def verdict(record: LatencyRecord | Mapping[str, Any], strategy: str = Strategy.GRAPH.value) -> Verdict:
    """Judge a strategy against eager: the interval's lower bound must clear `ACCEPTANCE_PERCENT`.

    A simulation is never judged, nor is a strategy that failed or whose output was not compared with eager's.
    An output that differs misses the criterion, however fast.

    Raises:
        LaunchgapError: the record's samples contradict each other (see `reduction`).
    """
    obstacle = _obstacle(record, strategy)
    if obstacle is not None:
        return Verdict("none", strategy, None, None, f"No verdict: {obstacle}.")
    runs = record["strategies"]
    baseline_ms, other_ms = runs[Strategy.EAGER.value]["event_ms"], runs[strategy]["event_ms"]
    found = reduction(baseline_ms, other_ms, _seed(record))
    aa = noise(record)
    if found.low is None or found.high is None:
        return Verdict("none", strategy, found, aa, "No verdict: one sample has no interval; run more.")
    correctness = runs[strategy]["correctness"]
    if correctness is None:
        sentence = (
            f"No verdict: {strategy}'s output was not compared with eager's; measure again to compare it."
        )
        return Verdict("none", strategy, found, aa, sentence)
    wrong = correctness["verdict"] == "DIFFERENT"
    met = found.low > ACCEPTANCE_PERCENT and not wrong
    return Verdict("met" if met else "missed", strategy, found, aa, _sentence(strategy, found, wrong), wrong)


def _sentence(strategy: str, found: Reduction, wrong: bool) -> str:
    low, high = found.low, found.high
    faster = "less" if found.percent >= 0 else "more"
    fact = (
        f"{strategy} takes {abs(found.percent):.1f} % {faster} time than eager "
        f"(reduction, 95 % interval: {low:.1f} to {high:.1f} %)"
    )
    if wrong:
        return f"{fact}, but its output differs from eager's: the criterion is missed."
    if low is not None and low > ACCEPTANCE_PERCENT:
        return f"{fact}: the criterion of {ACCEPTANCE_PERCENT:g} % is met."
    if found.percent > ACCEPTANCE_PERCENT:
        return (
            f"{fact}: the median clears {ACCEPTANCE_PERCENT:g} % but the interval's lower bound does not, "
            "so the criterion is missed; more runs would narrow the interval."
        )
    return f"{fact}: the criterion of {ACCEPTANCE_PERCENT:g} % is missed."


def _obstacle(record: LatencyRecord | Mapping[str, Any], strategy: str) -> str | None:
    """Why this record cannot be judged, or None."""
    if record["simulated"]:
        return "this is the CPU simulation of a graph, from which no speed-up is to be expected"
    for name in (Strategy.EAGER.value, strategy):
        run = record["strategies"].get(name)
        if run is None:
            return f"{name} was not measured"
        if run["status"] != "ok":
            return f"{name} failed ({run['error'] or 'no reason recorded'})"
        if not run["event_ms"]:
            return f"{name} has no samples"
    return None


def _percent(baseline: FloatArray, other: FloatArray, axis: int = -1) -> FloatArray:
    before = _median(baseline, axis)
    return np.asarray((before - _median(other, axis)) / before * 100.0)


def _median(values: FloatArray, axis: int) -> FloatArray:
    """What `np.median` gives, in a third of its time for many short rows: numpy sorts these vectorised."""
    ordered = np.sort(values, axis=axis)
    upper = values.shape[axis] // 2
    lower = (values.shape[axis] - 1) // 2
    return np.asarray((ordered.take(lower, axis) + ordered.take(upper, axis)) / 2)


def block_rounds(rounds: int, resamples: int, random: np.random.Generator) -> IntArray:
    """Numbers of the rounds in each resample, drawn in circular blocks; shape (resamples, rounds)."""
    block = max(1, round(rounds**0.5))
    starts = random.integers(rounds, size=(resamples, -(-rounds // block)))
    drawn = starts[:, :, np.newaxis] + np.arange(block)
    drawn[drawn >= rounds] -= rounds
    return np.asarray(drawn.reshape(resamples, -1)[:, :rounds], dtype=np.int64)


def _seed(record: LatencyRecord | Mapping[str, Any]) -> int:
    return int(record["settings"].get("seed", 0))


def paired(baseline_ms: Sequence[float], other_ms: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Two series of milliseconds whose rounds belong together.

    Raises:
        LaunchgapError: a series is empty, their lengths differ, or a sample is no positive finite number.
    """
    baseline, other = _checked(baseline_ms, "baseline"), _checked(other_ms, "compared strategy")
    if baseline.size != other.size:
        raise LaunchgapError(
            f"reduction: {baseline.size} baseline samples against {other.size}; rounds are compared "
            "in pairs, so measure both strategies in the same run"
        )
    return baseline, other


def _checked(samples_ms: Sequence[float], what: str) -> FloatArray:
    values = np.asarray(samples_ms, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise LaunchgapError(f"latency: no {what} to summarise; measure at least one run")
    if not np.all(np.isfinite(values)) or np.any(values <= 0):
        raise LaunchgapError(f"latency: {what} hold a value that is no positive time; measure again")
    return values
