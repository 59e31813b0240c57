"""What else a process does, done between samples: it decides at which of several levels a graph replays.

On an H200 the same graph took now 828, now 908 us, for as long as nothing but replays happened. To the higher
level led kernels on another stream, as torch's own way to capture runs them; back, at times, an eager pass. A
calibration that did none of it would know one level only. docs/prediction.md has the numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from contract.calibration import LAYER
from inference.backends import Backend, Graph
from inference.calibration_probes import Probe


class Surroundings:
    """The rest of a process, as a calibration plays it: eager passes all the time, other work at times."""

    def __init__(
        self, backend: Backend, probes: Sequence[Probe], eager_steps: int, shuffler: random.Random
    ) -> None:
        """Of the layer probes, or of all if there are none, `eager_steps` steps at a time."""
        layers = [probe for probe in probes if probe.kind == LAYER]
        self._passes = [probe.chain(eager_steps) for probe in layers or probes]
        self._backend = backend
        self._shuffler = shuffler
        self._graphs: list[Graph] = []
        self._streams: list[torch.cuda.Stream] = []

    def eager(self) -> None:
        """An eager pass, and a wait for it: what a host did last before a replay that is timed."""
        self._a_pass()()
        self._backend.synchronize()

    def change(self) -> None:
        """Something a process does now and then, at random: another stream, a capture, many eager passes."""
        self._shuffler.choice((self._side_stream, self._capture, self._many_passes))()
        self._backend.synchronize()

    def close(self) -> None:
        """Free what was captured."""
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()

    def _a_pass(self) -> Callable[[], torch.Tensor]:
        return self._shuffler.choice(self._passes)

    def _side_stream(self) -> None:
        if self._backend.device.type != "cuda":
            return
        stream = torch.cuda.Stream(self._backend.device)
        stream.wait_stream(torch.cuda.current_stream(self._backend.device))
        self._streams.append(stream)
        with torch.cuda.stream(stream):
            self._a_pass()()

    def _capture(self) -> None:
        graph = self._backend.capture(self._a_pass()).graph
        graph.replay()
        self._graphs.append(graph)

    def _many_passes(self) -> None:
        for _ in range(10):
            self._a_pass()()
