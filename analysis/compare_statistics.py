"""How far a new series of times is from an old one of another run: change, interval, effect, noise floor.

The two runs share no rounds, so nothing is paired: each series is resampled by itself, in blocks of
neighbouring rounds as in `analysis.latency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.latency import CONFIDENCE, DRIFT_PERCENT, RESAMPLES, block_rounds, summarise
from contract import LaunchgapError

Verdict = Literal["slower", "faster", "same", "unsure"]

SAME_PERCENT = DRIFT_PERCENT
"""An interval that lies within so many percent of no change is called the same."""

_BATCH = 1_000
_OUTSIDE = (1 - CONFIDENCE) / 2

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """From old to new in percent of old; positive is slower.

    `low` and `high` bound the 95 % interval and `cliffs_delta` is the effect, from -1 (every new time is
    shorter) to 1 (every one is longer). None where there are no samples to take them from.
    """

    percent: float
    low: float | None = None
    high: float | None = None
    cliffs_delta: float | None = None


@dataclass(frozen=True)
class Floor:
    """The largest change that noise alone is known to make, in percent, and what showed it."""

    percent: float
    source: str


def latency_change(
    old_ms: Sequence[float], new_ms: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> Change:
    """Change of the median with a 95 % percentile interval, and Cliff's delta.

    Both series are resampled independently in circular blocks of about sqrt(n) rounds (Politis and Romano
    1992), `resamples` times. A series of one sample has no interval. The same seed gives the same interval.

    Raises:
        LaunchgapError: a series is empty, or a sample is no positive finite number.
    """
    percent = percent_change(summarise(old_ms).median, summarise(new_ms).median)
    old, new = np.asarray(old_ms, dtype=np.float64), np.asarray(new_ms, dtype=np.float64)
    delta = cliffs_delta(old, new)
    if min(old.size, new.size) < 2:
        return Change(percent, cliffs_delta=delta)
    random = np.random.default_rng(seed)
    before, after = _medians(old, resamples, random), _medians(new, resamples, random)
    low, high = np.quantile((after - before) / before * 100.0, [_OUTSIDE, 1 - _OUTSIDE])
    return Change(percent, float(low), float(high), delta)


def percent_change(old: float, new: float) -> float:
    """From old to new in percent of old, which is positive."""
    return (new - old) / old * 100.0


def cliffs_delta(old: FloatArray, new: FloatArray) -> float:
    """P(new > old) - P(new < old) over all pairs (Cliff 1993); shapes (m,) and (n,), neither empty.

    It is 2 A - 1 of Vargha and Delaney's (2000) probability of superiority A.
    """
    ranked = np.sort(old)
    above = np.searchsorted(ranked, new, side="left").sum()
    below = (old.size - np.searchsorted(ranked, new, side="right")).sum()
    return float(above - below) / (old.size * new.size)


def verdict(change: Change, floor: Floor) -> Verdict:
    """Slower or faster if the whole interval is beyond the floor; same if it is all close to no change.

    A high floor makes nothing the same: of a run that did not hold still nothing is sure.
    """
    if change.low is None or change.high is None:
        return "unsure"
    if change.low > floor.percent:
        return "slower"
    if change.high < -floor.percent:
        return "faster"
    return "same" if change.low >= -SAME_PERCENT and change.high <= SAME_PERCENT else "unsure"


def largest(floors: Sequence[Floor]) -> Floor:
    """The highest floor; the first of equals.

    Raises:
        LaunchgapError: there is none.
    """
    if not floors:
        raise LaunchgapError("noise: no run tells any; measure with at least two rounds")
    return max(floors, key=lambda floor: floor.percent)


def mean_changes(
    old_sum: FloatArray, old_calls: FloatArray, new_sum: FloatArray, new_calls: FloatArray, resamples: int
) -> FloatArray:
    """Bounds and floor of the change of each kernel's mean duration, in percent; shape (kernels, 3).

    Requests are resampled as rounds are, all kernels of a request together. The columns are low, high and the
    floor: the larger change from the first half of a trace's requests to its second. NaN where a resample
    holds no call of the kernel.

    Args:
        old_sum: microseconds of each kernel in each request of the old trace, shape (requests, kernels).
        old_calls: how often it ran there, same shape.
        new_sum: microseconds in the new trace, whose requests may be of another number.
        new_calls: how often it ran there.
        resamples: how many.
    """
    random = np.random.default_rng(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        before = _means(old_sum, old_calls, resamples, random)
        after = _means(new_sum, new_calls, resamples, random)
        bounds = np.quantile((after - before) / before * 100.0, [_OUTSIDE, 1 - _OUTSIDE], axis=0)
        floors = np.fmax(_half_change(old_sum, old_calls), _half_change(new_sum, new_calls))
    return np.column_stack([*bounds, floors])


def _half_change(total: FloatArray, calls: FloatArray) -> FloatArray:
    half = len(total) // 2
    first = total[:half].sum(axis=0) / calls[:half].sum(axis=0)
    second = total[-half:].sum(axis=0) / calls[-half:].sum(axis=0)
    return np.asarray(np.abs(second - first) / first * 100.0)


def _means(total: FloatArray, calls: FloatArray, resamples: int, random: np.random.Generator) -> FloatArray:
    requests = len(total)
    rounds = block_rounds(requests, resamples, random)
    weights = np.zeros((resamples, requests))
    np.add.at(weights, (np.arange(resamples)[:, np.newaxis], rounds), 1.0)
    return np.asarray((weights @ total) / (weights @ calls))


def _medians(values: FloatArray, resamples: int, random: np.random.Generator) -> FloatArray:
    batches = [min(_BATCH, resamples - done) for done in range(0, resamples, _BATCH)]
    return np.concatenate([np.median(values[block_rounds(values.size, n, random)], axis=1) for n in batches])
