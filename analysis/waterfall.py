"""What a picture of ledgers shows, as numbers; `analysis.figures_ledger` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract import WITHOUT_GRAPH, TraceMode

BUSY_IS_SPAN = (
    "Graph mode records a replay whole: busy of a graph is its replay span there, pauses between its kernels "
    "included"
)


def busy_is_span(strategy: str, trace_mode: str) -> bool:
    """Whether busy of a launchgap trace is that of replays recorded whole, which hides the pauses in them."""
    return trace_mode == TraceMode.GRAPH and strategy not in WITHOUT_GRAPH


@dataclass(frozen=True)
class Waterfall:
    """The GPU's ledger of one request: `parts_us` in the order of `GPU_PARTS`, which add up to its range.

    `is_span`: busy is that of replays recorded whole, pauses between their nodes included.
    """

    strategy: str
    parts_us: tuple[float, ...]
    is_span: bool = False

    @property
    def busy_name(self) -> str:
        """What the second part is called."""
        return "replay span" if self.is_span else "busy"

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


def median_request(ranges_ns: Sequence[float]) -> int:
    """Number of the request with the median range.

    Of an even number the lower one of the two in the middle: a request that was there, no mean of two.
    """
    order = sorted(range(len(ranges_ns)), key=lambda number: ranges_ns[number])
    return order[(len(order) - 1) // 2]


def floor_us_of(latency: Mapping[str, Any] | None) -> float | None:
    """Microseconds to read the weights once, by a latency record; None where it does not tell."""
    floor_ms = ((latency or {}).get("floor") or {}).get("floor_ms")
    return None if floor_ms is None else float(floor_ms) * 1_000.0
