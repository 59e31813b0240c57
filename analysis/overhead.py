"""What a graph takes beyond the durations that an eager trace shows, by the calibration of its GPU.

A graph of n nodes whose operations take d on average in an eager trace is replayed in T(n). The overhead is

    A(n) = T(n) - n d            constant = A(1)            gap(n) = (A(n) - A(1)) / (n - 1)

so the gap holds whatever a node adds to its traced duration; docs/prediction.md says what that is. The gap is
that of chains of decoder layers, whose kernels are unlike one another as a model's are; the constant is that
of graphs of one kernel. Between two calibrated sizes A is straight; beyond the largest the gap stays as it
is.

The same graph replays at one of several levels, and what else the process does decides at which. The
stretches of a calibration show the levels. The lowest is that of a process whose kernels are all on one
stream, the highest that of one that ran some on others; the draws take one stretch each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.calibration import SMALL, Calibration, FloatArray, GraphProbe

Level = Literal["lowest", "highest"]


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


def overhead_us(calibration: Calibration, sizes: Sizes, level: Level = "lowest") -> FloatArray:
    """Overhead of graphs of these sizes at a level, shape (g,)."""
    return overhead_range_us(calibration, sizes)[level == "highest"]


def overhead_range_us(calibration: Calibration, sizes: Sizes) -> tuple[FloatArray, FloatArray]:
    """Overhead at the lowest and at the highest level, each the mean over the layer probes, shape (g,)."""
    constant_us = np.median([_constant_us(probe) for probe in calibration.kernels])
    curves = []
    for probe in calibration.layers:
        levels = _levels_us(probe)
        constants_us = np.full(len(levels), constant_us)
        curves.append(_curve_us(calibration, probe, levels, constants_us, sizes.nodes))
    others_us = _others_us(calibration, sizes)
    low, high = (
        np.asarray(np.mean([edge(curve, axis=0) for curve in curves], axis=0) + others_us)
        for edge in (np.min, np.max)
    )
    return low, high


def overhead_draws_us(
    calibration: Calibration, sizes: Sizes, draws: int, random: np.random.Generator
) -> FloatArray:
    """Overheads that the calibration allows for, shape (draws, g).

    Each draw takes one probe for the gap, of layers or of one kernel, since a model's kernels are less alike
    than the ones and may be more alike than the others; one kernel probe for the constant; and one stretch of
    the calibration, and resamples their samples.
    """
    constants_us = np.empty(draws)
    for probe, rows in _chosen(calibration.kernels, draws, random):
        constants_us[rows] = _resampled(probe.event_us[0], rows.size, random) - _duration_us(probe)
    drawn = np.empty((draws, sizes.nodes.size))
    for probe, rows in _chosen((*calibration.layers, *calibration.kernels), draws, random):
        times_us = _drawn_times_us(probe, rows.size, random)
        drawn[rows] = _curve_us(calibration, probe, times_us, constants_us[rows], sizes.nodes)
    return drawn + _others_us(calibration, sizes)


def _drawn_times_us(probe: GraphProbe, draws: int, random: np.random.Generator) -> FloatArray:
    """Medians of resamples of one stretch each, all sizes from the same, shape (draws, s)."""
    times_us = np.empty((draws, probe.nodes.size))
    stretch = random.integers(probe.stretches, size=draws)
    for number in range(probe.stretches):
        rows = np.flatnonzero(stretch == number)
        for size, samples in enumerate(probe.event_us):
            own = np.array_split(samples, probe.stretches)[number]
            times_us[rows, size] = _resampled(own, rows.size, random)
    return times_us


def gap_and_constant_us(
    calibration: Calibration, nodes: float, level: Level = "lowest"
) -> tuple[float, float]:
    """Gap per node of a graph of so many kernels, and the constant; microseconds. See the module."""
    curve = overhead_us(calibration, _kernels_alone([1.0, max(nodes, 2.0)]), level)
    return float((curve[1] - curve[0]) / (max(nodes, 2.0) - 1)), float(curve[0])


def equal_kernels_gap_us(calibration: Calibration, nodes: float) -> float:
    """Gap per node of a chain of one kernel at the lowest level; microseconds.

    The median over the kernel probes.
    """
    gaps = []
    for probe in calibration.kernels:
        whole = float(_at(probe.nodes, _levels_us(probe), np.array([nodes])).min())
        gaps.append((whole - nodes * _duration_us(probe) - _constant_us(probe)) / (nodes - 1))
    return float(np.median(gaps))


def kind_cost_us(calibration: Calibration, kind: str) -> float:
    """Microseconds that a fill or copy in a kernel's place adds, beyond the difference of durations.

    Of the largest chain in which half of the nodes are of this kind and half the probe `small`; each stretch
    is compared with itself, and the median taken.
    """
    pair = next(probe for probe in calibration.probes if probe.kind == kind)
    small = next(probe for probe in calibration.probes if probe.name == SMALL)
    nodes = pair.nodes[-1:]
    alone_us = _at(small.nodes, _levels_us(small), nodes)[:, 0]
    each_us = float(np.median(_levels_us(pair)[:, -1] - alone_us)) / (float(nodes[0]) / 2)
    return each_us - (_duration_us(pair) - _duration_us(small))


def summary_lines(calibration: Calibration) -> list[str]:
    """What a calibration says, a line for each number."""
    lines = [f"{calibration.gpu}, driver {calibration.driver or '-'}, torch {calibration.torch or '-'}"]
    heads = ("gap us a node", "at the highest", "of equal kernels", "constant us")
    lines.append(f"{'nodes':>8}" + "".join(f"{head:>18}" for head in heads))
    for nodes in map(float, calibration.kernels[0].nodes[1:]):
        gap_us, constant_us = gap_and_constant_us(calibration, nodes)
        high_us, _ = gap_and_constant_us(calibration, nodes, "highest")
        gaps = (gap_us, high_us, equal_kernels_gap_us(calibration, nodes))
        lines.append(f"{int(nodes):>8}" + "".join(f"{gap:>18.3f}" for gap in gaps) + f"{constant_us:>18.2f}")
    lines += [
        f"a {kind} in a kernel's place {kind_cost_us(calibration, kind):+.3f} us"
        for kind in ("memset", "memcpy")
    ]
    lines.append(f"an eager launch takes the host {calibration.launch_us:.2f} us at least")
    lines.append(f"a request takes {calibration.request_us:.1f} us beside its replay")
    if calibration.bandwidth_bytes_per_s is not None:
        lines.append(f"memory is read at {calibration.bandwidth_bytes_per_s / 1e12:.2f} TB/s")
    return lines


def _curve_us(
    calibration: Calibration,
    probe: GraphProbe,
    times_us: FloatArray,
    constants_us: FloatArray,
    nodes: FloatArray,
) -> FloatArray:
    """A(n) of a graph of kernels, shape (d, g), from a probe's times, (d, s), and constants, (d,).

    What the fills and copies of layers cost more than kernels is taken off. A graph of one node costs the
    constant, whatever the probe.
    """
    duration_us = _duration_us(probe)
    more_us = sum(kind_cost_us(calibration, kind) for kind in probe.kinds if kind != "kernel")
    overheads_us = times_us - probe.nodes * (duration_us + more_us / len(probe.kinds))
    larger = probe.nodes > 1
    sizes = np.concatenate(([1.0], probe.nodes[larger]))
    return _at(sizes, np.concatenate((constants_us[:, np.newaxis], overheads_us[:, larger]), axis=1), nodes)


def _others_us(calibration: Calibration, sizes: Sizes) -> FloatArray:
    fill_us, copy_us = (kind_cost_us(calibration, kind) for kind in ("memset", "memcpy"))
    return sizes.memsets * fill_us + sizes.memcpys * copy_us


def _constant_us(probe: GraphProbe) -> float:
    return float(np.median(probe.event_us[0])) - _duration_us(probe)


def _duration_us(probe: GraphProbe) -> float:
    """A mean, since a request's work is a sum; tracers count in steps of 32 ns."""
    return float(np.mean(probe.duration_us))


def _levels_us(probe: GraphProbe) -> FloatArray:
    """The median of each stretch, shape (k, s)."""
    by_size = [
        [np.median(part) for part in np.array_split(samples, probe.stretches)] for samples in probe.event_us
    ]
    return np.array(by_size).T


def _at(sizes: FloatArray, times: FloatArray, nodes: FloatArray) -> FloatArray:
    """Times at any number of nodes, (d, g), from those at sizes, (d, s): straight between neighbours.

    Beyond the last size each further node takes what a node of it took: the difference of the last two would
    hold their levels, which need not be the same.
    """
    left = np.clip(np.searchsorted(sizes, nodes, side="right") - 1, 0, sizes.size - 2)
    share = (nodes - sizes[left]) / (sizes[left + 1] - sizes[left])
    between = times[:, left] * (1 - share) + times[:, left + 1] * share
    each = (times[:, -1:] - times[:, :1]) / (sizes[-1] - sizes[0])
    return np.where(nodes > sizes[-1], times[:, -1:] + each * (nodes - sizes[-1]), between)


def _chosen(
    probes: Sequence[GraphProbe], draws: int, random: np.random.Generator
) -> list[tuple[GraphProbe, npt.NDArray[np.intp]]]:
    """One probe for each draw at random: each probe with its draws."""
    numbers = random.integers(len(probes), size=draws)
    return [(probe, np.flatnonzero(numbers == number)) for number, probe in enumerate(probes)]


def _resampled(samples: FloatArray, draws: int, random: np.random.Generator) -> FloatArray:
    """Medians of resamples, shape (draws,)."""
    return np.median(samples[random.integers(samples.size, size=(draws, samples.size))], axis=1)


def _kernels_alone(nodes: Sequence[float]) -> Sizes:
    kernels = np.array(nodes, dtype=np.float64)
    return Sizes(kernels, np.zeros_like(kernels), np.zeros_like(kernels))
