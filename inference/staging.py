"""A captured length's inputs: static device storage, filled by one copy from a host buffer laid out alike.

Ids, index of the last token, mask and position ids lie behind one another, so that a request costs a single
copy. On CUDA the host buffer is page-locked: the copy then needs no synchronisation and the host goes on at
once, so the buffer may be written again only after the copy has been made; an event tells.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

PaddingSide = Literal["left", "right"]


class StaticInputs:
    """Where a graph of `length` tokens reads its prompt.

    Attributes:
        ids: token ids, shape (1, length), 0 where padded.
        last: index of the last real token, shape (1,).
        mask: 1 for real tokens, shape (1, length), or None if the graph was captured without.
        positions: place of each real token in the prompt, shape (1, length), 0 where padded; left padding
            only, since right padding moves no token.
    """

    def __init__(self, length: int, device: torch.device, padding_side: PaddingSide, *, masked: bool) -> None:
        self.length = length
        self._side = padding_side
        parts = 1 + masked + (padding_side == "left")
        on_gpu = device.type == "cuda"
        self._host = torch.zeros(parts * length + 1, dtype=torch.int64, pin_memory=on_gpu)
        self._copied = torch.cuda.Event() if on_gpu else None
        self._device = torch.zeros(parts * length + 1, dtype=torch.int64, device=device)
        rows = list(self._device[1:].view(parts, 1, length))
        host_rows = list(self._host.numpy()[1:].reshape(parts, length))
        self.last = self._device[:1]
        self.ids = rows.pop(0)
        self.mask = rows.pop(0) if masked else None
        self.positions = rows.pop(0) if padding_side == "left" else None
        self._host_last = self._host.numpy()[:1]
        self._host_ids = host_rows.pop(0)
        self._host_mask = host_rows.pop(0) if masked else None
        self._host_positions = host_rows.pop(0) if padding_side == "left" else None
        self._counted = np.arange(length, dtype=np.int64)

    def fill(self, tokens: NDArray[np.int64], stream: torch.cuda.Stream | None = None) -> None:
        """Copy 1 to `length` token ids, shape (n,), to the device, with what goes with them.

        The caller's array may change as soon as this returns; the device may still be at work. `stream` is
        the current one of the device, None on the CPU.
        """
        if self._copied is not None:
            self._copied.synchronize()
        n = tokens.size
        start = self.start(n)
        real, padding = slice(start, start + n), slice(n, None) if start == 0 else slice(0, start)
        self._host_last[0] = start + n - 1
        self._host_ids[real] = tokens
        # No real token sees the padding; it is cleared so that an answer depends on its own request alone.
        self._host_ids[padding] = 0
        if self._host_mask is not None:
            self._host_mask[real] = 1
            self._host_mask[padding] = 0
        if self._host_positions is not None:
            self._host_positions[real] = self._counted[:n]
            self._host_positions[padding] = 0
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record(stream)

    def start(self, n: int) -> int:
        """Index of the first real token of a prompt of n tokens."""
        return 0 if self._side == "right" else self.length - n

    def spoil(self) -> None:
        """Fill the device storage with valid but wrong values, which a request must overwrite."""
        self.last.zero_()
        self.ids.fill_(1)
        if self.mask is not None:
            self.mask.bitwise_xor_(1)
        if self.positions is not None:
            self.positions.copy_(self.positions.flip(-1))


class StreamOrder:
    """Keeps requests in order where a caller changes its CUDA stream between them: they share storage."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last: torch.cuda.Stream | None = None

    def enter(self) -> torch.cuda.Stream | None:
        """The device's current stream, made to wait for the stream of the request before; None on the CPU."""
        if self._device.type != "cuda":
            return None
        current = torch.cuda.current_stream(self._device)
        if self._last is not None and current != self._last:
            current.wait_stream(self._last)
        self._last = current
        return current
