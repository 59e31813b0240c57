"""Fill everything that a replay must make anew with garbage, to see whether it does."""

from __future__ import annotations

import torch

from inference.backends import Backend
from inference.rung import Rung
from inference.simulation import RecordedGraph

_LARGE_BLOCKS, _SMALL_BLOCKS, _SMALL_NUMBERS = 128, 64, 1024


def poison(rung: Rung, backend: Backend, pool_bytes: int) -> None:
    """Spoil the static inputs, the output buffer and the memory that the graph's intermediates lie in.

    `pool_bytes` is the size of the pool that the graph shares with others.
    """
    rung.inputs.spoil()
    rung.output.fill_(torch.nan)
    if isinstance(rung.graph, RecordedGraph):
        for storage in rung.graph._tape._created.values():
            # Byte by byte: not a number where floats are, -1 where integers are.
            torch.empty(0, dtype=torch.uint8).set_(storage).fill_(255)
    else:
        _fill_pool(rung, backend, pool_bytes)


def _fill_pool(rung: Rung, backend: Backend, pool_bytes: int) -> None:
    """Capture a second graph into the same pool: its blocks are those that the first one's results had.

    The capture's own replay then fills them.
    """
    numbers = max(_SMALL_NUMBERS, pool_bytes // (4 * _LARGE_BLOCKS))
    sizes = [numbers] * _LARGE_BLOCKS + [_SMALL_NUMBERS] * _SMALL_BLOCKS

    def fill() -> torch.Tensor:
        blocks = [torch.full((size,), torch.nan, device=backend.device) for size in sizes]
        return blocks[0]

    backend.capture(fill, rung.pool).graph.reset()
