"""Calibrations of a GPU that does exactly what the model says, with as much noise as a test wants."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

DURATION_US = {"empty": 0.9, "small": 1.2, "wide": 2.5, "memset": 0.8, "memcpy": 1.1, "layer-float32": 6.0}
DURATION_US["layer-bfloat16"] = 3.0
KERNELS = ("empty", "small", "wide")
LAYERS = ("layer-float32", "layer-bfloat16")
SIZES, PAIR_SIZES = (1, 10, 50, 100, 200, 400, 1000, 2000), (200, 1000, 2000)
LAYER_SIZES = (12, 24, 60, 120, 240, 480)
SAMPLES = 20
BESIDE_US = 70.0


def series(samples: Iterable[float]) -> dict[str, Any]:
    values = [float(one) for one in samples]
    return {"median": float(np.median(values)), "samples": values}


def record(
    *,
    gap_us: float | dict[str, float] = 0.5,
    constant_us: float = 20.0,
    fill_us: float = 0.0,
    copy_us: float = 0.0,
    noise_us: float = 0.0,
    layer_kinds: tuple[str, ...] = ("kernel",) * 12,
    gpu: str = "NVIDIA H200",
    bandwidth: float | None = 4e12,
    levels_us: tuple[float, ...] = (0.0,),
) -> dict[str, Any]:
    """A record by the formula: T(n) = constant + (n - 1) gap + what the nodes last.

    A fill costs `fill_us` more than a kernel of its length, a copy `copy_us`. There is a stretch for each of
    `levels_us`, in which all gaps are so much wider.
    """
    random = np.random.default_rng(1)
    gaps = gap_us if isinstance(gap_us, dict) else dict.fromkeys((*KERNELS, *LAYERS), gap_us)

    def noisy(value: float, gaps: int = 0) -> dict[str, Any]:
        parts = [np.full(SAMPLES // len(levels_us), gaps * level_us) for level_us in levels_us]
        levels = np.concatenate(parts)
        return series(value + levels + noise_us * random.standard_normal(levels.size))

    def size(name: str, nodes: int) -> dict[str, Any]:
        time_us = constant_us + (nodes - 1) * gaps.get(name, gaps["small"])
        if name in KERNELS:
            time_us += nodes * DURATION_US[name]
        elif name in LAYERS:
            fills = layer_kinds.count("memset") / len(layer_kinds)
            time_us += nodes * (DURATION_US[name] + fills * fill_us)
        else:
            more = {"memset": fill_us, "memcpy": copy_us}[name]
            time_us += nodes / 2 * (DURATION_US["small"] + DURATION_US[name] + more)
        times = {"event_us": time_us, "wall_us": time_us + BESIDE_US, "launch_us": 9.0, "queued_us": time_us}
        return {"nodes": nodes, **{key: noisy(value, nodes - 1) for key, value in times.items()}}

    probes = {
        name: {
            "kind": _kind(name),
            "kinds": _kinds(name, layer_kinds),
            "sizes": [size(name, nodes) for nodes in _sizes(name)],
            "eager_duration_us": series([duration] * SAMPLES),
            "graph_duration_us": series([duration] * SAMPLES),
            "eager_launch_us": series([4.0 if name == "wide" else 3.0] * 3),
            "eager_period_us": series([1.5] * 3),
        }
        for name, duration in DURATION_US.items()
    }
    return {
        "schema_version": 1,
        "kind": "calibration",
        "gpu": gpu,
        "environment": {"driver": "580.159.04", "torch": "2.11.0+cu130"},
        "settings": {"stretches": len(levels_us)},
        "probes": probes,
        "copies": [],
        "read_bandwidth_bytes_per_s": None if bandwidth is None else series([bandwidth] * 3),
        "command": [],
    }


def _kind(name: str) -> str:
    return "kernel" if name in KERNELS else name.partition("-")[0]


def _kinds(name: str, layer: tuple[str, ...]) -> list[str]:
    if name in LAYERS:
        return list(layer)
    return ["kernel"] if name in KERNELS else ["kernel", name]


def _sizes(name: str) -> tuple[int, ...]:
    if name in LAYERS:
        return LAYER_SIZES
    return SIZES if name in KERNELS else PAIR_SIZES


def saved(folder: Path, gap_us: float = 0.5, constant_us: float = 20.0) -> Path:
    path = folder / "calibration.json"
    text = json.dumps(record(gap_us=gap_us, constant_us=constant_us))
    path.write_text(text, encoding="utf-8")
    return path
