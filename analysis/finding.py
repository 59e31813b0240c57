"""One thing found in a trace that its reader must know before believing a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["fatal", "warning", "note"]
"""`fatal`: no number can be trusted; `warning`: some are wrong or missing; `note`: the numbers stand."""

SEVERITIES: tuple[Severity, ...] = ("fatal", "warning", "note")
"""Worst first."""

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class Finding:
    """What was found (with its number in words), how often, what it does to the numbers, what to do."""

    severity: Severity
    what: str
    count: int
    effect: str
    remedy: str

    @property
    def sentence(self) -> str:
        """All of it in one printable line."""
        return one_line(f"{self.what}: {self.effect}; {self.remedy}")


def one_line(text: str) -> str:
    """Text of any origin as one line without control characters, which a terminal would obey."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def shown(text: str) -> str:
    """The start of a text of any length and origin, for use inside a sentence."""
    line = one_line(text[: 2 * _SHOWN_CHARACTERS])
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + "…"
