"""The lengths that a ladder captures: what a caller may ask for, and what it gets without asking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import SupportsIndex

from contract import LaunchgapError

DEFAULT_LENGTHS = (64, 128, 256, 512, 1024)
"""Captured lengths, in tokens, unless told otherwise."""


def usable_lengths(lengths: Sequence[int] | None, positions: int) -> tuple[int, ...]:
    """The lengths asked for, or the usual ones cut to the model's positions.

    Raises:
        LaunchgapError: none, no whole numbers of at least 1, or more than the model has positions.
    """
    if lengths is None:
        return tuple(dict.fromkeys(min(length, positions) for length in DEFAULT_LENGTHS))
    if not isinstance(lengths, Iterable):
        raise LaunchgapError(f"lengths {lengths!r}: give a sequence of captured lengths, such as (64, 128)")
    usable = tuple(map(_whole_number, lengths))
    if not usable:
        raise LaunchgapError("no lengths: give at least one captured length, such as 64")
    if max(usable) > positions:
        raise LaunchgapError(
            f"length {max(usable)}: the model has {positions} positions; use lengths up to {positions}"
        )
    return usable


def _whole_number(length: object) -> int:
    if not isinstance(length, SupportsIndex) or isinstance(length, bool) or index(length) < 1:
        raise LaunchgapError(f"length {length!r}: must be a whole number of 1 or more")
    return index(length)
