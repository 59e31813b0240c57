"""From options to a latency record: one case, measured without a profiler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel

from contract import ON_OTHER_STREAMS, SCHEMA_VERSION, FloorFields, LatencyRecord
from inference.backends import Backend
from inference.benchmark import BenchmarkSettings, measure
from inference.case import ReadyCase
from inference.environment import describe_environment, read_clocks, read_neighbours
from inference.floor import floor_ms, read_bandwidth_bytes_per_s, weight_bytes_read
from inference.neighbours import Neighbour

log = logging.getLogger(__name__)


def measure_case(case: ReadyCase, settings: BenchmarkSettings, command: Sequence[str]) -> LatencyRecord:
    """Measure a case and describe what it was measured on.

    Raises:
        LaunchgapError: settings out of range.
    """
    device = case.backend.device
    environment: dict[str, Any] = describe_environment(device)
    environment["clocks_before"] = read_clocks(device)
    environment["neighbours_before"] = read_neighbours(device)
    strategies, again_ms = measure(case, settings)
    environment["clocks_after"] = read_clocks(device)
    environment["neighbours_after"] = read_neighbours(device)
    _warn_of(environment["neighbours_before"], environment["neighbours_after"])
    return LatencyRecord(
        schema_version=SCHEMA_VERSION,
        kind="latency",
        case=case.fields,
        device="cpu" if case.backend.simulated else "cuda",
        simulated=case.backend.simulated,
        settings={
            "runs": settings.runs,
            "warmup_s": settings.warmup_s,
            "seed": settings.seed,
            "strategies": [str(name) for name in settings.strategies],
            "correctness_inputs": settings.correctness_inputs,
        },
        model=case.loaded.fields,
        strategies=strategies,
        aa_event_ms=again_ms,
        other_streams=not ON_OTHER_STREAMS.isdisjoint(settings.strategies),
        environment=environment,
        command=list(command),
        floor=_floor(case.loaded.model, case.backend),
    )


def _warn_of(before: list[Neighbour] | None, after: list[Neighbour] | None) -> None:
    names = sorted({one["program"] for one in [*(before or []), *(after or [])]})
    if names:
        log.warning("warning: other processes are on the GPU and spoil these numbers: %s", ", ".join(names))


def _floor(model: PreTrainedModel, backend: Backend) -> FloorFields:
    """What reading the weights once takes: measured last, when the strategies have freed theirs."""
    weight_bytes = weight_bytes_read(model)
    bandwidth = read_bandwidth_bytes_per_s(backend.device)
    return FloorFields(
        bandwidth_bytes_per_s=bandwidth,
        weight_bytes_read=weight_bytes,
        floor_ms=floor_ms(weight_bytes, bandwidth),
    )
