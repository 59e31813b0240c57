"""Inductor's tuning by the GPU's time, not by the host's.

Inductor times a kernel by two events around its launch. Where the host takes longer to launch than the GPU to
run, that is the host's time, and which of several kernels wins is chance: gpt2's last logits took 32 us after
one compilation and 62 after another (docs/runner.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._inductor.runtime import benchmarking

logger = logging.getLogger(__name__)

_HOOK = "get_event_pairs"

_WAIT_CYCLES = 300_000
"""Of the GPU's clock for each timed launch, 150 us at 2 GHz.

In it the host must clear a buffer, record two events and launch. On a slow host an eager launch took 40 us.
"""


@contextmanager
def timed_by_the_gpu(device: torch.device) -> Iterator[None]:
    """While this holds, Inductor's timed launches queue up behind a wait of the GPU's, and then run in a row.

    The hook is where Inductor makes the events of a series, right before it launches the series. A torch that
    has none there is left as it is.
    """
    inductor = benchmarking.benchmarker
    make_events = getattr(inductor, _HOOK, None)
    if device.type != "cuda" or make_events is None:
        if device.type == "cuda":
            logger.debug("%s: no %s, so tuning may time the host", type(inductor).__name__, _HOOK)
        yield
        return

    def events_and_a_wait(count: int, *others: object, **named: object) -> object:
        events = make_events(count, *others, **named)
        with torch.cuda.device(device):
            torch.cuda._sleep(count * _WAIT_CYCLES)
        return events

    inductor.__dict__[_HOOK] = events_and_a_wait
    try:
        yield
    finally:
        inductor.__dict__.pop(_HOOK, None)
