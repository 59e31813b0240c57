"""What an Nsight Systems SQLite export looks like, from schema 3.0.0 (nsys 2022.4) to 3.25 (2026).

Every difference between schema versions is told here, so that no other module asks which version it reads:
tables without events are absent, metadata changed its table's name, columns came and went. Times are
nanoseconds since the session's start and may be negative.
Sources: the export schema files that `nsys export` prints, and the report scripts that ship with nsys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.database import REEXPORT, Database, damaged, open_sqlite
from contract import LaunchgapError

SUPPORTED_MAJOR = 3
"""Major export schema version that the tables below describe."""

PROCESS_MASK = ~0xFFFFFF
"""A serialized thread id with its thread bits cleared is the serialized id of its process."""

NVTX_PUSH_POP, NVTX_START_END, NVTX_DOMAIN_CREATE = 59, 60, 75
"""`NVTX_EVENTS.eventType` of ranges and of the rows that name a domain."""

DIAGNOSTIC_ERROR_LABEL = "Error"
"""Label of the severity that means lost data, in `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`."""

NO_ID = -1
"""Stands for an absent (NULL) correlation id, string id or graph node id: real ones are not negative."""

_ROWS_AT_ONCE = 50_000
_METADATA_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")


@dataclass(frozen=True)
class Column:
    """A column of the export. `absent` stands for NULL or a missing column; None: it must be there."""

    source: str
    name: str
    absent: int | None = None


@dataclass(frozen=True)
class TableSpec:
    """The columns that launchgap reads from one table of the export."""

    source: str
    columns: tuple[Column, ...]


_OPERATION = (
    Column("start", "start_ns"),
    Column("end", "end_ns"),
    Column("globalPid", "process"),
    Column("deviceId", "device"),
    Column("streamId", "stream", NO_ID),
    Column("correlationId", "correlation", NO_ID),
)
_NODE = Column("graphNodeId", "graph_node", NO_ID)
_GRID = tuple(
    Column(f"{kind}{axis}", f"{kind}_{axis.lower()}", 0) for kind in ("grid", "block") for axis in "XYZ"
)

KERNELS = TableSpec(
    "CUPTI_ACTIVITY_KIND_KERNEL", (*_OPERATION, _NODE, Column("demangledName", "name"), *_GRID)
)
MEMCPYS = TableSpec(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    (*_OPERATION, _NODE, Column("bytes", "bytes"), Column("copyKind", "copy_kind", NO_ID)),
)
MEMSETS = TableSpec("CUPTI_ACTIVITY_KIND_MEMSET", (*_OPERATION, _NODE, Column("bytes", "bytes")))
GRAPH_TRACES = TableSpec("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_OPERATION, Column("graphId", "graph", NO_ID)))
API_CALLS = TableSpec(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    (
        Column("start", "start_ns"),
        Column("end", "end_ns"),
        Column("globalTid", "thread"),
        Column("correlationId", "correlation", NO_ID),
        Column("nameId", "name"),
    ),
)
# endGlobalTid is set only where a range ends on another thread than it began on.
NVTX_EVENTS = TableSpec(
    "NVTX_EVENTS",
    (
        Column("start", "start_ns"),
        Column("eventType", "event_type"),
        Column("globalTid", "thread", NO_ID),
        Column("endGlobalTid", "end_thread", NO_ID),
        Column("domainId", "domain_id", 0),
        Column("textId", "text_id", NO_ID),
    ),
)


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a `.sqlite` export, or its gzipped form, without ever writing to it or beside it.

    Raises:
        LaunchgapError: no such file, no SQLite, cut short, or no export of Nsight Systems that is understood.
    """
    with open_sqlite(path) as database:
        _check_is_export(database)
        yield database


def read_table(database: Database, spec: TableSpec) -> pd.DataFrame:
    """Read a table as int64 columns under launchgap's names; an absent table gives no rows.

    Raises:
        LaunchgapError: a column that cannot be done without is missing or empty; the message names it.
    """
    names = [column.name for column in spec.columns]
    if not database.has(spec.source):
        return pd.DataFrame({name: pd.Series(dtype="int64") for name in names})
    sql = _select(database, spec)
    try:
        return pd.DataFrame(_integers(database.connection, sql, len(names)), columns=names)
    except (TypeError, ValueError, OverflowError) as error:
        raise _hole(database, spec) from error
    except sqlite3.Error as error:
        raise damaged(database.path, error) from error


def read_nvtx_events(database: Database) -> pd.DataFrame:
    """`NVTX_EVENTS` as `read_table` gives it, with end_ns (Int64, NA while open) and text (or NA)."""
    if not database.has(NVTX_EVENTS.source):
        kinds = {"end_ns": "Int64", "text": "object"}
        return read_table(database, NVTX_EVENTS).assign(**{n: pd.Series(dtype=k) for n, k in kinds.items()})
    for name in ("end", "text"):
        if name not in database.columns[NVTX_EVENTS.source]:
            raise LaunchgapError(f"{database.path}: table NVTX_EVENTS has no column {name}; {REEXPORT}")
    events = database.query(_select(database, NVTX_EVENTS, ('"end" AS end_ns', '"text" AS text')))
    names = [column.name for column in NVTX_EVENTS.columns]
    if events[names].isna().any(axis=None):
        raise _hole(database, NVTX_EVENTS)
    events = events.astype(dict.fromkeys(names, "int64"))
    return events.assign(end_ns=events["end_ns"].astype("Int64"), text=events["text"].astype("object"))


def read_metadata(database: Database, table: str) -> list[tuple[str, str]]:
    """Name and value rows of a metadata table, in file order; names may repeat. Empty where it is absent."""
    if not database.has(table):
        return []
    frame = database.query(f"SELECT name, ifnull(value, '') AS value FROM \"{table}\"")
    return [(str(name), str(value)) for name, value in zip(frame["name"], frame["value"], strict=True)]


def export_metadata(database: Database) -> dict[str, str]:
    """How the export was made, from whichever table this schema version keeps it in."""
    return {name: value for table in _METADATA_TABLES for name, value in read_metadata(database, table)}


def read_strings(database: Database) -> dict[int, str]:
    """The string table: kernel, function and registered range names by id."""
    frame = database.query("SELECT id, value FROM StringIds")
    return {int(key): str(value) for key, value in zip(frame["id"], frame["value"], strict=True)}


def _select(database: Database, spec: TableSpec, extra_terms: tuple[str, ...] = ()) -> str:
    present = database.columns[spec.source]
    terms = [_term(database.path, spec.source, column, column.source in present) for column in spec.columns]
    return f'SELECT {", ".join((*terms, *extra_terms))} FROM "{spec.source}"'


def _integers(connection: sqlite3.Connection, sql: str, width: int) -> npt.NDArray[np.int64]:
    """Rows of integers as an array; in portions, because a million rows of Python objects take a gigabyte."""
    cursor = connection.execute(sql)
    parts = [np.empty((0, width), dtype=np.int64)]
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=len(rows) * width)
        parts.append(flat.reshape(-1, width))
    return np.concatenate(parts)


def _hole(database: Database, spec: TableSpec) -> LaunchgapError:
    """The error about a needed column in which something other than an integer stands."""
    for column in spec.columns:
        wrong = f"typeof(\"{column.source}\") NOT IN ('integer', 'null')"
        if column.absent is None:
            wrong = f"typeof(\"{column.source}\") != 'integer'"
        if column.source in database.columns[spec.source]:
            count = int(
                database.query(f'SELECT count(*) AS n FROM "{spec.source}" WHERE {wrong}')["n"].iloc[0]
            )
            if count:
                what = f"table {spec.source} has {count} rows without a number in {column.source}"
                return LaunchgapError(f"{database.path}: {what}; {REEXPORT}")
    return LaunchgapError(f"{database.path}: table {spec.source} cannot be read; {REEXPORT}")


def _check_is_export(database: Database) -> None:
    if not database.has("StringIds"):
        raise LaunchgapError(
            f"{database.path}: no export of Nsight Systems (a SQLite file without a StringIds table); "
            "give what `nsys export --type sqlite` wrote"
        )
    version = export_metadata(database).get("EXPORT_SCHEMA_VERSION")
    if version is not None and version.split(".")[0] != str(SUPPORTED_MAJOR):
        raise LaunchgapError(
            f"{database.path}: export schema {version} is not understood, only {SUPPORTED_MAJOR}.x is; "
            "export with another version of nsys"
        )


def _term(path: Path, table: str, column: Column, present: bool) -> str:
    """One column of a SELECT."""
    if not present:
        if column.absent is None:
            raise LaunchgapError(f"{path}: table {table} has no column {column.source}; {REEXPORT}")
        return f'{column.absent} AS "{column.name}"'
    value = f'"{column.source}"' if column.absent is None else f'ifnull("{column.source}", {column.absent})'
    return f'{value} AS "{column.name}"'
