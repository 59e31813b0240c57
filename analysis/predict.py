"""The latency of a CUDA graph, predicted from the trace of the eager run and the GPU's calibration.

    latency = work + overhead(nodes)        overhead(n) = constant + (n - 1) gap(n), see analysis.overhead

Work is the GPU time of what would be the graph's nodes, as the eager trace shows it. Nothing is fitted to any
model. docs/prediction.md has what this holds and what it cannot know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.calibration import Calibration
from analysis.latency import CONFIDENCE
from analysis.overhead import Level, Sizes, gap_and_constant_us, overhead_draws_us, overhead_range_us
from analysis.predict_work import EagerWork

LEAST_GAIN_PERCENT = 5.0
"""A smaller gain is within what the prediction may be off, and not worth a graph."""

DRAWS = 2_000
"""Bootstrap resamples behind an interval."""

REQUEST_COLUMNS = (
    "request",
    "nodes",
    "kernels",
    "memsets",
    "memcpys",
    "work_us",
    "predicted_us",
    "low_us",
    "high_us",
    "eager_us",
)
POOLED_COLUMNS = ("quantity", "us", "low_us", "high_us", "meaning")

_AT: dict[Level, str] = {
    "lowest": "all kernels of the process on one stream",
    "highest": "after kernels on other streams",
}
_BATCH = 100

FloatArray = npt.NDArray[np.float64]
Answer = Literal["helps", "may help", "does not help"]


@dataclass(frozen=True)
class Estimate:
    """Microseconds with the bounds of a 95 % interval."""

    us: float
    low_us: float
    high_us: float

    def plus(self, added_us: float) -> Estimate:
        """The same, so much later."""
        return Estimate(self.us + added_us, self.low_us + added_us, self.high_us + added_us)


@dataclass(frozen=True)
class Prediction:
    """What a graph of the traced work would take.

    Attributes:
        requests: one row per request; `REQUEST_COLUMNS`.
        latency: the median request at `level`, as CUDA events tell it.
        levels_us: the median request at the lowest level and at the highest, see analysis.overhead.
        wall: the same as the host's clock tells it, input copy and wait included.
        bound_us: the median request's work: what is left if launches cost nothing.
        floor_us: time to read the weights once; None where their size or the bandwidth is not known.
        gap_us: per node, and `constant_us` per launch: what the overhead comes to at this number of nodes.
        eager_least_us: no eager run of this work is faster, with or without a profiler: its GPU time, or
            what its launches cost at least.
        eager_us: of the median request in the trace, so with what the profiler costs; no eager run is slower.
    """

    requests: pd.DataFrame
    level: Level
    latency: Estimate
    levels_us: tuple[float, float]
    wall: Estimate
    bound_us: float
    floor_us: float | None
    nodes: float
    gap_us: float
    constant_us: float
    eager_least_us: float
    eager_us: float


@dataclass(frozen=True)
class Judgement:
    """Whether a graph would help, by which eager latency in microseconds, and why in a sentence."""

    answer: Answer
    sentence: str


def predict(
    work: EagerWork,
    calibration: Calibration,
    *,
    weight_bytes: float | None = None,
    extra_nodes: int = 0,
    level: Level = "highest",
    seed: int = 0,
) -> Prediction:
    """Predict every request and the median one, at one of the levels that graphs replay at.

    The interval holds two things that were not known: which requests were traced (bootstrap), and the
    calibration (its samples resampled, one of its probes chosen at random for each draw). `extra_nodes`
    are kernels that the capture adds to eager's, each as long as the calibration's small kernel.
    """
    rows = work.requests
    base_us = rows["work_us"].to_numpy(dtype=np.float64) + extra_nodes * calibration.small_us
    kinds = [rows[name].to_numpy(dtype=np.float64) for name in ("kernels", "memsets", "memcpys")]
    sizes, place = _distinct(kinds[0] + extra_nodes, kinds[1], kinds[2])
    lowest, highest = (base_us + edge_us[place] for edge_us in overhead_range_us(calibration, sizes))
    point, random = lowest if level == "lowest" else highest, np.random.default_rng(seed)
    drawn = overhead_draws_us(calibration, sizes, DRAWS, random)
    low, high = (np.quantile(drawn, share, axis=0)[place] for share in _edges())
    median_us = float(np.median(point))
    low_us, high_us = np.quantile(_pooled(base_us, drawn, place, random), _edges())
    nodes = float(np.median(sizes.nodes[place]))
    gap_us, constant_us = gap_and_constant_us(calibration, nodes, level)
    least_us = np.maximum(rows["busy_us"], rows["launches"] * calibration.launch_us)
    latency = Estimate(median_us, min(float(low_us), median_us), max(float(high_us), median_us))
    return Prediction(
        requests=_table(rows, sizes.nodes[place], point, base_us + low, base_us + high),
        level=level,
        latency=latency,
        levels_us=(float(np.median(lowest)), float(np.median(highest))),
        wall=latency.plus(calibration.request_us),
        bound_us=float(np.median(base_us)),
        floor_us=_floor_us(weight_bytes, calibration.bandwidth_bytes_per_s),
        nodes=nodes,
        gap_us=gap_us,
        constant_us=constant_us,
        eager_least_us=float(np.median(least_us)),
        eager_us=float(np.median(rows["eager_us"])),
    )


def pooled_table(prediction: Prediction) -> pd.DataFrame:
    """The median request in a few rows; columns `POOLED_COLUMNS`."""
    one, wall = prediction.latency, prediction.wall
    rows: list[tuple[str, float, float, float, str]] = [
        ("graph latency", one.us, one.low_us, one.high_us, f"replay by CUDA events, {_AT[prediction.level]}"),
        ("graph wall time", wall.us, wall.low_us, wall.high_us, "with input copy and final wait"),
        _single("at the lowest level", prediction.levels_us[0], _AT["lowest"]),
        _single("at the highest level", prediction.levels_us[1], _AT["highest"]),
        _single("launches free", prediction.bound_us, "the work alone: no launch trick goes below it"),
        _single("overhead", one.us - prediction.bound_us, "what launching the graph and its nodes adds"),
        _single("gap per node", prediction.gap_us, f"of a graph of {prediction.nodes:,.0f} nodes"),
        _single("constant", prediction.constant_us, "of a graph of one node"),
        _single("eager, traced", prediction.eager_us, "under the profiler, which slows it"),
        _single("eager, at least", prediction.eager_least_us, "its GPU time or the cheapest launches"),
    ]
    if prediction.floor_us is not None:
        rows.append(_single("weight-read floor", prediction.floor_us, "to read the weights once from memory"))
    return pd.DataFrame(rows, columns=list(POOLED_COLUMNS))


def judge(
    prediction: Prediction, work: EagerWork, calibration: Calibration, measured_us: float | None
) -> Judgement:
    """Would a graph help? By the measured eager latency, or without one by what it must lie between."""
    graph_us = prediction.latency.us
    slowest_us = prediction.eager_us if measured_us is None else measured_us
    fastest_us = min(prediction.eager_least_us, slowest_us) if measured_us is None else measured_us
    best, worst = ((1 - graph_us / eager) * 100 for eager in (slowest_us, fastest_us))
    eager = _span(prediction, measured_us)
    of_what = "as traced" if measured_us is None else "as measured"
    if best < LEAST_GAIN_PERCENT:
        return Judgement("does not help", _why_not(prediction, work, calibration, slowest_us, of_what))
    if worst >= LEAST_GAIN_PERCENT:
        by = f"{worst:.0f} %" if measured_us is not None else f"{worst:.0f} to {best:.0f} %"
        return Judgement(
            "helps",
            f"A graph will help: {graph_us:,.0f} us, {by} less than eager's {eager}.",
        )
    return Judgement(
        "may help",
        f"A graph may help, by {best:.0f} % at most: {graph_us:,.0f} us, where eager takes {eager}; measure "
        "that without a profiler and give --latency latency.json.",
    )


def _floor_us(weight_bytes: float | None, bytes_per_s: float | None) -> float | None:
    return weight_bytes / bytes_per_s * 1e6 if weight_bytes and bytes_per_s else None


def _why_not(
    prediction: Prediction, work: EagerWork, calibration: Calibration, eager_us: float, of_what: str
) -> str:
    graph_us = prediction.latency.us
    less = (1 - graph_us / eager_us) * 100
    busy = min(float(np.median(work.requests["busy_us"])) / eager_us * 100, 100.0)
    long = work.mean_node_us >= calibration.launch_us
    return (
        f"Graphs will not help here: {graph_us:,.0f} us against {eager_us:,.0f} us of eager {of_what}, "
        f"{less:.1f} % less. {'Kernels are long' if long else 'The GPU hardly waits for launches'}: they run "
        f"{work.mean_node_us:.1f} us on average, launching one takes the host {calibration.launch_us:.1f} us "
        f"at least, and the GPU is busy for {busy:.0f} % of the request already."
    )


def _span(prediction: Prediction, measured_us: float | None) -> str:
    if measured_us is not None:
        return f"{measured_us:,.0f} us as measured"
    return (
        f"{prediction.eager_least_us:,.0f} us at least and {prediction.eager_us:,.0f} us under the profiler"
    )


def _single(name: str, value: float, meaning: str) -> tuple[str, float, float, float, str]:
    return (name, value, float("nan"), float("nan"), meaning)


def _edges() -> tuple[float, float]:
    outside = (1 - CONFIDENCE) / 2
    return outside, 1 - outside


def _distinct(
    kernels: FloatArray, memsets: FloatArray, memcpys: FloatArray
) -> tuple[Sizes, npt.NDArray[np.int64]]:
    """The sizes that occur, each once, and which of them each request has."""
    found, place = np.unique(np.stack([kernels, memsets, memcpys], axis=1), axis=0, return_inverse=True)
    return Sizes(found[:, 0], found[:, 1], found[:, 2]), place.reshape(-1).astype(np.int64)


def _pooled(
    base_us: FloatArray, drawn: FloatArray, place: npt.NDArray[np.int64], random: np.random.Generator
) -> FloatArray:
    """Medians over resampled requests, one for each draw of the calibration; shape (draws,)."""
    found = []
    for first in range(0, len(drawn), _BATCH):
        overheads = drawn[first : first + _BATCH]
        chosen = random.integers(base_us.size, size=(len(overheads), base_us.size))
        each = base_us[chosen] + np.take_along_axis(overheads, place[chosen], axis=1)
        found.append(np.median(each, axis=1))
    return np.concatenate(found)


def _table(
    rows: pd.DataFrame, nodes: FloatArray, point: FloatArray, low: FloatArray, high: FloatArray
) -> pd.DataFrame:
    table = rows.assign(nodes=nodes.astype(np.int64), predicted_us=point, low_us=low, high_us=high)
    table["low_us"] = np.minimum(low, point)
    table["high_us"] = np.maximum(high, point)
    return table[list(REQUEST_COLUMNS)]
