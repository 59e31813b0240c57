"""What a picture of ledgers shows, as numbers; `analysis.figures_ledger` draws it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waterfall:
    """The GPU's ledger of one request: `parts_us` in the order of `GPU_PARTS`, which add up to its range."""

    strategy: str
    parts_us: tuple[float, ...]

    @property
    def range_us(self) -> float:
        """The range that the parts add up to."""
        return sum(self.parts_us)


@dataclass(frozen=True)
class Picture:
    """Ledgers to be drawn below each other, and the time to read the weights once where it is known."""

    title: str
    waterfalls: tuple[Waterfall, ...]
    floor_us: float | None
