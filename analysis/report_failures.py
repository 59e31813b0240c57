"""Cases that failed in the run that a report is of: the record that the pipeline leaves of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.report_missing import ALL_TRACES, RERUN_HINT, Missing
from contract import LaunchgapError, read_record


@dataclass(frozen=True)
class Failure:
    """A step of a case that failed: which, why, and the log that says more."""

    step: str
    reason: str
    log: str

    @property
    def sentence(self) -> str:
        """What failed and why, in a sentence."""
        return f"{self.step} failed: {self.reason.rstrip('.')}; {self.log} says more"

    @property
    def missing(self) -> Missing:
        """What a case lacks that was measured, but not traced or not analysed."""
        return Missing(ALL_TRACES, self.sentence, RERUN_HINT)


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
