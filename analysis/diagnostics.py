"""What nsys itself says of records that it lost, told by the texts of its messages.

The texts are those in the injection and importer libraries of nsys 2022.4; newer versions still write them.
"Not all CUDA events might have been collected" alone proves nothing: nsys writes it into nearly every report
of a program that was not traced to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LOST = (
    re.compile(r"CUPTI dropped (\d+) records\."),
    re.compile(r"Number of incomplete CUPTI events dropped:\s*(\d+)\."),
    re.compile(r"Couldn't allocate CUPTI buffers (\d+) times\."),
    re.compile(r"Could not parse (\d+) CUPTI activity records\."),
)
_STOPPED = re.compile(r"CUDA event processing was stopped")
_DOUBTFUL = (
    re.compile(r"Not all (?:CUDA|NVTX) events might have been collected\."),
    re.compile(r"CUPTI buffers:\s*\d+ of \d+\. Some CUPTI events might be missing\."),
)


def lost_records(text: str) -> int | None:
    """How many records or buffers a message says were lost, at least one; None if it says nothing of it."""
    for pattern in _LOST:
        match = pattern.search(text)
        if match is not None:
            return _number(match[1]) or None
    return 1 if _STOPPED.search(text) else None


def is_doubtful(text: str) -> bool:
    """Whether a message says that records may be missing, without knowing of any."""
    return any(pattern.search(text) for pattern in _DOUBTFUL)


def shareable_text(text: object) -> str:
    """The part of a message that is nsys's own words and numbers; empty where there is none.

    What stands around it may hold paths and names of processes.
    """
    if not isinstance(text, str):
        return ""
    patterns: Iterable[re.Pattern[str]] = (*_LOST, _STOPPED, *_DOUBTFUL)
    return next((match.group() for pattern in patterns if (match := pattern.search(text))), "")


def _number(digits: str) -> int:
    """A counter of 64 bits; longer ones are no counters, and int() refuses thousands of digits."""
    return int(digits[:20])
