"""A GPU's launch costs, as `scripts.calibrate` recorded them. `analysis.overhead` makes use of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract import LaunchgapError, read_record
from contract.calibration import CALIBRATION, LAYER, CalibrationRecord

_SHIPPED = Path(__file__).resolve().parents[1] / "profiles" / "calibration" / "nvidia-h200.json"

REMEDY = "make one on the GPU in question by `python -m scripts.calibrate -o calibration.json`"

SMALL = "small"
"""The kernel probe that fills and copies took turns with."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GraphProbe:
    """One chain of nodes: sizes in nodes, shape (s,), and the raw samples of each size in microseconds.

    The samples were taken in so many `stretches`, one after the other, between which the process did
    something else: a graph replays at one of several levels, and which one changes with that.
    `duration_us` are durations of single operations, launched eagerly, as traced: of a layer's all, else of
    the probe's kind. `kinds` are what one step launches.
    """

    name: str
    kind: str
    kinds: tuple[str, ...]
    nodes: FloatArray
    event_us: tuple[FloatArray, ...]
    duration_us: FloatArray
    stretches: int = 1


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
        """Probes of one kernel, repeated."""
        return tuple(probe for probe in self.probes if probe.kind == "kernel")

    @property
    def layers(self) -> tuple[GraphProbe, ...]:
        """Probes of decoder layers."""
        return tuple(probe for probe in self.probes if probe.kind == LAYER)


def shipped_calibration() -> Path:
    """The record of an NVIDIA H200, for whoever has none of the GPU in question."""
    return _SHIPPED


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
        stretches = int(record["settings"].get("stretches", 1))
        probes = tuple(_probe(name, fields, stretches) for name, fields in record["probes"].items())
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


def _probe(name: str, fields: Mapping[str, Any], stretches: int) -> GraphProbe:
    sizes = sorted(fields["sizes"], key=lambda size: int(size["nodes"]))
    return GraphProbe(
        name=str(name),
        kind=str(fields["kind"]),
        kinds=tuple(map(str, fields["kinds"])),
        nodes=np.array([int(size["nodes"]) for size in sizes], dtype=np.float64),
        event_us=tuple(_samples(size["event_us"]) for size in sizes),
        duration_us=_samples(fields["eager_duration_us"]),
        stretches=stretches,
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
    split = all(1 <= probe.stretches <= one.size for probe in calibration.probes for one in probe.event_us)
    sized = all(probe.nodes.size and (np.diff(probe.nodes) > 0).all() for probe in calibration.probes)
    grown = all(probe.nodes.size > 1 and probe.nodes[0] == 1 for probe in calibration.kernels)
    kinds = {probe.kind for probe in calibration.probes}
    if not (usable and split and sized and grown and {"kernel", "memset", "memcpy", LAYER} <= kinds):
        raise LaunchgapError(
            f"{path}: half a calibration (a probe, a size or a positive time is missing); {REMEDY}"
        )
