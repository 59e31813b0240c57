"""What failed in a run, and why, from the jobs that Snakemake gave up on and their logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import SCHEMA_VERSION, LaunchgapError, read_record

FAILURES_FILE = Path("results/failures.json")
"""What the last run failed at; gone once a run succeeds."""

_STEPS = {"measure": "measuring", "capture": "tracing", "capture_torch": "tracing", "analyse": "analysing"}
_TAIL_BYTES = 20_000
_SILENT = "ended without a word: killed, or out of memory?"


@dataclass(frozen=True)
class FailedJob:
    """A job that failed: its rule, the values of its wildcards and its log."""

    rule: str
    wildcards: Mapping[str, str]
    log: Path | None


def failures(jobs: Iterable[FailedJob]) -> dict[str, dict[str, str]]:
    """Failures by case: `step` in a word, `reason` in a line, `log` as a path. A case's first step counts.

    Jobs that are of no case, such as the report, are left out.
    """
    found: dict[str, dict[str, str]] = {}
    order = list(_STEPS)
    known = [job for job in jobs if job.rule in _STEPS and "case" in job.wildcards]
    for job in sorted(known, key=lambda job: (order.index(job.rule), *job.wildcards.values())):
        traced = " {strategy} ({mode} mode)" if "mode" in job.wildcards else ""
        step = _STEPS[job.rule] + traced.format(**{"strategy": ""} | dict(job.wildcards))
        fields = {"step": step, "reason": reason(job.log), "log": str(job.log or "")}
        found.setdefault(job.wildcards["case"], fields)
    return found


def failed_cases(path: Path) -> set[str]:
    """The cases in a record of failures; none where there is no such record."""
    try:
        return set(read_record(path, "failures")["cases"])
    except (LaunchgapError, KeyError, TypeError):
        return set()


def failures_record(found: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The failures as a record of kind `failures`, for the report and for programs."""
    return {"schema_version": SCHEMA_VERSION, "kind": "failures", "cases": dict(found)}


def reason(log: Path | None) -> str:
    """What a failed step said last: the line that starts with `error: `, or else its last line."""
    try:
        content = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace") if log else ""
    except OSError:
        content = ""
    lines = [" ".join(line.split()) for line in content.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error: ")]
    return (told or lines or [_SILENT])[-1].removeprefix("error: ")
