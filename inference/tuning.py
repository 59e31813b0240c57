"""Inductor's tuning by the GPU's time, not by the host's.

Inductor times a kernel by two events around its launch. Where the host takes longer to launch than the GPU to
run, that is the host's time, and which of several kernels wins is chance: gpt2's last logits took 32 us after
one compilation and 62 after another (docs/runner.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._inductor.runtime import benchmarking

_WAIT_CYCLES = 120_000
"""Of the GPU's clock for each timed launch, 60 us at 2 GHz: a host takes less for one and its two events."""


@contextmanager
def timed_by_the_gpu(device: torch.device) -> Iterator[None]:
    """While this holds, Inductor's timed launches queue up behind a wait of the GPU's, and then run in a row.

    The hook is where Inductor makes the events of a series, right before it launches the series. A torch that
    has none there is left as it is.
    """
    inductor = benchmarking.benchmarker
    make_events = getattr(inductor, "get_event_pairs", None)
    if device.type != "cuda" or make_events is None:
        yield
        return

    def events_and_a_wait(count: int, *others: object, **named: object) -> object:
        events = make_events(count, *others, **named)
        torch.cuda._sleep(count * _WAIT_CYCLES)
        return events

    setattr(inductor, make_events.__name__, events_and_a_wait)
    try:
        yield
    finally:
        setattr(inductor, make_events.__name__, make_events)
