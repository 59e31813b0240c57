"""Reads integer columns of one table of a trace fast, whatever their number of rows.

Fetching rows one by one costs a quarter of a microsecond a row and a twentieth more a column, and holds the
interpreter, so that a second core is idle. Here SQLite writes a column of some thousand rows as one text, in
which every number has the same count of digits, and numpy takes the digits apart; both let go of the
interpreter, so that threads share the work. Measurements of this and of other engines: docs/trace-reader.md.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from analysis.database import Database

IntArray = npt.NDArray[np.signedinteger]

ROWS_AT_ONCE = 16_384
"""Rows in one text; more or fewer are slower, for they leave the processor's cache or repeat the query."""

MAX_WORKERS = 4
"""Threads that read one file at the same time at most."""

_ROWS_PER_WORKER = 200_000
_INT32_MAX = 2**31 - 1


class NotPlain(ValueError):
    """A column holds something else than integers of the expected size; it takes a slower way to read it."""


@dataclass(frozen=True)
class Digits:
    """How integers from `low` to `high` are written with always the same count of digits."""

    count: int
    offset: int
    low: int
    high: int

    def term(self, sql: str) -> str:
        """SQL for the digits of one value. What is no such integer gets a number below all others.

        SQLite orders any text or blob above all numbers, and NULL is between none.
        """
        beyond = self.low - 1 + self.offset
        return (
            f"CASE WHEN {sql} BETWEEN {self.low} AND {self.high} THEN {sql} + {self.offset} ELSE {beyond} END"
        )

    def decode(self, text: bytes, rows: int) -> IntArray:
        """The integers in a text of digits, as int32 where they fit.

        Raises:
            NotPlain: the text holds something else.
        """
        if len(text) != rows * self.count or not text.isdigit():
            raise NotPlain
        digits = np.frombuffer(text, dtype=np.uint8).reshape(rows, self.count) - ord("0")
        values = digits.astype(np.int64) @ _POWERS[-self.count :] - self.offset
        if values.min() < self.low:
            raise NotPlain
        return values.astype(np.int32) if self is SMALL and values.max() <= _INT32_MAX else values


_POWERS = 10 ** np.arange(18, -1, -1, dtype=np.int64)

SMALL = Digits(10, 2 * 10**9, 1 - 10**9, 7 * 10**9)
"""Ids, counts and most durations."""

WIDE = Digits(19, 5 * 10**18, 1 - 4 * 10**18, 4 * 10**18)
"""Times and serialized ids."""


@dataclass(frozen=True)
class Term:
    """One column to read: an SQL expression over the table's columns, and how large its values are."""

    sql: str
    digits: Digits = WIDE


def read_integers(database: Database, table: str, terms: Sequence[Term]) -> list[IntArray]:
    """Read columns of a table in the order of its rows: int64 of wide ones, int32 of small ones that fit.

    Raises:
        NotPlain: some value is no integer, or larger than its term says.
        sqlite3.Error: the file is damaged, or a term names a column that is not there.
    """
    alias = _rowid_alias(database.columns[table])
    first, last = database.connection.execute(f'SELECT min({alias}), max({alias}) FROM "{table}"').fetchone()
    if first is None:
        return [np.empty(0, dtype=np.int64) for _ in terms]
    sql = _block_sql(table, alias, terms)
    parts = _parts(first, last, 1 if database.uri is None else _cores())
    if len(parts) == 1:
        blocks = list(_blocks(database.connection, sql, terms, *parts[0]))
    else:
        with ThreadPoolExecutor(len(parts)) as pool:
            tasks = [pool.submit(_blocks_of_part, database, sql, terms, part) for part in parts]
            blocks = [block for task in tasks for block in task.result()]
    return _joined(blocks, len(terms))


def _block_sql(table: str, alias: str, terms: Sequence[Term]) -> str:
    """SELECT of a count, the last row id and the digits of some rows, from one row id to another."""
    inner = ", ".join(f"{term.sql} AS c{place}" for place, term in enumerate(terms))
    outer = ", ".join(
        f"CAST(group_concat({term.digits.term(f'c{place}')}, '') AS BLOB)" for place, term in enumerate(terms)
    )
    return (
        f"SELECT count(*), max(r), {outer} FROM (SELECT {alias} AS r, {inner} "
        f'FROM "{table}" WHERE {alias} BETWEEN ? AND ? ORDER BY {alias} LIMIT {ROWS_AT_ONCE})'
    )


def _blocks_of_part(
    database: Database, sql: str, terms: Sequence[Term], part: tuple[int, int]
) -> list[list[IntArray]]:
    connection = database.another()
    if connection is None:
        raise NotPlain
    with closing(connection):
        return list(_blocks(connection, sql, terms, *part))


def _blocks(
    connection: sqlite3.Connection, sql: str, terms: Sequence[Term], first: int, last: int
) -> Iterator[list[IntArray]]:
    while first <= last:
        rows, reached, *texts = connection.execute(sql, (first, last)).fetchone()
        if not rows:
            return
        yield [term.digits.decode(text, rows) for term, text in zip(terms, texts, strict=True)]
        first = reached + 1


def _joined(blocks: list[list[IntArray]], width: int) -> list[IntArray]:
    """Columns of all blocks, which are emptied on the way so that no more than one column is held twice."""
    if not blocks:
        return [np.empty(0, dtype=np.int64) for _ in range(width)]
    return [np.concatenate([block.pop(0) for block in blocks]) for _ in range(width)]


def _parts(first: int, last: int, workers: int) -> list[tuple[int, int]]:
    """Row ids in equal parts; a table is taken to have no gaps, or one part has less to do."""
    count = max(1, min(workers, MAX_WORKERS, (last - first) // _ROWS_PER_WORKER))
    edges = [first + (last - first + 1) * place // count for place in range(count + 1)]
    return [(start, stop - 1) for start, stop in pairwise(edges)]


def _cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rowid_alias(columns: frozenset[str]) -> str:
    taken = {column.lower() for column in columns}
    alias = next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), None)
    if alias is None:
        raise NotPlain
    return alias
