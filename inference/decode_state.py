"""What the pieces of a generation hand on to one another, on the device at fixed addresses."""

from __future__ import annotations

import math

import torch


class DecodeState:
    """What one piece leaves for the next, on the device.

    Attributes:
        position: slot of the cache that the next step fills, shape (1,).
        token: the token last chosen, shape (1, 1).
        tokens: all tokens chosen, by position, shape (slots + 1,).
        logits: those of the prompt's last token, shape (1, vocabulary).
        mask: 0 where a step may look and -inf elsewhere, shape (1, 1, 1, slots).
    """

    def __init__(self, slots: int, logits: torch.Tensor, dtype: torch.dtype) -> None:
        """Allocate for logits like those given, shape (1, vocabulary), and attention in that dtype."""
        device = logits.device
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.token = torch.zeros((1, 1), dtype=torch.int64, device=device)
        self.tokens = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self.logits = torch.zeros_like(logits)
        self.mask = torch.zeros((1, 1, 1, slots), dtype=dtype, device=device)
        self._slots = torch.arange(slots, device=device)

    def begin(self, last: torch.Tensor) -> None:
        """Stand behind a prompt whose last token is at `last`, shape (1,)."""
        self.position.copy_(last + 1)
        self.mask.fill_(-math.inf).masked_fill_(self._slots <= last, 0.0)

    def reveal(self) -> None:
        """Let steps look at the slot at the position."""
        self.mask.index_fill_(-1, self.position, 0.0)

    def put(self, token: torch.Tensor) -> None:
        """Write a chosen token, shape (1,), to the position."""
        self.token.copy_(token.view(1, 1))
        self.tokens.index_copy_(0, self.position, token)

    def rewind(self) -> None:
        """Go back to position 0, so that a capture's own steps stay inside the cache."""
        self.position.zero_()
        self.token.zero_()
