"""Reads the tables of an export under launchgap's names; a needed column that is not there is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.bulk import SMALL, WIDE, IntArray, NotPlain, Term, read_integers
from analysis.database import BROKEN, REEXPORT, Database, damaged
from analysis.spec import Column, TableSpec
from contract import LaunchgapError

DURATION = "duration_ns"
"""Name of end minus start, which any table with both has."""

_ROWS_AT_ONCE = 2_000
_INT64_MAX = 2**63 - 1


def read_columns(database: Database, spec: TableSpec, names: Sequence[str] = ()) -> dict[str, IntArray]:
    """Read a table as integer columns under launchgap's names, in the order of its rows.

    Columns are int64; those that the spec calls small are int32 where all values fit. An absent table has no
    rows. `names` are the columns wanted, all of the spec if empty; `duration_ns` is end minus start.

    Raises:
        LaunchgapError: a column that cannot be done without is missing or empty; the message names it.
    """
    names = names or [column.name for column in spec.columns]
    if not database.has(spec.source):
        return {name: np.empty(0, dtype=np.int64) for name in names}
    known = {column.name: _column_term(database, spec.source, column) for column in spec.columns}
    terms = [_duration(known) if name == DURATION else known[name] for name in names]
    try:
        return dict(zip(names, _read(database, spec, terms), strict=True))
    except BROKEN as error:
        raise damaged(database.path, error) from error


def read_table(database: Database, spec: TableSpec, names: Sequence[str] = ()) -> pd.DataFrame:
    """`read_columns` as a frame."""
    return pd.DataFrame(read_columns(database, spec, names), copy=False)


def _column_term(database: Database, table: str, column: Column) -> Term:
    """One column of a table that is there, as something to select.

    Raises:
        LaunchgapError: the column is needed and the table lacks it.
    """
    digits = SMALL if column.small else WIDE
    if column.source not in database.columns[table]:
        if column.absent is None:
            raise _lacking(database, table, column.source)
        return Term(str(column.absent), digits)
    value = f'"{column.source}"'
    return Term(value if column.absent is None else f"ifnull({value}, {column.absent})", digits)


def _duration(terms: Mapping[str, Term]) -> Term:
    """End minus start. What is no number is greater than all numbers, but counts as 0 in a subtraction."""
    start, end = terms["start_ns"].sql, terms["end_ns"].sql
    numbers = f"{start} <= {_INT64_MAX} AND {end} <= {_INT64_MAX}"
    return Term(f"CASE WHEN {numbers} THEN {end} - {start} END", SMALL)


def require_columns(database: Database, table: str, *columns: str) -> None:
    """Complain by name about the first column that a table lacks.

    Raises:
        LaunchgapError: it lacks one.
    """
    for column in columns:
        if column not in database.columns[table]:
            raise _lacking(database, table, column)


def read_texts(database: Database, table: str, column: str) -> npt.NDArray[np.object_] | None:
    """A column of texts in the order of its rows, None for NULL; None in place of one that is all NULL."""
    some = database.query(f'SELECT 1 AS one FROM "{table}" WHERE "{column}" IS NOT NULL LIMIT 1')
    if some.empty:
        return None
    try:
        rows = database.connection.execute(f'SELECT "{column}" FROM "{table}" NOT INDEXED')
        return np.fromiter(chain.from_iterable(rows), dtype=np.object_)
    except BROKEN as error:
        raise damaged(database.path, error) from error


def _read(database: Database, spec: TableSpec, terms: Sequence[Term]) -> list[IntArray]:
    try:
        return read_integers(database, spec.source, terms)
    except NotPlain:
        _refuse_holes(database, spec)
        return _read_slowly(database, spec.source, terms)


def _read_slowly(database: Database, table: str, terms: Sequence[Term]) -> list[IntArray]:
    """The same row by row, for any int64; in portions, as a million rows of objects take a gigabyte."""
    values = ", ".join(term.sql for term in terms)
    cursor = database.connection.execute(f'SELECT {values} FROM "{table}" NOT INDEXED')
    parts = [np.empty((0, len(terms)), dtype=np.int64)]
    try:
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=len(rows) * len(terms))
            parts.append(flat.reshape(-1, len(terms)))
    except (TypeError, ValueError, OverflowError) as error:
        raise LaunchgapError(
            f"{database.path}: table {table} cannot be read ({error}); {REEXPORT}"
        ) from error
    return list(np.ascontiguousarray(np.concatenate(parts).T))


def _refuse_holes(database: Database, spec: TableSpec) -> None:
    """Complain by name about a column in which something other than an integer stands.

    Raises:
        LaunchgapError: there is one; the message tells how many rows it concerns.
    """
    for column in spec.columns:
        wrong = f"typeof(\"{column.source}\") NOT IN ('integer', 'null')"
        if column.absent is None:
            wrong = f"typeof(\"{column.source}\") != 'integer'"
        if column.source in database.columns[spec.source]:
            rows = database.query(f'SELECT count(*) AS n FROM "{spec.source}" WHERE {wrong}')
            count = int(rows["n"].iloc[0])
            if count:
                what = f"table {spec.source} has {count} rows without a number in {column.source}"
                raise LaunchgapError(f"{database.path}: {what}; {REEXPORT}")


def _lacking(database: Database, table: str, column: str) -> LaunchgapError:
    return LaunchgapError(f"{database.path}: table {table} has no column {column}; {REEXPORT}")
