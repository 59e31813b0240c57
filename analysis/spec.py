"""How tables of an export are described: which columns are read, and what stands for absent ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of the export.

    `absent` stands for NULL or a missing column; None: it must be there. `small` columns seldom leave the
    range from minus one to seven thousand million, which makes them quicker to read.
    """

    source: str
    name: str
    absent: int | None = None
    small: bool = False


@dataclass(frozen=True)
class TableSpec:
    """The columns that launchgap reads from one table of the export."""

    source: str
    columns: tuple[Column, ...]
