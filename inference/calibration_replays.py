"""The timed half of a calibration: chains captured as graphs of many sizes, replayed in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch
from tqdm import tqdm

from contract.calibration import LAYER, GraphSizeFields, SeriesFields
from inference.backends import Backend, Graph
from inference.calibration_probes import Probe, hold
from inference.calibration_states import Surroundings
from inference.calling import Logits
from inference.request import run_request

_US_PER_S = 1e6
_US_PER_MS = 1e3


@dataclass(frozen=True)
class CalibrationSettings:
    """How to measure: sizes of graphs in nodes, or in layers; rounds, seconds, lengths of copied prompts.

    Before each sample `eager_steps` layers run eagerly, as eager requests do in a benchmark: the host's
    caches are cold then, and the GPU has been idle most of the time. The rounds come in as many `stretches`,
    between which the process does something else (`inference.calibration_states`).
    """

    sizes: Sequence[int] = (1, 10, 50, 100, 200, 400, 1000)
    pair_sizes: Sequence[int] = (200, 1000)
    layers: Sequence[int] = (1, 2, 5, 10, 20)
    rounds: int = 100
    stretches: int = 10
    eager_steps: int = 5
    warmup_s: float = 2.0
    seed: int = 0
    tokens: Sequence[int] = (50, 512, 1024)


@dataclass
class ReplaySeries:
    """One captured chain and its samples, in microseconds; what `run_request` takes for a strategy."""

    probe: Probe
    steps: int
    graph: Graph
    ids: torch.Tensor
    event_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)
    launch_us: list[float] = field(default_factory=list)
    queued_us: list[float] = field(default_factory=list)

    logits: Logits = "all"
    compile_s: float | None = None
    capture_s: float | None = None
    pool_bytes: int | None = None
    attention_mask: str | None = None

    def copy_in(self, input_ids: torch.Tensor) -> None:
        """Copy token ids into static storage, as `CapturedForward` does."""
        self.ids.copy_(input_ids, non_blocking=True)

    def run(self) -> torch.Tensor:
        """Replay, and take the host's time in the launch call."""
        start_s = time.perf_counter()
        self.graph.replay()
        self.launch_us.append((time.perf_counter() - start_s) * _US_PER_S)
        return self.ids

    def close(self) -> None:
        """Free the graph."""
        self.graph.reset()


def replay_series(
    backend: Backend, probes: Sequence[Probe], settings: CalibrationSettings
) -> list[ReplaySeries]:
    """Capture every probe in every size, and replay them all in turns, warm-up first."""
    pool = backend.new_pool()
    prompt = torch.zeros((1, settings.tokens[0]), dtype=torch.int64)
    ids = prompt.to(backend.device)
    every = [
        ReplaySeries(probe, steps, backend.capture(probe.chain(steps), pool).graph, ids)
        for probe in probes
        for steps in _steps(probe, settings)
    ]
    end_s = time.perf_counter() + settings.warmup_s
    while time.perf_counter() < end_s:
        for one in every:
            run_request(one, prompt, backend)
    for one in every:
        one.launch_us.clear()
    shuffler = random.Random(settings.seed)
    surroundings = Surroundings(backend, probes, settings.eager_steps, shuffler)
    order, first = list(every), _first_rounds(settings)
    for number in tqdm(range(settings.rounds), desc="calibrating", unit="round", delay=2, disable=None):
        if number in first:
            surroundings.change()
        shuffler.shuffle(order)
        for one in order:
            surroundings.eager()
            _sample(one, prompt, backend)
    surroundings.close()
    return every


def _first_rounds(settings: CalibrationSettings) -> set[int]:
    """The rounds that a stretch begins with, but for the very first one."""
    parts = np.array_split(np.arange(settings.rounds), settings.stretches)
    return {int(part[0]) for part in parts[1:] if part.size}


def _steps(probe: Probe, settings: CalibrationSettings) -> Sequence[int]:
    if probe.kind == LAYER:
        return settings.layers
    sizes = settings.sizes if probe.kind == "kernel" else settings.pair_sizes
    return [nodes // len(probe.kinds) for nodes in sizes]


def close(series: Sequence[ReplaySeries]) -> None:
    """Free all graphs."""
    for one in series:
        one.close()


def series_of(samples: Sequence[float]) -> SeriesFields:
    """Samples with their median."""
    return SeriesFields(median=median(samples), samples=list(samples))


def _sample(one: ReplaySeries, prompt: torch.Tensor, backend: Backend) -> None:
    """A replay where the GPU is idle, as a latency is measured, and one that waits in the queue."""
    times = run_request(one, prompt, backend)
    one.event_us.append(times.event_ms * _US_PER_MS)
    one.wall_us.append(times.wall_ms * _US_PER_MS)
    one.queued_us.append(queued_us(backend, one.graph.replay))


def queued_us(backend: Backend, launch: Callable[[], object]) -> float:
    """Microseconds by events of what is launched while the GPU is kept busy."""
    hold(backend.device)
    backend.start_timer()
    launch()
    backend.stop_timer()
    backend.synchronize()
    return backend.elapsed_ms() * _US_PER_MS


def size_fields(one: ReplaySeries, nodes_per_step: int) -> GraphSizeFields:
    """The samples of one graph as they are recorded."""
    return GraphSizeFields(
        nodes=one.steps * nodes_per_step,
        event_us=series_of(one.event_us),
        wall_us=series_of(one.wall_us),
        launch_us=series_of(one.launch_us),
        queued_us=series_of(one.queued_us),
    )
