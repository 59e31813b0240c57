"""Inductor's tuning by the GPU's time, not by the host's.

Inductor times a kernel by two events around its launch. Where the host takes longer to launch than the GPU to
run, that is the host's time, and which of several kernels wins is chance: gpt2's last logits took 32 us after
one compilation and 62 after another (docs/runner.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident

import torch
from torch._inductor.runtime import benchmarking

logger = logging.getLogger(__name__)

_HOOK = "get_event_pairs"
_LOCK = RLock()
"""One thread tunes at a time; two would measure each other."""

_WAIT_CYCLES = 300_000
"""Of the GPU's clock for each timed launch, 150 us at 2 GHz.

In it the host must clear a buffer, record two events and launch. On a slow host an eager launch took 40 us.
"""


@contextmanager
def timed_by_the_gpu(device: torch.device) -> Iterator[None]:
    """While this holds, launches that Inductor times in this thread queue up behind a wait of the GPU's.

    They then run in a row. The hook is where Inductor makes the events of a series, right before it launches
    the series. A torch that has none there is left as it is, with a warning.
    """
    if device.type != "cuda":
        yield
        return
    inductor = benchmarking.benchmarker
    if not hasattr(inductor, _HOOK):
        logger.warning("%s has no %s: its tuning may time the host", type(inductor).__name__, _HOOK)
        yield
        return
    with _LOCK, _waiting_first(inductor, device):
        yield


@contextmanager
def _waiting_first(inductor: object, device: torch.device) -> Iterator[None]:
    make_events, patches, tuning_thread = getattr(inductor, _HOOK), inductor.__dict__, get_ident()
    before = patches.get(_HOOK)

    def a_wait_and_events(count: int, *others: object, **named: object) -> object:
        events = make_events(count, *others, **named)
        if get_ident() == tuning_thread:
            with torch.cuda.device(device):
                torch.cuda._sleep(count * _WAIT_CYCLES)
        return events

    patches[_HOOK] = a_wait_and_events
    try:
        yield
    finally:
        if before is None:
            del patches[_HOOK]
        else:
            patches[_HOOK] = before
