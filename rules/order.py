"""The order of the jobs: a case is finished before the next one begins, as the settings list them.

A run that is stopped half-way then leaves whole cases behind, not a beginning of each.
"""

from __future__ import annotations

from collections.abc import Sequence

_SPAN = 100
"""Priorities that a case has for itself: more than it can have traces."""


def before_all(cases: Sequence[str]) -> int:
    """Snakemake's priority of what every case waits for."""
    return (len(cases) + 1) * _SPAN


def priority(cases: Sequence[str], case: str, traced: Sequence[str] = (), trace: str = "") -> int:
    """Snakemake's priority of a job of `case`, one of `cases` in the order to take them: highest first.

    Of a case's traces, each named by its strategy, those of the first of `traced` come first. A case that the
    settings do not list, whose files were asked for by name, comes last.
    """
    left = len(cases) - cases.index(case) if case in cases else 0
    return left * _SPAN - (traced.index(trace) if trace in traced else 0)
