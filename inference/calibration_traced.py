"""How long single operations take as a tracer records them: the durations that an eager trace holds."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from contract import LaunchgapError
from contract.calibration import LAYER, NodeKind

_CATEGORIES: dict[str, NodeKind] = {"kernel": "kernel", "gpu_memset": "memset", "gpu_memcpy": "memcpy"}


@dataclass(frozen=True)
class Stretch:
    """A stretch of the recording: `repeats` times the operations of `kinds`, of which `kind` is looked at.

    Of decoder layers all are.
    """

    label: str
    kind: NodeKind | Literal["layer"]
    kinds: tuple[NodeKind, ...]
    repeats: int


def traced_durations_us(run: Callable[[], None], stretches: Sequence[Stretch]) -> dict[str, list[float]]:
    """Microseconds of each operation of each stretch's kind, by label; `run` launches all stretches in turn.

    Raises:
        LaunchgapError: this torch cannot record GPU work, or what it recorded is not what was launched.
    """
    return durations_of(_recorded(run), stretches)


def recorded_kinds(run: Callable[[], object]) -> tuple[NodeKind, ...]:
    """What `run` launches, in the order in which the device did it.

    Raises:
        LaunchgapError: this torch cannot record GPU work.
    """
    return tuple(_CATEGORIES[event["cat"]] for event in _operations(_recorded(run)))


def _recorded(run: Callable[[], object]) -> dict[str, object]:
    """A Chrome trace of `run`.

    Raises:
        LaunchgapError: this torch cannot record GPU work.
    """
    if ProfilerActivity.CUDA not in supported_activities():
        raise LaunchgapError(
            f"calibrate: torch {torch.__version__} was built without CUPTI, so its profiler sees no kernels; "
            "install torch from pytorch.org"
        )
    # CUPTI that is taken down while captured graphs live crashes (pytorch pull request 112507).
    os.environ.setdefault("TEARDOWN_CUPTI", "0")
    with tempfile.TemporaryDirectory(prefix="launchgap-calibrate-") as folder:
        path = Path(folder, "trace.json")
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            run()
            torch.cuda.synchronize()
        recorded.export_chrome_trace(str(path))
        chrome: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return chrome


def _operations(chrome: dict[str, object]) -> list[dict[str, Any]]:
    """Kernels, fills and copies of a Chrome trace in the order of their starts."""
    events = chrome.get("traceEvents")
    found = [one for one in events if one.get("cat") in _CATEGORIES] if isinstance(events, list) else []
    return sorted(found, key=lambda event: float(event["ts"]))


def durations_of(chrome: dict[str, object], stretches: Sequence[Stretch]) -> dict[str, list[float]]:
    """The same from a Chrome trace as torch.profiler writes it.

    Raises:
        LaunchgapError: it holds other work than the stretches, or less, or more.
    """
    found = _operations(chrome)
    expected = [(one, kind) for one in stretches for kind in one.kinds * one.repeats]
    kinds: list[NodeKind] = [_CATEGORIES[event["cat"]] for event in found]
    if len(kinds) != len(expected) or not all(
        may_be_recorded_as(kind, one) for (_, kind), one in zip(expected, kinds, strict=True)
    ):
        seen, launched = _counted(kinds), _counted([kind for _, kind in expected])
        raise LaunchgapError(
            f"calibrate: torch.profiler recorded {seen} where {launched} were launched, or in another order; "
            "close other profilers (nsys, Nsight), allow profiling to all users "
            "(NVreg_RestrictProfilingToAdminUsers=0), and calibrate again"
        )
    durations: dict[str, list[float]] = {one.label: [] for one in stretches}
    for (stretch, kind), event in zip(expected, found, strict=True):
        if stretch.kind in (kind, LAYER):
            durations[stretch.label].append(float(event["dur"]))
    return durations


def may_be_recorded_as(launched: NodeKind, recorded: NodeKind) -> bool:
    """Whether a tracer may call an operation so: in a graph, the driver copies small blocks by a kernel.

    Seen on an H200 with driver 580: a node that copies from device to device runs as `memcpy32_post`.
    """
    return recorded == launched or (launched, recorded) == ("memcpy", "kernel")


def _counted(kinds: Sequence[NodeKind]) -> str:
    """How many operations of each kind: `200 x kernel and 100 x memset`."""
    counts = Counter(kinds)
    return " and ".join(f"{counts[kind]} x {kind}" for kind in sorted(counts)) or "nothing"
