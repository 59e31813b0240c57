"""Collects what explains a case: tables, findings, and the parts that could not be made with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from analysis.case_parts import MatchVerdict, Part, PredictionVerdict
from analysis.finding import Finding, one_line
from analysis.tables import TraceLabel, stacked
from analysis.timeline import Timeline
from contract import SCHEMA_VERSION, LaunchgapError, TraceMode

# What a defect of launchgap raises on a trace that nobody thought of. It must not take the other parts along.
_DEFECTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Told:
    """A finding about one part of one trace."""

    part: Part
    label: TraceLabel
    finding: Finding


@dataclass(frozen=True)
class Absent:
    """A part that could not be made of one trace, and why."""

    part: Part
    label: TraceLabel
    reason: str


@dataclass
class Parts:
    """Everything that explains a case, put in as it is made.

    `eager_record` is the record beside the eager trace, `gpu_names` the GPUs of its host.
    """

    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    matches: list[MatchVerdict] = field(default_factory=list)
    prediction: PredictionVerdict | None = None
    timelines: list[Timeline] = field(default_factory=list)
    eager_record: Mapping[str, Any] | None = None
    gpu_names: Sequence[str] = ()

    def attempt(self, part: Part, label: TraceLabel, make: Callable[[], None]) -> None:
        """Make a part; what keeps it from being made becomes its reason."""
        try:
            make()
        except LaunchgapError as error:
            self.miss(part, label, str(error))
        except _DEFECTS as error:
            reason = f"a fault of launchgap, please report it ({type(error).__name__}: {error})"
            self.miss(part, label, reason)

    def miss(self, part: Part, label: TraceLabel, reason: str) -> None:
        """Say that a part is not there."""
        self.absent.append(Absent(part, label, one_line(reason)))

    def tell(self, part: Part, label: TraceLabel, findings: Iterable[Finding]) -> None:
        """Say what qualifies a part."""
        self.told += [Told(part, label, finding) for finding in findings]

    def add(self, name: str, label: TraceLabel, table: pd.DataFrame) -> None:
        """Add rows of one trace to the table of that name, with the columns strategy and trace_mode first."""
        table = table.copy()
        for column, value in (("trace_mode", str(label.trace_mode)), ("strategy", label.strategy)):
            if column not in table:
                table.insert(0, column, value)
        self.tables.setdefault(name, []).append(table)

    def table(self, name: str, columns: Iterable[str]) -> pd.DataFrame:
        """All rows of the table of that name; empty where there are none."""
        return stacked(self.tables.get(name, []), list(columns))

    def record(self, case: str) -> dict[str, Any]:
        """The content of `explained.json`: verdicts, findings, and what is missing."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "explained",
            "case": case,
            "prediction": None if self.prediction is None else asdict(self.prediction),
            "matches": [asdict(verdict) for verdict in self.matches],
            "findings": [
                _of(told.part, told.label)
                | {"severity": told.finding.severity, "sentence": told.finding.sentence}
                for told in self.told
            ],
            "missing": [_of(one.part, one.label) | {"reason": one.reason} for one in self.absent],
        }


def _of(part: Part, label: TraceLabel) -> dict[str, str]:
    return {"part": str(part), "strategy": label.strategy, "trace_mode": str(TraceMode(label.trace_mode))}
