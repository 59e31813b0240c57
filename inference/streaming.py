"""Reading tokens late: the host learns of a token while the device is already at work on later ones.

Waiting for each token would leave the device idle while the host launches the next. Instead tokens go to
page-locked host memory behind the work that made them, chunk by chunk, and the host waits for a chunk only
when the next one has been launched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch

from inference.backends import Backend, Mark


class TokenReader:
    """Copies ranges of a device buffer of token ids to the host, in order, and waits for each when asked."""

    def __init__(self, tokens: torch.Tensor, backend: Backend) -> None:
        """Read from `tokens`, int64, shape (capacity,)."""
        self._tokens = tokens
        self._backend = backend
        self.host = backend.host_buffer(tokens.shape[0])
        self._pending: deque[tuple[slice, Mark]] = deque()

    def read(self, chunks: Iterator[slice]) -> Iterator[list[int]]:
        """The tokens of each chunk, one chunk late. Taking a chunk from `chunks` launches the work for it.

        Copies left behind when the caller stops early do no harm: the device makes them before those of the
        next request, which lie behind them on its stream.
        """
        self._pending.clear()
        for chunk in chunks:
            self.host[chunk].copy_(self._tokens[chunk], non_blocking=True)
            self._pending.append((chunk, self._backend.mark()))
            if len(self._pending) > 1:
                yield self._take()
        while self._pending:
            yield self._take()

    def _take(self) -> list[int]:
        chunk, mark = self._pending.popleft()
        mark.wait()
        tokens: list[int] = self.host[chunk].tolist()
        return tokens
