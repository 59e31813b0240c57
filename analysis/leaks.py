"""Finds what must not be shared in a SQLite file: environments, paths, identifiers, secrets, names.

A secret is known by its form alone: free text that has none, such as a customer's name, is not noticed.
"""

from __future__ import annotations

import getpass
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.database import Database, damaged
from analysis.schema import export_metadata, open_database

NAME = "name of the host or user"

_VARIABLE = "environment variable"
_PATTERNS = {
    _VARIABLE: re.compile(r"(?<![\w.])[A-Z_][A-Z0-9_]{2,}=[^\s=]"),
    "path": re.compile(r"(?<![\w./)\]>])/[A-Za-z_][\w.+-]*(?:/|\b)|(?<!\w)[A-Za-z]:\\\w|~/|file://"),
    "secret": re.compile(
        r"(?i:\b(?:password|passwd|pwd|(?:auth|access|api|secret)[_-]?(?:token|key))\s*[=:]\s*\S|\bbearer\s+\S{8})|"
        r"\bgh[a-z]_\w{4}|\bgithub_pat_\w|\bsk-[\w-]{8}|\bAKIA[0-9A-Z]{8}|\bxox[a-z]-\w|\bhf_\w{8}|"
        r"\beyJ[\w-]{8,}\.[\w-]{4}|\w://[^\s/:@]+:[^\s/@]+@"
    ),
    "address": re.compile(
        r"(?<![\w.])[\w.+-]+@[\w-]+\.[a-z]{2,}(?!\w)|\bhttps?://\w|"
        r"(?<![\w.])(?:(?:10|127)\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2}(?![\w.])"
    ),
    "identifier": re.compile(r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"),
}
_NAMED_IN_ENVIRONMENT = re.compile(r"(?<![A-Z0-9_])(?:USER|LOGNAME|USERNAME|HOSTNAME|COMPUTERNAME)=([\w.-]+)")
# Names of so many accounts and machines that they tell nothing of one.
_NAMES_OF_EVERYONE = frozenset({"root", "user", "ubuntu", "admin", "localhost"})
# A shorter name is found only where it is all there is: `vm` also occurs inside other words.
_WORD_LENGTH = 4
_SHOWN_OF_SECRET = 3


@dataclass(frozen=True)
class Leak:
    """Rows of one column that give something away in one way; `example` is the start of one secret only."""

    table: str
    column: str
    kind: str
    rows: int
    example: str

    def __str__(self) -> str:
        """One line: where, what kind, how many rows, how the first of them begins."""
        return f"{self.table}.{self.column}: {self.kind}: {self.rows} rows, such as {self.example!r}"


def find_leaks(path: Path, names: Iterable[str] = ()) -> list[str]:
    """What a file would give away; one line for each column and kind, with the number of rows.

    Looks at every text and blob of every table for `NAME=value`, absolute paths, UUIDs, well-known forms of
    passwords, tokens and addresses, the names of this
    host and user, those that the trace itself records, and `names`; and for pages that deleted rows left.

    Raises:
        LaunchgapError: the file cannot be read.
    """
    with open_database(path) as database:
        try:
            wanted = {*names, *_own_names(), *recorded_names(database)}
            return [str(leak) for leak in leaks_in(database.connection, wanted)]
        except (sqlite3.Error, UnicodeDecodeError) as error:  # damage may stand in SQLite's own message
            raise damaged(path, error) from error


def leaks_in(connection: sqlite3.Connection, names: Iterable[str], schema: str = "main") -> list[Leak]:
    """`find_leaks` for an open database; only the given names are looked for."""
    wanted = _word_pattern(names)
    rows: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for table, column, text, count in _texts(connection, schema):
        found = _leak(text, wanted)
        if found is not None:
            key = (table, column, found[0])
            rows[key] += count
            examples.setdefault(key, found[1])
    return [*(Leak(*key, rows[key], examples[key]) for key in rows), *_unused_pages(connection, schema)]


def recorded_names(database: Database) -> set[str]:
    """Hosts and users that the trace itself names, in its metadata or in an environment."""
    about = export_metadata(database)
    names = {about.get("EXPORT_HOST", ""), about.get("EXPORT_USER", "")}
    if {"name", "value"} <= database.columns.get("TARGET_INFO_SYSTEM_ENV", frozenset()):
        rows = database.query("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'")
        names.update(str(value) for value in rows["value"])
    texts = (text for _, _, text, _ in _texts(database.connection, "main"))
    from_environment = {name for text in texts for name in _NAMED_IN_ENVIRONMENT.findall(text)}
    return names | (from_environment - _NAMES_OF_EVERYONE)


def _leak(text: str, names: re.Pattern[str] | None) -> tuple[str, str] | None:
    """Kind of the first thing that a text gives away, and how it begins."""
    for kind, pattern in _PATTERNS.items():
        match = pattern.search(text)
        if match is not None:
            variable = match.group().partition("=")[0] + "="
            return kind, variable + "…" if kind == _VARIABLE else _hidden(match.group())
    match = names.search(text) if names is not None else None
    return (NAME, _hidden(match.group())) if match is not None else None


def _hidden(secret: str) -> str:
    """So much of a secret as its owner needs to find it, never all of it."""
    return secret[: min(_SHOWN_OF_SECRET, len(secret) // 2)] + "…"


def _word_pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of the names: short ones only as the whole text, others as a word of it."""
    parts = [
        rf"(?<!\w){re.escape(name)}(?!\w)" if len(name) >= _WORD_LENGTH else rf"\A{re.escape(name)}\Z"
        for name in sorted(set(names))
        if name
    ]
    return re.compile("|".join(parts)) if parts else None


def _own_names() -> set[str]:
    host = socket.gethostname()
    names = {host, host.split(".")[0]}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError):  # a container's user may have no name
        return names
    return names


def _texts(connection: sqlite3.Connection, schema: str) -> Iterator[tuple[str, str, str, int]]:
    """Every distinct text, with its table, column and number of rows.

    SQLite keeps texts in columns of any declared type, so one pass over each table finds which hold any.
    """
    tables = connection.execute(f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' ORDER BY name")
    for (table,) in tables.fetchall():
        quoted = _quoted(table)
        about = connection.execute(f"PRAGMA {schema}.table_info({quoted})").fetchall()
        columns = [_quoted(row[1]) for row in about]
        tests = ", ".join(f"max(typeof({column}) IN ('text', 'blob'))" for column in columns)
        holds = connection.execute(f"SELECT {tests} FROM {schema}.{quoted}").fetchone()
        for column, row, has_text in zip(columns, about, holds, strict=True):
            if has_text:
                values = connection.execute(
                    f"SELECT {column}, count(*) FROM {schema}.{quoted} "
                    f"WHERE typeof({column}) IN ('text', 'blob') GROUP BY {column}"
                )
                for value, count in values:
                    text = value.decode("latin-1") if isinstance(value, bytes) else value
                    yield table, row[1], text, count


def _unused_pages(connection: sqlite3.Connection, schema: str) -> list[Leak]:
    """Pages of deleted rows, whose content stays in the file until a VACUUM."""
    (pages,) = connection.execute(f"PRAGMA {schema}.freelist_count").fetchone()
    return [Leak("(file)", "(unused pages)", "deleted rows", pages, "VACUUM removes them")] if pages else []


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
