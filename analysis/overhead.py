"""What a graph takes beyond the durations that an eager trace shows, by the calibration of its GPU.

A graph of n nodes whose operations take d on average in an eager trace is replayed in T(n). The overhead is

    A(n) = T(n) - n d            constant = A(1)            gap(n) = (A(n) - A(1)) / (n - 1)

so the gap holds whatever a node adds to its traced duration; docs/prediction.md says what that is. The gap is
that of chains of decoder layers, whose kernels are unlike one another as a model's are; the constant is that
of graphs of one kernel. Between two calibrated sizes A is straight; beyond the largest it goes on as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.calibration import SMALL, Calibration, FloatArray, GraphProbe


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


def overhead_us(calibration: Calibration, sizes: Sizes) -> FloatArray:
    """Overhead of graphs of these sizes: the mean over the layer probes, shape (g,)."""
    constant_us = np.array([np.median([_constant_us(probe) for probe in calibration.kernels])])
    curves = [
        _layers_us(calibration, probe, _medians(probe)[np.newaxis], constant_us, sizes.nodes)
        for probe in calibration.layers
    ]
    return np.asarray(np.mean(np.concatenate(curves), axis=0) + _others_us(calibration, sizes))


def overhead_draws_us(
    calibration: Calibration, sizes: Sizes, draws: int, random: np.random.Generator
) -> FloatArray:
    """Overheads that the calibration allows for, shape (draws, g).

    Each draw takes one layer probe for the gap and one kernel probe for the constant, since a model is like
    one or the other, and resamples their samples.
    """
    constants_us = np.empty(draws)
    for probe, rows in _chosen(calibration.kernels, draws, random):
        constants_us[rows] = _resampled(probe.event_us[0], rows.size, random) - _duration_us(probe)
    drawn = np.empty((draws, sizes.nodes.size))
    for probe, rows in _chosen(calibration.layers, draws, random):
        times_us = np.stack([_resampled(one, rows.size, random) for one in probe.event_us], axis=1)
        drawn[rows] = _layers_us(calibration, probe, times_us, constants_us[rows], sizes.nodes)
    return drawn + _others_us(calibration, sizes)


def gap_and_constant_us(calibration: Calibration, nodes: float) -> tuple[float, float]:
    """Gap per node of a graph of so many kernels, and the constant; microseconds. See the module."""
    curve = overhead_us(calibration, _kernels_alone([1.0, max(nodes, 2.0)]))
    return float((curve[1] - curve[0]) / (max(nodes, 2.0) - 1)), float(curve[0])


def equal_kernels_gap_us(calibration: Calibration, nodes: float) -> float:
    """Gap per node of a chain of one kernel, repeated: the median over the kernel probes; microseconds."""
    gaps = []
    for probe in calibration.kernels:
        whole = _at(probe.nodes, _medians(probe)[np.newaxis], np.array([nodes]))[0, 0]
        gaps.append((whole - nodes * _duration_us(probe) - _constant_us(probe)) / (nodes - 1))
    return float(np.median(gaps))


def kind_cost_us(calibration: Calibration, kind: str) -> float:
    """Microseconds that a fill or copy in a kernel's place adds, beyond the difference of durations.

    Of the largest chain in which half of the nodes are of this kind and half the probe `small`.
    """
    pair = next(probe for probe in calibration.probes if probe.kind == kind)
    small = next(probe for probe in calibration.probes if probe.name == SMALL)
    nodes = pair.nodes[-1:]
    alone_us = float(_at(small.nodes, _medians(small)[np.newaxis], nodes)[0, 0])
    each_us = (float(_medians(pair)[-1]) - alone_us) / (float(nodes[0]) / 2)
    return each_us - (_duration_us(pair) - _duration_us(small))


def summary_lines(calibration: Calibration) -> list[str]:
    """What a calibration says, a line for each number."""
    lines = [f"{calibration.gpu}, driver {calibration.driver or '-'}, torch {calibration.torch or '-'}"]
    lines.append(f"{'nodes':>8}{'gap us a node':>16}{'of equal kernels':>18}{'constant us':>14}")
    for nodes in calibration.kernels[0].nodes[1:]:
        gap_us, constant_us = gap_and_constant_us(calibration, float(nodes))
        equal_us = equal_kernels_gap_us(calibration, float(nodes))
        lines.append(f"{int(nodes):>8}{gap_us:>16.3f}{equal_us:>18.3f}{constant_us:>14.2f}")
    lines += [
        f"a {kind} in a kernel's place {kind_cost_us(calibration, kind):+.3f} us"
        for kind in ("memset", "memcpy")
    ]
    lines.append(f"an eager launch takes the host {calibration.launch_us:.2f} us at least")
    lines.append(f"a request takes {calibration.request_us:.1f} us beside its replay")
    if calibration.bandwidth_bytes_per_s is not None:
        lines.append(f"memory is read at {calibration.bandwidth_bytes_per_s / 1e12:.2f} TB/s")
    return lines


def _layers_us(
    calibration: Calibration,
    probe: GraphProbe,
    times_us: FloatArray,
    constants_us: FloatArray,
    nodes: FloatArray,
) -> FloatArray:
    """A(n) of a graph of kernels, shape (d, g), from times of layers, (d, s), and constants, (d,).

    What the fills and copies of the layers cost more than kernels is taken off, and a graph of one node
    costs the constant.
    """
    duration_us = _duration_us(probe)
    more_us = sum(kind_cost_us(calibration, kind) for kind in probe.kinds if kind != "kernel")
    overheads_us = times_us - probe.nodes * (duration_us + more_us / len(probe.kinds))
    sizes = np.concatenate(([1.0], probe.nodes))
    return _at(sizes, np.concatenate((constants_us[:, np.newaxis], overheads_us), axis=1), nodes)


def _others_us(calibration: Calibration, sizes: Sizes) -> FloatArray:
    fill_us, copy_us = (kind_cost_us(calibration, kind) for kind in ("memset", "memcpy"))
    return sizes.memsets * fill_us + sizes.memcpys * copy_us


def _constant_us(probe: GraphProbe) -> float:
    return float(np.median(probe.event_us[0])) - _duration_us(probe)


def _duration_us(probe: GraphProbe) -> float:
    """A mean, since a request's work is a sum; tracers count in steps of 32 ns."""
    return float(np.mean(probe.duration_us))


def _medians(probe: GraphProbe) -> FloatArray:
    return np.array([np.median(one) for one in probe.event_us])


def _at(sizes: FloatArray, times: FloatArray, nodes: FloatArray) -> FloatArray:
    """Times at any number of nodes: straight between neighbouring sizes, and on beyond the last."""
    left = np.clip(np.searchsorted(sizes, nodes, side="right") - 1, 0, sizes.size - 2)
    share = (nodes - sizes[left]) / (sizes[left + 1] - sizes[left])
    return np.asarray(times[:, left] * (1 - share) + times[:, left + 1] * share)


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
