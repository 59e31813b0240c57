"""Makes a trace fit to be shared: a new SQLite file that holds an allow-list of tables, columns and strings.

An export stores the environment of every process of the host, host and user names, paths and GPU identifiers.
What is kept here is what counting needs: GPU work, CUDA calls, NVTX ranges, the strings they use, what the
GPU is, and which version wrote it. The numbers of `nsys stats` over the kept rows stay the same.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.attribute import RangeSelector, select_ranges
from analysis.database import Database, damaged
from analysis.diagnostics import shareable_text
from analysis.leaks import leaks_in, recorded_names
from analysis.schema import DIAGNOSTIC_ERROR_LABEL, NVTX_DOMAIN_CREATE, open_database
from analysis.trace import read_trace
from contract import LaunchgapError, RangeName

_SPAN = ("start", "end")
_ON_DEVICE = (*_SPAN, "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid")
_CALL = (*_SPAN, "eventClass", "globalTid", "nameId")
_SHAPE = tuple(f"{kind}{axis}" for kind in ("grid", "block") for axis in "XYZ")

_TABLES: dict[str, tuple[str, ...]] = {
    "ANALYSIS_DETAILS": ("globalVid", "duration", "startTime", "stopTime"),
    "CUDA_GRAPH_EVENTS": (
        *(*_CALL, "graphNodeId", "originalGraphNodeId"),
        *("graphId", "originalGraphId", "graphExecId"),
    ),
    "CUDA_GRAPH_NODE_EVENTS": (*_CALL, "graphNodeId", "originalGraphNodeId"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*_ON_DEVICE, "graphId", "graphExecId"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *(
            *_ON_DEVICE,
            "demangledName",
            "shortName",
            "launchType",
            "cacheConfig",
            "registersPerThread",
            *_SHAPE,
        ),
        *("staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread", "localMemoryTotal", "gridId"),
        *("sharedMemoryExecuted", "graphNodeId", "sharedMemoryLimitConfig", "graphId"),
        *("clusterX", "clusterY", "clusterZ"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        *(
            *_ON_DEVICE,
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
            "srcDeviceId",
            "srcContextId",
            "dstDeviceId",
        ),
        *("dstContextId", "graphNodeId", "copyCount"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*_ON_DEVICE, "value", "bytes", "graphNodeId", "memKind"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (*_CALL, "correlationId", "returnValue"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (*_ON_DEVICE, "syncType", "eventId"),
    "DIAGNOSTIC_EVENT": ("timestamp", "timestampType", "source", "severity", "text"),
    "EXPORT_META_DATA": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "META_DATA_EXPORT": ("name", "value"),
    "NVTX_EVENTS": (
        *(*_SPAN, "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId"),
        "domainId",
    ),
    "PROFILER_OVERHEAD": (*_SPAN, "globalTid", "nameId", "returnValue"),
    "StringIds": ("id", "value"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": ("nullStreamId", "hwId", "vmId", "processId", "deviceId", "contextId"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "TARGET_INFO_CUDA_NULL_STREAM": ("streamId", "hwId", "vmId", "processId", "deviceId", "contextId"),
    "TARGET_INFO_GPU": (
        *("vmId", "id", "name", "isDiscrete", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate"),
        *("smCount", "chipName", "cuDevice", "computeMajor", "computeMinor", "smMajor", "smMinor"),
        # Blanked, not dropped: reports of nsys name them.
        *("busLocation", "uuid"),
    ),
}
_ENUM_PREFIXES = ("ENUM_CUDA_", "ENUM_CUPTI_", "ENUM_DIAGNOSTIC_", "ENUM_NSYS_EVENT_")
_ENUM_COLUMNS = ("id", "name", "label")
_REPLACED = {
    ("TARGET_INFO_GPU", "busLocation"): "''",
    ("TARGET_INFO_GPU", "uuid"): "''",
    ("DIAGNOSTIC_EVENT", "text"): "shareable_text(text)",
}
_STRING_REFERENCES = ("demangledName", "shortName", "nameId", "textId")
_KEPT_METADATA = (
    "name IN ('EXPORT_PRODUCT_NAME', 'EXPORT_PRODUCT_VERSION', 'EXPORT_PRODUCT_DATE', 'EXPORT_PLATFORM', "
    "'EXPORT_ARCH', 'EXPORT_LAZY', 'EXPORT_PARAM_LAZY') OR name LIKE 'EXPORT_SCHEMA_VERSION%'"
)
_KEPT_CAPTURE = (
    "name = 'CAPTURE_EVENT_TYPE' OR name LIKE '%COLLECT_%_TRACE' "
    "OR name LIKE '%CUDA_GRAPH_TRACE_OPTIONS:MODE'"
)
_AROUND_REQUESTS = (RangeName.LOAD, RangeName.WARM_UP, RangeName.CAPTURE)
_PROCESS = "(globalTid & ~0xFFFFFF)"


def scrub(path: Path, *, only_requests: bool = False, selector: RangeSelector | None = None) -> bytes:
    """The content of a scrubbed SQLite file; the same input gives the same bytes.

    With `only_requests` it holds CUDA calls from the start of the first request to the end of the last, the
    GPU work that they launched, and the ranges begun in that time; launchgap's load, warm-up and capture
    ranges stay too, the calls inside them do not.

    Raises:
        LaunchgapError: the trace cannot be read, has no request to cut to, or would still leak something.
    """
    with _scrubbed(path, ":memory:", only_requests, selector) as connection:
        return connection.serialize(name="clean")


def scrub_to(
    path: Path, target: Path, *, only_requests: bool = False, selector: RangeSelector | None = None
) -> None:
    """As `scrub`, into a new file, for a trace of any size; on an error a useless file may be left.

    Raises:
        LaunchgapError: as `scrub`.
        OSError: no space.
    """
    with _scrubbed(path, str(target), only_requests, selector):
        pass


@contextmanager
def _scrubbed(
    path: Path, place: str, only_requests: bool, selector: RangeSelector | None
) -> Iterator[sqlite3.Connection]:
    """A connection to the trace with the scrubbed one attached as `clean`, proven free of leaks."""
    window = _window(path, selector or RangeSelector()) if only_requests else None
    with open_database(path) as database:
        try:
            _fill(database, place, window)
            leaks = leaks_in(database.connection, recorded_names(database), "clean")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # damage may stand in SQLite's own message
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place) from error
            raise damaged(path, error) from error
        if leaks:
            raise LaunchgapError(
                f"{path}: {sum(leak.rows for leak in leaks)} texts that must not be shared would be left, "
                f"the first in {leaks[0]}; nothing was written: rename the ranges or kernels that hold them, "
                "or try --only-requests"
            )
        yield database.connection


def _fill(database: Database, place: str, window: tuple[int, int] | None) -> None:
    """Create and fill a database at a place, attached as `clean`."""
    connection = database.connection
    connection.isolation_level = None
    connection.create_function("shareable_text", 1, shareable_text, deterministic=True)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("ATTACH ? AS clean", (place,))
    # The file is new, and dropped on an error: it needs no journal.
    connection.execute("PRAGMA clean.journal_mode = OFF")
    connection.execute("PRAGMA clean.synchronous = OFF")
    conditions = _conditions(database)
    if window is not None:
        conditions |= _window_conditions(database, window)
    tables = [name for name in sorted(database.columns) if name != "StringIds" and _kept_columns(name)]
    for table in tables:
        _copy(database, table, conditions.get(table, "1"))
    _copy(database, "StringIds", f"id IN ({_references(database, tables)})")
    connection.execute("VACUUM clean")


def _kept_columns(table: str) -> tuple[str, ...]:
    return _TABLES.get(table, _ENUM_COLUMNS if table.startswith(_ENUM_PREFIXES) else ())


def _conditions(database: Database) -> dict[str, str]:
    """Which rows of a table are kept, where it is not all of them."""
    labels = "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"
    errors = f"SELECT id FROM main.{labels} WHERE label = '{DIAGNOSTIC_ERROR_LABEL}'"
    is_error = f"severity IN ({errors})" if database.has(labels) else "0"
    return {
        "DIAGNOSTIC_EVENT": f"{is_error} OR shareable_text(text) != ''",
        "EXPORT_META_DATA": _KEPT_METADATA,
        "META_DATA_EXPORT": _KEPT_METADATA,
        "META_DATA_CAPTURE": _KEPT_CAPTURE,
    }


def _copy(database: Database, table: str, condition: str) -> None:
    """Create the table's allowed part in the clean database, rows in their old order."""
    about = database.connection.execute(f'PRAGMA main.table_info("{table}")').fetchall()
    columns = [(name, kind, key) for _, name, kind, _, _, key in about if name in _kept_columns(table)]
    declared = ", ".join(
        f'"{name}" {kind}{" PRIMARY KEY" if key == 1 else ""}' for name, kind, key in columns
    )
    database.connection.execute(f'CREATE TABLE clean."{table}" ({declared})')
    values = ", ".join(_REPLACED.get((table, name), f'"{name}"') for name, _, _ in columns)
    database.connection.execute(
        f'INSERT INTO clean."{table}" SELECT {values} FROM main."{table}" WHERE {condition} ORDER BY rowid'
    )


def _references(database: Database, tables: Iterable[str]) -> str:
    """A SELECT of every string id that the clean tables use."""
    parts = [
        f'SELECT "{column}" FROM clean."{table}"'
        for table in tables
        for column in _STRING_REFERENCES
        if column in database.columns[table] and column in _kept_columns(table)
    ]
    return " UNION ".join(parts) or "SELECT NULL"


def _window(path: Path, selector: RangeSelector) -> tuple[int, int]:
    requests = select_ranges(read_trace(path).ranges, selector.name, selector.domain)
    if requests.empty:
        raise LaunchgapError(
            f"{path}: no range {selector.name!r} of domain {selector.domain!r} to cut to; "
            "leave out --only-requests, or name another range"
        )
    return int(requests["start_ns"].min()), int(requests["end_ns"].max())


def _window_conditions(database: Database, window: tuple[int, int]) -> dict[str, str]:
    """Row conditions that cut the trace to a window; launched work follows its call, not the clock."""
    first_ns, last_ns = window
    inside = f'"start" >= {first_ns} AND "start" <= {last_ns}'
    conditions = {"PROFILER_OVERHEAD": inside, "NVTX_EVENTS": _nvtx_condition(inside)}
    calls = "CUPTI_ACTIVITY_KIND_RUNTIME"
    if not database.has(calls):
        return conditions
    database.connection.execute(
        f"CREATE TEMP TABLE calls AS SELECT correlationId AS id, {_PROCESS} AS process, {inside} AS kept "
        f"FROM main.{calls}"
    )
    database.connection.execute("CREATE INDEX temp.calls_id ON calls (id, process, kept)")
    conditions[calls] = inside
    for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION"):
        call = "SELECT max(kept) FROM temp.calls WHERE id = correlationId AND process = globalPid"
        conditions[f"CUPTI_ACTIVITY_KIND_{table}"] = f"ifnull(({call}), {inside})"
    return conditions


def _nvtx_condition(inside: str) -> str:
    names = ", ".join(f"'{name}'" for name in _AROUND_REQUESTS)
    text = "ifnull(text, (SELECT value FROM main.StringIds WHERE id = textId))"
    return f"eventType = {NVTX_DOMAIN_CREATE} OR ({inside}) OR {text} IN ({names})"
