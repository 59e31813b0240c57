"""Cases that failed in the run that a report is of, by the record that is left of them, or were not run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.report_missing import ALL_TRACES, RERUN_HINT, Missing
from contract import LaunchgapError, read_record


@dataclass(frozen=True)
class Failure:
    """A step of a case that failed: which, why, and the log that says more. Or what was not run, and why."""

    step: str
    reason: str
    log: str
    status: Literal["failed", "not run"] = "failed"

    @property
    def sentence(self) -> str:
        """What failed and why, in a sentence."""
        if self.status == "not run":
            return self.reason
        return f"{self.step} failed: {self.reason.rstrip('.')}; {self.log} says more"

    @property
    def missing(self) -> Missing:
        """What a case lacks that was measured, but not traced or not analysed."""
        return Missing(ALL_TRACES, self.sentence, RERUN_HINT)


NOT_RUN = Failure("", "not run yet, or not to its end", "", "not run")
"""Of a case whose turn has not come: the run was stopped before."""


def read_failures(path: Path | None) -> dict[str, Failure]:
    """Failures by the name of the case; none without a file.

    Raises:
        LaunchgapError: no record of failures.
    """
    if path is None:
        return {}
    try:
        cases = read_record(path, "failures")["cases"]
        return {name: Failure(one["step"], one["reason"], one["log"]) for name, one in cases.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise LaunchgapError(f"{path}: not a record of failures ({error!r}); delete it") from error
