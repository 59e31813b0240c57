import sqlite3
from pathlib import Path

import pytest

from analysis import bulk, schema
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import SCHEMAS, THREAD, TraceFile

GRAPH_NODES = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
    "nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER"
)
GRAPHS = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
    "nameId INTEGER NOT NULL, graphId INTEGER, originalGraphId INTEGER, graphExecId INTEGER"
)
"""As in the schema files of nsys; CUDA_GRAPH_EVENTS holds GRAPH_NODES before 3.11 and GRAPHS from then on."""


def trace_of(path: Path, version: str = "3.20.3") -> TraceFile:
    file = TraceFile(path, version)
    file.requests((0, 100))
    file.launch("a_kernel", (10, 20), (30, 40))
    file.memcpy(41, 45, file.call("cudaMemcpyAsync_v3020", 21, 25))
    file.memset(46, 50, file.call("cudaMemsetAsync_v3020", 26, 29))
    return file


@pytest.mark.parametrize("version", SCHEMAS)
def test_every_schema_reads_alike(tmp_path: Path, version: str) -> None:
    trace = read_trace(trace_of(tmp_path / "t.sqlite", version).save())
    assert trace.export_schema == version
    assert trace.warnings == ()
    assert trace.nsys_version == "2025.3.2.0"
    assert (len(trace.kernels), len(trace.memcpys), len(trace.memsets)) == (1, 1, 1)
    assert trace.kernels["name"].tolist() == ["a_kernel"]
    assert trace.api_calls["name"].tolist()[0] == "cudaLaunchKernel_v7000"
    assert trace.ranges[["domain", "name"]].to_numpy().tolist() == [["launchgap", "request"]]


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("2.9.1", "older than 3.0, the oldest"),
        ("3.26.1", "newer than 3.25, the newest"),
        ("3.27.0", "newer than 3.25, the newest"),
        ("4.0.0", "newer than 3.25, the newest"),
        ("30.1.0", "newer than 3.25, the newest"),
        ("3", "no version number"),
        ("?", "no version number"),
        ("", "no version number"),
    ],
)
def test_schema_that_was_not_checked_is_read_with_a_warning(tmp_path: Path, version: str, told: str) -> None:
    file = trace_of(tmp_path / "t.sqlite", "3.25.0")
    file.execute(f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_SCHEMA_VERSION'")
    trace = read_trace(file.save())
    (warning,) = trace.warnings
    assert told in warning
    assert version in warning
    assert (len(trace.kernels), len(trace.api_calls), len(trace.ranges)) == (1, 3, 1)


@pytest.mark.parametrize("version", ["3.26.1", "4.0.0"])
def test_newer_schema_without_a_needed_column_is_not_guessed_at(tmp_path: Path, version: str) -> None:
    file = trace_of(tmp_path / "t.sqlite", "3.25.0")
    file.execute(f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_SCHEMA_VERSION'")
    file.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME RENAME COLUMN nameId TO functionId")
    with pytest.raises(LaunchgapError, match="table CUPTI_ACTIVITY_KIND_RUNTIME has no column nameId"):
        read_trace(file.save())


def test_newer_schema_with_more_columns_in_another_order(tmp_path: Path) -> None:
    file = trace_of(tmp_path / "t.sqlite", "3.25.0")
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    file.execute(f'CREATE TABLE copy AS SELECT 1 AS novelty, bytes, "end", start, * FROM {table}')
    file.execute(f"DROP TABLE {table}")
    file.execute(f"ALTER TABLE copy RENAME TO {table}")
    memcpys = read_trace(file.save()).memcpys
    assert memcpys[["start_ns", "end_ns", "bytes"]].to_numpy().tolist() == [[41, 45, 400]]


def test_schema_that_is_not_told_is_read(tmp_path: Path) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute("DROP TABLE META_DATA_EXPORT")
    trace = read_trace(file.save())
    assert trace.export_schema is None
    assert trace.nsys_version is None
    assert "does not tell its export schema" in trace.warnings[0]
    assert len(trace.kernels) == 1


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "bytes"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
        ("CUPTI_ACTIVITY_KIND_MEMSET", "globalPid"),
        ("NVTX_EVENTS", "text"),
        ("NVTX_EVENTS", "end"),
        ("NVTX_EVENTS", "eventType"),
        ("StringIds", "value"),
        ("META_DATA_EXPORT", "name"),
        ("DIAGNOSTIC_EVENT", "severity"),
    ],
)
def test_needed_column_that_is_missing_is_named(tmp_path: Path, table: str, column: str) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.insert("DIAGNOSTIC_EVENT", severity=1, text="all is well")
    file.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"')
    with pytest.raises(LaunchgapError, match=f"table {table} has no column {column}"):
        read_trace(file.save())


@pytest.mark.parametrize("column", ["graphNodeId", "gridX", "streamId", "correlationId", "greenContextId"])
def test_column_that_can_be_done_without(tmp_path: Path, column: str) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN "{column}"')
    assert len(read_trace(file.save()).kernels) == 1


@pytest.mark.parametrize("value", ["NULL", "'soon'", "x'00'"])
def test_hole_in_a_needed_column_is_named(tmp_path: Path, value: str) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute(f"UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET globalPid = {value}")
    with pytest.raises(LaunchgapError, match="KIND_MEMCPY has 1 rows without a number in globalPid"):
        read_trace(file.save())


def test_hole_in_the_ranges_is_named(tmp_path: Path) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute("CREATE TABLE copy AS SELECT * FROM NVTX_EVENTS")
    file.execute("DROP TABLE NVTX_EVENTS")
    file.execute("ALTER TABLE copy RENAME TO NVTX_EVENTS")
    file.execute("UPDATE NVTX_EVENTS SET start = NULL WHERE eventType = 59")
    with pytest.raises(LaunchgapError, match="NVTX_EVENTS has 1 rows without a number in start"):
        read_trace(file.save())


def test_more_rows_than_one_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "ROWS_AT_ONCE", 3)
    file = trace_of(tmp_path / "t.sqlite")
    for start in range(100, 110):
        file.launch("b_kernel", (start, start + 1), (start + 5, start + 6))
    kernels = read_trace(file.save()).kernels
    assert kernels["start_ns"].tolist() == [30, *range(105, 115)]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute("UPDATE StringIds SET value = CAST(x'6bff6b' AS TEXT) WHERE value = 'a_kernel'")
    assert read_trace(file.save()).kernels["name"].tolist() == ["k\ufffdk"]


def test_name_that_the_string_table_lacks(tmp_path: Path) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute("DELETE FROM StringIds WHERE value = 'a_kernel'")
    assert read_trace(file.save()).kernels["name"].tolist()[0].startswith("(string ")


def test_every_spec_column_exists_in_a_real_schema() -> None:
    specs = (
        schema.KERNELS,
        schema.MEMCPYS,
        schema.MEMSETS,
        schema.GRAPH_TRACES,
        schema.API_CALLS,
        schema.NVTX_EVENTS,
        schema.GRAPH_NODES,
    )
    for spec in specs:
        with sqlite3.connect(":memory:") as connection:
            connection.execute(f"CREATE TABLE t ({SCHEMAS['3.20.3'].get(spec.source, GRAPH_NODES)})")
            names = {row[1] for row in connection.execute("PRAGMA table_info(t)")}
        connection.close()
        assert {column.source for column in spec.columns} <= names


def test_creation_of_graph_nodes_in_either_table(tmp_path: Path) -> None:
    node = f"VALUES (5, 6, 1, {THREAD}, 1, 8589934620, 8589934599)"
    plain = f"VALUES (5, 6, 1, {THREAD}, 1, 8589934620, NULL)"
    old = TraceFile(tmp_path / "old.sqlite", "3.7.2")
    old.execute(f"CREATE TABLE CUDA_GRAPH_EVENTS ({GRAPH_NODES})")
    new = TraceFile(tmp_path / "new.sqlite", "3.20.3")
    new.execute(f"CREATE TABLE CUDA_GRAPH_NODE_EVENTS ({GRAPH_NODES})")
    new.execute(f"CREATE TABLE CUDA_GRAPH_EVENTS ({GRAPHS})")
    new.execute(f"INSERT INTO CUDA_GRAPH_EVENTS VALUES (1, 2, 1, {THREAD}, 1, 3, NULL, NULL)")
    for file, table in ((old, "CUDA_GRAPH_EVENTS"), (new, "CUDA_GRAPH_NODE_EVENTS")):
        file.execute(f"INSERT INTO {table} {node}")
        file.execute(f"INSERT INTO {table} {plain}")
        nodes = read_trace(file.save()).graph_nodes
        assert nodes.to_numpy().tolist() == [
            [5, 6, THREAD, 8589934620, 8589934599],
            [5, 6, THREAD, 8589934620, schema.NO_ID],
        ]


def test_graph_events_alone_tell_of_no_nodes(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", "3.20.3")
    file.execute(f"CREATE TABLE CUDA_GRAPH_EVENTS ({GRAPHS})")
    file.execute(f"INSERT INTO CUDA_GRAPH_EVENTS VALUES (1, 2, 1, {THREAD}, 1, 3, NULL, NULL)")
    assert read_trace(file.save()).graph_nodes.empty


def docstring_table() -> dict[str, dict[str, bool]]:
    """What the docstring of `analysis.schema` says that each version has, by its first cell."""
    lines = [line for line in (schema.__doc__ or "").splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    versions = [name.split()[0] for name in header[1:]]
    assert versions == [version.rpartition(".")[0] for version in SCHEMAS]
    has = {row[0]: [cell != "-" for cell in row[1:]] for row in rows}
    return {title: dict(zip(SCHEMAS, cells, strict=True)) for title, cells in has.items()}


@pytest.mark.parametrize("version", SCHEMAS)
def test_the_docstrings_table_tells_the_truth(version: str) -> None:
    tables, told = SCHEMAS[version], docstring_table()
    activity = {
        name: tables.get(f"CUPTI_ACTIVITY_KIND_{name}", "") for name in ("KERNEL", "MEMCPY", "MEMSET")
    }
    assert told["META_DATA_CAPTURE (graph trace mode)"][version] == ("META_DATA_CAPTURE" in tables)
    for columns in activity.values():
        assert told["GPU work: greenContextId"][version] == ("greenContextId" in columns)
    for table in ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "DIAGNOSTIC_EVENT"):
        assert told[table][version] == (table in tables)
    assert told["MEMCPY: copyCount (3.17.2; not read)"][version] == ("copyCount" in activity["MEMCPY"])
    assert told["KERNEL: graphId"][version] == ("graphId" in activity["KERNEL"])
    assert schema.version_warnings(version) == ()
