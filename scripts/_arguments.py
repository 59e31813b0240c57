"""What every executable expects on its command line: numbers that have bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from commandline import Parser

__all__ = ["Parser", "percent", "seconds", "whole"]


def whole(minimum: int) -> Callable[[str], int]:
    """An argparse type: a whole number of at least `minimum`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is below {minimum}")
        return value

    return parse


def seconds(text: str) -> float:
    """An argparse type: a time of zero or more seconds."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time of zero or more seconds")
    return value


def percent(text: str) -> float:
    """An argparse type: a percentage below 100."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage") from None
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text} is not a percentage from 0 to below 100")
    return value
