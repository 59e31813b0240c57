"""Finds what must not be shared in a SQLite file: environments, paths, identifiers, host and user names."""

from __future__ import annotations

import getpass
import re
import socket
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from analysis.schema import open_database

_PATTERNS = {
    "environment variable": re.compile(r"(?<![\w.])[A-Z_][A-Z0-9_]{2,}=[^\s=]"),
    "path": re.compile(r"(?<![\w./)\]>])/[A-Za-z_][\w.+-]*(?:/|\b)|(?<!\w)[A-Za-z]:\\\w|~/|file://"),
    "identifier": re.compile(r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"),
}
# A shorter name is found only where it is all there is: `vm` also occurs inside other words.
_WORD_LENGTH = 4
_SHOWN_CHARACTERS = 40


def find_leaks(path: Path, names: Iterable[str] = ()) -> list[str]:
    """What a file would give away; one line per find: table, column, kind and how the text begins.

    Looks at every text and blob of every table for `NAME=value`, absolute paths, UUIDs, the names of this
    host and user, and `names`.

    Raises:
        LaunchgapError: the file cannot be read.
    """
    with open_database(path) as database:
        return leaks_in(database.connection, {*names, *_own_names()})


def leaks_in(connection: sqlite3.Connection, names: Iterable[str], schema: str = "main") -> list[str]:
    """`find_leaks` for an open database; only the given names are looked for."""
    wanted = sorted(name for name in set(names) if name)
    found = []
    for table, column, text in _texts(connection, schema):
        kind = _leak_kind(text, wanted)
        if kind is not None:
            found.append(f"{table}.{column}: {kind}: {text[:_SHOWN_CHARACTERS]!r}")
    return found


def _leak_kind(text: str, names: list[str]) -> str | None:
    for kind, pattern in _PATTERNS.items():
        if pattern.search(text):
            return kind
    for name in names:
        whole_word = len(name) >= _WORD_LENGTH and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
        if text == name or whole_word:
            return "name of the host or user"
    return None


def _own_names() -> set[str]:
    host = socket.gethostname()
    names = {host, host.split(".")[0]}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError):  # a container's user may have no name
        return names
    return names


def _texts(connection: sqlite3.Connection, schema: str) -> Iterator[tuple[str, str, str]]:
    """Every distinct text, with its table and column. SQLite keeps texts in columns of any declared type."""
    tables = connection.execute(f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' ORDER BY name")
    for (table,) in tables.fetchall():
        columns = connection.execute(f'PRAGMA {schema}.table_info("{table}")').fetchall()
        for column in (row[1] for row in columns):
            rows = connection.execute(
                f'SELECT DISTINCT "{column}" FROM {schema}."{table}" '
                f"WHERE typeof(\"{column}\") IN ('text', 'blob')"
            )
            for (value,) in rows:
                yield table, column, value.decode("latin-1") if isinstance(value, bytes) else value
