"""What graph launches cost, read from a calibration record: time beyond the durations that a trace shows.

A chain of n equal nodes whose kernel takes d in an eager trace is replayed in T(n). The overhead is

    A(n) = T(n) - n d            constant = A(1)            gap(n) = (A(n) - A(1)) / (n - 1)

so the gap holds whatever a node adds to its traced duration; docs/prediction.md says what that is. Between
two calibrated sizes A is straight; beyond the largest it goes on as before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import LaunchgapError, read_record
from contract.calibration import CALIBRATION, CalibrationRecord

REMEDY = "make one on the GPU in question by `python -m scripts.calibrate -o calibration.json`"

SMALL = "small"
"""The kernel probe that fills and copies took turns with."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GraphProbe:
    """One chain of nodes: sizes in nodes, shape (s,), and the raw samples of each size in microseconds.

    `duration_us` are durations of single operations of the probe's kind, launched eagerly, as traced.
    """

    name: str
    kind: str
    nodes: FloatArray
    event_us: tuple[FloatArray, ...]
    duration_us: FloatArray


@dataclass(frozen=True)
class Calibration:
    """A GPU's launch costs.

    Attributes:
        launch_us: host time of one eager launch, the cheapest of the kernel probes: no request is faster.
        request_us: what a whole request takes beyond the replay by events: input copy, launch, wait.
        bandwidth_bytes_per_s: at which a large buffer was read; None where it was not measured.
    """

    gpu: str
    driver: str | None
    torch: str | None
    probes: tuple[GraphProbe, ...]
    launch_us: float
    request_us: float
    small_us: float
    bandwidth_bytes_per_s: float | None

    @property
    def kernels(self) -> tuple[GraphProbe, ...]:
        """Probes of kernels alone."""
        return tuple(probe for probe in self.probes if probe.kind == "kernel")


@dataclass(frozen=True)
class Sizes:
    """Nodes of graphs by kind, each of shape (g,)."""

    kernels: FloatArray
    memsets: FloatArray
    memcpys: FloatArray

    @property
    def nodes(self) -> FloatArray:
        """All nodes, shape (g,)."""
        return self.kernels + self.memsets + self.memcpys


def read_calibration(path: Path) -> Calibration:
    """Read a record of `scripts.calibrate`.

    Raises:
        LaunchgapError: there is none, or it is damaged.
    """
    if not path.is_file():
        raise LaunchgapError(f"{path}: no such calibration; {REMEDY}")
    return calibration_of(read_record(path, CALIBRATION), path)


def calibration_of(record: Mapping[str, Any] | CalibrationRecord, path: Path) -> Calibration:
    """A record's numbers; `path` is what a complaint names.

    Raises:
        LaunchgapError: something is missing, or no positive time.
    """
    try:
        probes = tuple(_probe(name, fields) for name, fields in record["probes"].items())
        kernels = [fields for fields in record["probes"].values() if fields["kind"] == "kernel"]
        bandwidth = record["read_bandwidth_bytes_per_s"]
        calibration = Calibration(
            gpu=str(record["gpu"]),
            driver=record["environment"].get("driver"),
            torch=record["environment"].get("torch"),
            probes=probes,
            launch_us=min(float(fields["eager_launch_us"]["median"]) for fields in kernels),
            request_us=float(np.median(np.concatenate([_beyond_events(fields) for fields in kernels]))),
            small_us=float(record["probes"][SMALL]["eager_duration_us"]["median"]),
            bandwidth_bytes_per_s=None if bandwidth is None else float(bandwidth["median"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LaunchgapError(f"{path}: half a calibration ({error!r}); {REMEDY}") from error
    _check(calibration, path)
    return calibration


def overhead_us(calibration: Calibration, sizes: Sizes) -> FloatArray:
    """Overhead of graphs of these sizes: the median over the kernel probes, shape (g,)."""
    medians = {probe.name: _medians(probe) for probe in calibration.probes}
    durations = _durations(calibration)
    curves = [
        _overhead(probe, medians[probe.name][np.newaxis], np.array([durations[probe.name]]), sizes.nodes)[0]
        for probe in calibration.kernels
    ]
    others = _others(calibration, medians, durations, sizes)
    return np.asarray(np.median(np.stack(curves), axis=0) + others)


def overhead_draws_us(
    calibration: Calibration, sizes: Sizes, draws: int, random: np.random.Generator
) -> FloatArray:
    """Overheads that the calibration allows for, shape (draws, g).

    Each draw takes one kernel probe, as real kernels are like one or the other, and resamples its samples.
    """
    if len(calibration.kernels) == 0 or sizes.nodes.size == 0:
        return np.zeros((draws, sizes.nodes.size))
    medians = {probe.name: _medians(probe) for probe in calibration.probes}
    durations = _durations(calibration)
    chosen = random.integers(len(calibration.kernels), size=draws)
    drawn = np.empty((draws, sizes.nodes.size))
    for number, probe in enumerate(calibration.kernels):
        rows = np.flatnonzero(chosen == number)
        times = np.stack([_resampled(one, rows.size, random) for one in probe.event_us], axis=1)
        length_us = _resampled(probe.duration_us, rows.size, random, np.mean)
        drawn[rows] = _overhead(probe, times, length_us, sizes.nodes)
    return drawn + _others(calibration, medians, durations, sizes)


def gap_and_constant_us(calibration: Calibration, nodes: float) -> tuple[float, float]:
    """Gap per node of a graph of so many kernels, and the constant; microseconds. See the module."""
    curve = overhead_us(calibration, _kernels_alone([1.0, max(nodes, 2.0)]))
    return float((curve[1] - curve[0]) / (max(nodes, 2.0) - 1)), float(curve[0])


def kind_cost_us(calibration: Calibration, kind: str) -> float:
    """Microseconds that a fill or copy in a kernel's place adds, beyond the difference of durations."""
    medians = {probe.name: _medians(probe) for probe in calibration.probes}
    durations = _durations(calibration)
    return _kind_cost_us(calibration, kind, medians, durations)


def summary_lines(calibration: Calibration) -> list[str]:
    """What a calibration says, a line for each number."""
    lines = [f"{calibration.gpu}, driver {calibration.driver or '-'}, torch {calibration.torch or '-'}"]
    lines.append(f"{'nodes':>8}{'gap us a node':>16}{'constant us':>14}")
    for nodes in calibration.kernels[0].nodes[1:]:
        gap, constant = gap_and_constant_us(calibration, float(nodes))
        lines.append(f"{int(nodes):>8}{gap:>16.3f}{constant:>14.2f}")
    lines += [
        f"a {kind} in a kernel's place {kind_cost_us(calibration, kind):+.3f} us"
        for kind in ("memset", "memcpy")
    ]
    lines.append(f"an eager launch takes the host {calibration.launch_us:.2f} us at least")
    lines.append(f"a request takes {calibration.request_us:.1f} us beside its replay")
    if calibration.bandwidth_bytes_per_s is not None:
        lines.append(f"memory is read at {calibration.bandwidth_bytes_per_s / 1e12:.2f} TB/s")
    return lines


def _probe(name: str, fields: Mapping[str, Any]) -> GraphProbe:
    sizes = sorted(fields["sizes"], key=lambda size: int(size["nodes"]))
    return GraphProbe(
        name=str(name),
        kind=str(fields["kind"]),
        nodes=np.array([int(size["nodes"]) for size in sizes], dtype=np.float64),
        event_us=tuple(_samples(size["event_us"]) for size in sizes),
        duration_us=_samples(fields["eager_duration_us"]),
    )


def _samples(series: Mapping[str, Any]) -> FloatArray:
    return np.asarray([float(one) for one in series["samples"]], dtype=np.float64)


def _beyond_events(fields: Mapping[str, Any]) -> FloatArray:
    pairs = [(_samples(size["wall_us"]), _samples(size["event_us"])) for size in fields["sizes"]]
    return np.concatenate([wall - event for wall, event in pairs])


def _check(calibration: Calibration, path: Path) -> None:
    """Refuse what no GPU measures.

    Raises:
        LaunchgapError: a probe, a size or a positive time is missing.
    """
    bandwidth = calibration.bandwidth_bytes_per_s
    numbers = [calibration.launch_us, calibration.small_us, 1.0 if bandwidth is None else bandwidth]
    series = [one for probe in calibration.probes for one in (*probe.event_us, probe.duration_us)]
    usable = all(
        one.size and np.isfinite(one).all() and (one > 0).all() for one in (*series, np.array(numbers))
    )
    sized = all(probe.nodes.size and (np.diff(probe.nodes) > 0).all() for probe in calibration.probes)
    grown = all(probe.nodes.size > 1 and probe.nodes[0] == 1 for probe in calibration.kernels)
    kinds = {probe.kind for probe in calibration.probes}
    if not (usable and sized and grown and {"kernel", "memset", "memcpy"} <= kinds):
        raise LaunchgapError(
            f"{path}: half a calibration (a probe, a size or a positive time is missing); {REMEDY}"
        )


def _medians(probe: GraphProbe) -> FloatArray:
    return np.array([np.median(one) for one in probe.event_us])


def _overhead(
    probe: GraphProbe, times_us: FloatArray, duration_us: FloatArray, nodes: FloatArray
) -> FloatArray:
    """A(n), shape (d, g), of times at the probe's sizes, shape (d, s), and durations, shape (d,)."""
    return _at(probe.nodes, times_us, nodes) - duration_us[:, np.newaxis] * nodes


def _at(sizes: FloatArray, times: FloatArray, nodes: FloatArray) -> FloatArray:
    """Times at any number of nodes: straight between neighbouring sizes, and on beyond the last."""
    left = np.clip(np.searchsorted(sizes, nodes, side="right") - 1, 0, sizes.size - 2)
    share = (nodes - sizes[left]) / (sizes[left + 1] - sizes[left])
    return np.asarray(times[:, left] * (1 - share) + times[:, left + 1] * share)


def _durations(calibration: Calibration) -> dict[str, float]:
    """Traced durations by probe: means, since a request's work is a sum; tracers count in steps of 32 ns."""
    return {probe.name: float(np.mean(probe.duration_us)) for probe in calibration.probes}


def _resampled(
    samples: FloatArray,
    draws: int,
    random: np.random.Generator,
    middle: Callable[..., FloatArray] = np.median,
) -> FloatArray:
    """Medians (or means) of resamples, shape (draws,)."""
    return np.asarray(middle(samples[random.integers(samples.size, size=(draws, samples.size))], axis=1))


def _others(
    calibration: Calibration, medians: Mapping[str, FloatArray], durations: Mapping[str, float], sizes: Sizes
) -> FloatArray:
    fills, copies = (_kind_cost_us(calibration, kind, medians, durations) for kind in ("memset", "memcpy"))
    return sizes.memsets * fills + sizes.memcpys * copies


def _kind_cost_us(
    calibration: Calibration, kind: str, medians: Mapping[str, FloatArray], durations: Mapping[str, float]
) -> float:
    """See `kind_cost_us`: of the largest chain in which half of the nodes are of this kind."""
    pair = next(probe for probe in calibration.probes if probe.kind == kind)
    small = next(probe for probe in calibration.probes if probe.name == SMALL)
    nodes = pair.nodes[-1:]
    alone = float(_at(small.nodes, medians[SMALL][np.newaxis], nodes)[0, 0])
    each = (float(medians[pair.name][-1]) - alone) / (float(nodes[0]) / 2)
    return each - (durations[pair.name] - durations[SMALL])


def _kernels_alone(nodes: Sequence[float]) -> Sizes:
    kernels = np.array(nodes, dtype=np.float64)
    return Sizes(kernels, np.zeros_like(kernels), np.zeros_like(kernels))
