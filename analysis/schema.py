"""What an Nsight Systems SQLite export looks like, from schema 3.0.0 (nsys 2022.4) on.

Every difference between schema versions is told and evened out here, so that no other module asks which
version it reads. Of what launchgap reads:

| | 3.0 (2022.4) | 3.7 (2023.4) | 3.11 (2024.2) | 3.20 (2025.3) | 3.25 (2026.2) |
|---|---|---|---|---|---|
| export metadata | EXPORT_META_DATA | META_DATA_EXPORT | same | same | same |
| META_DATA_CAPTURE (graph trace mode) | - | yes | yes | yes | yes |
| GPU work: greenContextId | - | yes | yes | yes | yes |
| CUPTI_ACTIVITY_KIND_GRAPH_TRACE | - | - | yes | yes | yes |
| creation of graph nodes | CUDA_GRAPH_EVENTS | same | CUDA_GRAPH_NODE_EVENTS | same | same |
| DIAGNOSTIC_EVENT | - | - | yes | yes | yes |
| MEMCPY: copyCount (3.17.2; not read) | - | - | - | yes | yes |
| KERNEL: graphId | - | - | - | - | yes |

- A table without events is absent in all of them, for exports are lazy unless told otherwise.
- From 3.11 on CUDA_GRAPH_EVENTS means another thing (whole graphs) and has no graphNodeId.
- The name of the graph trace mode has a prefix such as `PROCESS_0:` or none; it is looked for by its end.
- The text of a range is in the row (`text`) or in StringIds (`textId`); one file may hold both.
- 3.0 spells ENUM_CUDA_KERNEL_LAUNCH_TYPE wrong; it is not read.
- A deviceId of INT_MAX marks a graph's work on the host; start = end = 0 is a time the driver did not give.
- Times are nanoseconds since the session's start and may be negative. Nothing is sorted, nothing is indexed.

NVIDIA numbers its schemas major.minor.micro: a micro version adds, a minor one may break single queries, a
major one many (export_schema_version_notes.txt, which comes with nsys 2025). Columns are asked for by name,
so a version beyond the table (3.26 and newer, another major one) is read as well, with a warning, as long as
the columns that are needed exist.
Sources: the schema files that `nsys export` prints, those notes, and the report scripts that ship with nsys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.database import Database, open_sqlite
from analysis.reading import read_columns, read_table, read_texts, require_columns
from analysis.spec import Column, TableSpec
from contract import LaunchgapError

__all__ = ["Column", "TableSpec", "read_columns", "read_table"]

OLDEST_CHECKED, NEWEST_CHECKED = (3, 0), (3, 25)
"""Major and minor version of the first and the last export schema that the tables below were held to."""

PROCESS_MASK = ~0xFFFFFF
"""A serialized thread id with its thread bits cleared is the serialized id of its process."""

HOST_DEVICE = 2**31 - 1
"""`deviceId` of a graph's node that ran on the host."""

NVTX_PUSH_POP, NVTX_START_END, NVTX_DOMAIN_CREATE = 59, 60, 75
"""`NVTX_EVENTS.eventType` of ranges and of the rows that name a domain."""

DIAGNOSTIC_ERROR_LABEL = "Error"
"""Label of the severity that means lost data, in `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`."""

NO_ID = -1
"""Stands for an absent (NULL) correlation id, string id or graph node id: real ones are not negative."""

_OPEN_NS = -(10**18)
"""Stands for the absent end of an open range: thirty years before the session."""

_METADATA_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.\d+)*")
_SPAN = (Column("start", "start_ns"), Column("end", "end_ns"))
_OPERATION = (
    *_SPAN,
    Column("globalPid", "process"),
    Column("deviceId", "device", small=True),
    Column("greenContextId", "green_context", NO_ID, small=True),
    Column("streamId", "stream", NO_ID, small=True),
    Column("correlationId", "correlation", NO_ID, small=True),
)
_NODE = Column("graphNodeId", "graph_node", NO_ID)
_GRID = tuple(
    Column(f"{kind}{axis}", f"{kind}_{axis.lower()}", 0, small=True)
    for kind in ("grid", "block")
    for axis in "XYZ"
)

KERNELS = TableSpec(
    "CUPTI_ACTIVITY_KIND_KERNEL", (*_OPERATION, _NODE, Column("demangledName", "name", small=True), *_GRID)
)
MEMCPYS = TableSpec(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    (*_OPERATION, _NODE, Column("bytes", "bytes"), Column("copyKind", "copy_kind", NO_ID, small=True)),
)
MEMSETS = TableSpec("CUPTI_ACTIVITY_KIND_MEMSET", (*_OPERATION, _NODE, Column("bytes", "bytes")))
GRAPH_TRACES = TableSpec(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_OPERATION, Column("graphId", "graph", NO_ID, small=True))
)
API_CALLS = TableSpec(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    (
        *_SPAN,
        Column("globalTid", "thread"),
        Column("correlationId", "correlation", NO_ID, small=True),
        Column("nameId", "name", small=True),
    ),
)
# endGlobalTid is set only where a range ends on another thread than it began on.
NVTX_EVENTS = TableSpec(
    "NVTX_EVENTS",
    (
        Column("start", "start_ns"),
        Column("eventType", "event_type", small=True),
        Column("globalTid", "thread", NO_ID),
        Column("endGlobalTid", "end_thread", NO_ID),
        Column("domainId", "domain_id", 0, small=True),
        Column("textId", "text_id", NO_ID, small=True),
    ),
)
_NVTX_END = Column("end", "end_ns", _OPEN_NS)
_NODE_COLUMNS = (
    *_SPAN,
    Column("globalTid", "thread", NO_ID),
    Column("graphNodeId", "graph_node"),
    Column("originalGraphNodeId", "original", NO_ID),
)
GRAPH_NODES = TableSpec("CUDA_GRAPH_NODE_EVENTS", _NODE_COLUMNS)
_OLD_GRAPH_NODES = TableSpec("CUDA_GRAPH_EVENTS", _NODE_COLUMNS)


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a `.sqlite` export, or its gzipped form, without ever writing to it or beside it.

    Raises:
        LaunchgapError: no such file, no SQLite, cut short, or no export of Nsight Systems.
    """
    with open_sqlite(path) as database:
        if not database.has("StringIds"):
            raise LaunchgapError(
                f"{path}: no export of Nsight Systems (a SQLite file without a StringIds table); "
                "give what `nsys export --type sqlite` wrote"
            )
        require_columns(database, "StringIds", "id", "value")
        yield database


def version_warnings(schema_version: str | None) -> tuple[str, ...]:
    """What to know before the numbers of a file of this schema version; empty for a checked one."""
    if schema_version is None:
        return ("the file does not tell its export schema: read as if it were a known one",)
    found = _VERSION.fullmatch(schema_version)
    if found is None:
        return (f"export schema {schema_version!r} is no version number: read by the names of its columns",)
    version = int(found[1]), int(found[2])
    if OLDEST_CHECKED <= version <= NEWEST_CHECKED:
        return ()
    newer = version > NEWEST_CHECKED
    side, end, known = ("newer", "newest", NEWEST_CHECKED) if newer else ("older", "oldest", OLDEST_CHECKED)
    return (
        f"export schema {schema_version} is {side} than {known[0]}.{known[1]}, the {end} that was checked: "
        "read by the names of its columns, so a column with another meaning would go unnoticed; compare a "
        "total with `nsys stats`",
    )


def read_nvtx_events(database: Database) -> pd.DataFrame:
    """`NVTX_EVENTS` as `read_table` gives it, with end_ns (Int64, NA while open) and text (or NA)."""
    spec = TableSpec(NVTX_EVENTS.source, (*NVTX_EVENTS.columns, _NVTX_END))
    if database.has(spec.source):
        require_columns(database, spec.source, "end", "text")
    events = read_table(database, spec)
    open_ns = events["end_ns"].to_numpy() == _OPEN_NS
    ends = pd.arrays.IntegerArray(events["end_ns"].to_numpy(dtype=np.int64), open_ns)
    texts = read_texts(database, spec.source, "text") if len(events) else None
    text = pd.Series(np.full(len(events), None) if texts is None else texts, dtype="object")
    return events.assign(end_ns=ends, text=text)


def read_graph_nodes(database: Database) -> pd.DataFrame:
    """Creations of graph nodes: start_ns, end_ns, thread, graph_node, original (of a clone; else `NO_ID`)."""
    old = "graphNodeId" in database.columns.get(_OLD_GRAPH_NODES.source, ())
    return read_table(database, _OLD_GRAPH_NODES if old else GRAPH_NODES)


def read_metadata(database: Database, table: str) -> list[tuple[str, str]]:
    """Name and value rows of a metadata table, in file order; names may repeat. Empty where it is absent."""
    if not database.has(table):
        return []
    require_columns(database, table, "name", "value")
    frame = database.query(f"SELECT name, ifnull(value, '') AS value FROM \"{table}\"")
    return [(str(name), str(value)) for name, value in zip(frame["name"], frame["value"], strict=True)]


def export_metadata(database: Database) -> dict[str, str]:
    """How the export was made, from whichever table this schema version keeps it in."""
    return {name: value for table in _METADATA_TABLES for name, value in read_metadata(database, table)}


def read_strings(database: Database) -> dict[int, str]:
    """The string table: kernel, function and registered range names by id."""
    return texts_by_number(database, "StringIds", "id", "value")


def texts_by_number(database: Database, table: str, number: str, text: str) -> dict[int, str]:
    """Texts of a table by a column of whole numbers; rows that lack either are left out.

    In a damaged file they do although the columns are declared NOT NULL, which SQLite then takes on trust.
    """
    frame = database.query(
        f'SELECT "{number}" AS number, "{text}" AS text FROM "{table}" '
        f"WHERE typeof(\"{number}\") = 'integer' AND typeof(\"{text}\") != 'null'"
    )
    return {int(key): str(value) for key, value in zip(frame["number"], frame["text"], strict=True)}


def read_diagnostics(database: Database) -> pd.DataFrame:
    """What nsys itself had to say: severity (its label, or its number as text) and text."""
    if not database.has("DIAGNOSTIC_EVENT"):
        return pd.DataFrame({"severity": pd.Series(dtype="str"), "text": pd.Series(dtype="str")})
    require_columns(database, "DIAGNOSTIC_EVENT", "severity", "text")
    labels = "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"
    if not {"id", "label"} <= database.columns.get(labels, frozenset()):
        return database.query("SELECT CAST(severity AS TEXT) AS severity, text FROM DIAGNOSTIC_EVENT")
    return database.query(
        f"SELECT ifnull(l.label, d.severity) AS severity, d.text AS text FROM DIAGNOSTIC_EVENT AS d "
        f"LEFT JOIN {labels} AS l ON l.id = d.severity"
    )


def read_gpu_names(database: Database) -> tuple[str, ...]:
    """Names of the host's GPUs in their order; empty where the file does not tell them."""
    if not {"id", "name"} <= database.columns.get("TARGET_INFO_GPU", frozenset()):
        return ()
    rows = database.query("SELECT name FROM TARGET_INFO_GPU WHERE typeof(name) != 'null' ORDER BY id")
    return tuple(str(name) for name in rows["name"])
