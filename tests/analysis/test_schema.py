import sqlite3
from pathlib import Path

import pytest

from analysis import schema
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import SCHEMAS, TraceFile


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
    assert trace.nsys_version == "2025.3.2.0"
    assert (len(trace.kernels), len(trace.memcpys), len(trace.memsets)) == (1, 1, 1)
    assert trace.kernels["name"].tolist() == ["a_kernel"]
    assert trace.api_calls["name"].tolist()[0] == "cudaLaunchKernel_v7000"
    assert trace.ranges[["domain", "name"]].to_numpy().tolist() == [["launchgap", "request"]]


@pytest.mark.parametrize("version", ["2.9.1", "4.0.0", "30.1.0", "?"])
def test_other_major_schema_is_refused_by_number(tmp_path: Path, version: str) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute(f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_SCHEMA_VERSION'")
    with pytest.raises(LaunchgapError, match=r"export schema .* is not understood, only 3\.x") as caught:
        read_trace(file.save())
    assert version in str(caught.value)


def test_schema_that_is_not_told_is_read(tmp_path: Path) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute("DROP TABLE META_DATA_EXPORT")
    trace = read_trace(file.save())
    assert trace.export_schema is None
    assert trace.nsys_version is None
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
    ],
)
def test_needed_column_that_is_missing_is_named(tmp_path: Path, table: str, column: str) -> None:
    file = trace_of(tmp_path / "t.sqlite")
    file.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"')
    with pytest.raises(LaunchgapError, match=f"table {table} has no column {column}"):
        read_trace(file.save())


@pytest.mark.parametrize("column", ["graphNodeId", "gridX", "streamId", "correlationId"])
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
    monkeypatch.setattr(schema, "_ROWS_AT_ONCE", 3)
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
    )
    for spec in specs:
        with sqlite3.connect(":memory:") as connection:
            connection.execute(f"CREATE TABLE t ({SCHEMAS['3.20.3'][spec.source]})")
            names = {row[1] for row in connection.execute("PRAGMA table_info(t)")}
        connection.close()
        assert {column.source for column in spec.columns} <= names
