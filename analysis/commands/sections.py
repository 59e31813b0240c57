"""What a command shows of a trace, as data: facts, findings and tables, for every format alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.finding import Finding

Fact = str | int | float | None | Sequence[str]
"""Value of a fact; None where the trace does not say."""


@dataclass(frozen=True)
class Section:
    """One table under a heading. `name` is its key in JSON and what `--table` calls it.

    `long` columns are too wide for a terminal: text tables and Markdown leave them out. `quiet` sections are
    shown there only if asked for by name, and `whole` ones are never cut to their first rows. `note` explains
    the numbers in a sentence or two.
    """

    name: str
    title: str
    table: pd.DataFrame
    note: str = ""
    long: tuple[str, ...] = ()
    quiet: bool = False
    whole: bool = False


@dataclass(frozen=True)
class View:
    """Everything shown about one trace. `tip` is a last line for a reader, no data."""

    kind: str
    title: str
    facts: Mapping[str, Fact]
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    tip: str = ""
