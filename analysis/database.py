"""Opens an exported trace for reading, without ever writing to it or beside it."""

from __future__ import annotations

import gzip
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from contract import LaunchgapError

REEXPORT = "export the .nsys-rep again with `nsys export --type sqlite`"
"""What to do about an export that is damaged or incomplete."""

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_JOURNALS = ("-wal", "-journal")

BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises: SQLite's messages may quote bytes that are no text."""


@dataclass(frozen=True)
class Database:
    """An export opened for reading, and the columns of each table that it has. `uri` is how it was opened."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, frozenset[str]]
    uri: str | None = None

    def another(self) -> sqlite3.Connection | None:
        """A second connection to the same file, for another thread; None where the file lies in memory."""
        return None if self.uri is None else _open_uri(self.uri)

    def without(self, *tables: str) -> Database:
        """The same file, taken to lack these tables."""
        return replace(self, columns={k: v for k, v in self.columns.items() if k not in tables})

    def has(self, table: str) -> bool:
        """Whether the export holds the table, that is, any event of its kind."""
        return table in self.columns

    def query(self, sql: str) -> pd.DataFrame:
        """Run one SELECT. Raises LaunchgapError when the file turns out to be damaged."""
        try:
            return pd.read_sql_query(sql, self.connection)
        except (pd.errors.DatabaseError, *BROKEN) as error:
            raise damaged(self.path, error) from error


@contextmanager
def open_sqlite(path: Path) -> Iterator[Database]:
    """Open a SQLite file, or its gzipped form, for reading only.

    Raises:
        LaunchgapError: no such file, no SQLite, cut short or damaged.
    """
    uri, connection = _connect(path)
    try:
        connection.text_factory = _decode
        try:
            columns = _columns(connection)
        except BROKEN as error:
            raise damaged(path, error) from error
        yield Database(path, connection, columns, uri)
    finally:
        connection.close()


def damaged(path: Path, error: Exception) -> LaunchgapError:
    """The error about a file that SQLite itself cannot make sense of."""
    reason = str(error.__cause__ or error).splitlines()[-1]
    return LaunchgapError(f"{path}: damaged ({reason}); {REEXPORT}")


def _connect(path: Path) -> tuple[str | None, sqlite3.Connection]:
    if path.suffix == ".gz":
        connection = sqlite3.connect(":memory:")
        connection.deserialize(_checked_image(path, _gunzip(path)))
        return None, connection
    try:
        with path.open("rb") as file:
            _check_header(path, file.read(_HEADER_BYTES), path.stat().st_size)
    except OSError as error:
        raise LaunchgapError(f"{path}: cannot be read ({error.strerror}); give an exported trace") from error
    _refuse_journals(path)
    # immutable: no lock or journal file is made, so that a trace in a read-only folder can be read.
    uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"
    return uri, _open_uri(uri)


def _open_uri(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True)


def _refuse_journals(path: Path) -> None:
    """What is only in a journal beside the file would be missed without a word."""
    for suffix in _JOURNALS:
        journal = path.with_name(path.name + suffix)
        if journal.is_file() and journal.stat().st_size:
            raise LaunchgapError(
                f"{path}: still being written, or left half written ({journal.name} lies beside it); "
                f"wait for its writer to end, or {REEXPORT}"
            )


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise LaunchgapError(f"{path}: no complete gzip file ({error}); copy or make it again") from error
    except OSError as error:
        raise LaunchgapError(f"{path}: cannot be read ({error.strerror}); give an exported trace") from error


def _checked_image(path: Path, image: bytes) -> bytes:
    _check_header(path, image[:_HEADER_BYTES], len(image))
    return image


def _check_header(path: Path, header: bytes, size_bytes: int) -> None:
    """SQLite itself opens an empty file as an empty database and reads the rest of a cut one."""
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise LaunchgapError(f"{path}: no SQLite file; give what `nsys export --type sqlite` wrote")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    if size_bytes < pages * page_bytes:
        raise LaunchgapError(
            f"{path}: cut short ({size_bytes:,} of {pages * page_bytes:,} bytes); "
            f"see that the disk is not full and {REEXPORT}"
        )


def _columns(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    rows = connection.execute(
        "SELECT m.name, p.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS p "
        "WHERE m.type = 'table'"
    )
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return {table: frozenset(columns) for table, columns in found.items()}


def _decode(raw: bytes) -> str:
    """Names come from the traced program and need not be valid UTF-8."""
    return raw.decode("utf-8", "replace")
