"""What launching costs on this GPU: eagerly, and as the nodes of graphs of 1 to 1,000 nodes. No model is run.

Chains of operations that do next to nothing (`inference.calibration_probes`) are launched one by one and
captured as graphs of many sizes. The graphs are then replayed by the very code that measures latencies
(`run_request`), all in turns. docs/prediction.md has the formulas that the record is used with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from contract import SCHEMA_VERSION, LaunchgapError
from contract.calibration import (
    LAYER,
    CalibrationRecord,
    CopyFields,
    ProbeFields,
    SeriesFields,
)
from inference.backends import Backend, CudaBackend
from inference.calibration_layers import layer_probes, with_kinds
from inference.calibration_probes import Probe, make_probes
from inference.calibration_replays import (
    CalibrationSettings,
    ReplaySeries,
    close,
    queued_us,
    replay_series,
    series_of,
    size_fields,
)
from inference.calibration_traced import Stretch, traced_durations_us
from inference.devices import forbid_tf32
from inference.environment import describe_environment, read_clocks
from inference.floor import read_bandwidth_bytes_per_s

_BURST = 100
_LAYERS_IN_A_BURST = 10
_US_PER_S = 1e6
_TRACED = 200
_TRACED_STEPS = 200
_BANDWIDTH_READS = 3


def require_gpu() -> torch.device:
    """The GPU to calibrate.

    Raises:
        LaunchgapError: there is none; the CPU simulation launches nothing.
    """
    if not torch.cuda.is_available():
        raise LaunchgapError(
            f"calibrate: torch {torch.__version__} sees no GPU, and only a GPU has launch costs to measure; "
            "run it on the machine whose GPU is asked about"
        )
    return torch.device("cuda", torch.cuda.current_device())


def calibrate(
    device: torch.device, settings: CalibrationSettings, command: Sequence[str]
) -> CalibrationRecord:
    """Measure all of it, in less than a minute.

    Raises:
        LaunchgapError: torch's profiler cannot see the GPU's work.
    """
    environment: dict[str, Any] = describe_environment(device)
    environment["clocks_before"] = read_clocks(device)
    forbid_tf32()
    backend = CudaBackend(device)
    with torch.cuda.device(device), torch.no_grad():
        probes = (*make_probes(device), *layer_probes(device))
        series = replay_series(backend, probes, settings)
        launches = {probe.name: _launch_series(backend, probe, settings.rounds) for probe in probes}
        copies = [_copy_fields(backend, tokens, settings.rounds) for tokens in settings.tokens]
        bandwidths = [read_bandwidth_bytes_per_s(device) for _ in range(_BANDWIDTH_READS)]
        # From here on a profiler is in the process, and launches cost more.
        known_probes = [with_kinds(probe) for probe in probes]
        durations = _durations(known_probes, series)
        close(series)
    environment["clocks_after"] = read_clocks(device)
    known = [value for value in bandwidths if value is not None]
    return CalibrationRecord(
        schema_version=SCHEMA_VERSION,
        kind="calibration",
        gpu=torch.cuda.get_device_name(device),
        environment=environment,
        settings={name: _plain(value) for name, value in vars(settings).items()},
        probes={
            probe.name: _probe_fields(probe, series, launches[probe.name], durations)
            for probe in known_probes
        },
        copies=copies,
        read_bandwidth_bytes_per_s=series_of(known) if known else None,
        command=list(command),
    )


def _launch_series(backend: Backend, probe: Probe, samples: int) -> tuple[SeriesFields, SeriesFields]:
    """Microseconds of one step in a burst: of the host while it launches, of the device while they wait."""
    steps = _LAYERS_IN_A_BURST if probe.kind == LAYER else _BURST
    burst = probe.chain(steps)
    host_us, device_us = [], []
    for _ in range(samples):
        backend.synchronize()
        start_s = time.perf_counter()
        burst()
        host_us.append((time.perf_counter() - start_s) * _US_PER_S / steps)
        backend.synchronize()
        device_us.append(queued_us(backend, burst) / steps)
    return series_of(host_us), series_of(device_us)


def _durations(probes: Sequence[Probe], series: Sequence[ReplaySeries]) -> dict[str, list[float]]:
    """Traced durations of each probe's operation by `NAME.eager` and `NAME.graph`, in one recording."""
    stretches: list[Stretch] = []
    runs: list[Callable[[], object]] = []
    for probe in probes:
        own = [one for one in series if one.probe.name == probe.name]
        graph = min(own, key=lambda one: abs(one.steps * len(probe.kinds) - _TRACED))
        stretches.append(Stretch(f"{probe.name}.eager", probe.kind, probe.kinds, _TRACED_STEPS))
        stretches.append(Stretch(f"{probe.name}.graph", probe.kind, probe.kinds, graph.steps))
        runs += [probe.chain(_TRACED_STEPS), graph.graph.replay]

    def run_all() -> None:
        for run in runs:
            run()
            torch.cuda.synchronize()

    return traced_durations_us(run_all, stretches)


def _copy_fields(backend: Backend, tokens: int, samples: int) -> CopyFields:
    """A prompt from the host's ordinary memory into static storage."""
    prompt = torch.zeros((1, tokens), dtype=torch.int64)
    ids = prompt.to(backend.device)
    call_us, wall_us = [], []
    for _ in range(samples):
        backend.synchronize()
        start_s = time.perf_counter()
        ids.copy_(prompt, non_blocking=True)
        call_us.append((time.perf_counter() - start_s) * _US_PER_S)
        backend.synchronize()
        wall_us.append((time.perf_counter() - start_s) * _US_PER_S)
    return CopyFields(tokens=tokens, call_us=series_of(call_us), wall_us=series_of(wall_us))


def _probe_fields(
    probe: Probe,
    series: Sequence[ReplaySeries],
    launches: tuple[SeriesFields, SeriesFields],
    durations: dict[str, list[float]],
) -> ProbeFields:
    return ProbeFields(
        kind=probe.kind,
        kinds=list(probe.kinds),
        sizes=[size_fields(one, len(probe.kinds)) for one in series if one.probe.name == probe.name],
        eager_duration_us=series_of(durations[f"{probe.name}.eager"]),
        graph_duration_us=series_of(durations[f"{probe.name}.graph"]),
        eager_launch_us=launches[0],
        eager_period_us=launches[1],
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
