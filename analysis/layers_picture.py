"""What a figure of layers shows, as data: matplotlib is loaded by those alone who draw it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerStack:
    """One strategy's mean request by layer: microseconds of GPU time, and launches; one value per layer."""

    strategy: str
    gpu_us: tuple[float, ...]
    launches: tuple[float, ...]


@dataclass(frozen=True)
class LayersPicture:
    """Stacks of the same layers, eager's first."""

    title: str
    layers: tuple[str, ...]
    stacks: tuple[LayerStack, ...]
