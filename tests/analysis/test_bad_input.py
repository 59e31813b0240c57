"""What `read_trace` makes of files and contents that no good capture has."""

import gzip
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from analysis.attribute import RangeSelector, attribute, count_by_request
from analysis.findings import inspect
from analysis.leaks import find_leaks
from analysis.scrub import scrub
from analysis.summaries import api_summary, kernel_summary
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import PROCESS, SCHEMAS, THREAD, TraceFile

RefusalOf = Callable[[Path], str]

READERS: dict[str, Callable[[Path], object]] = {"read": read_trace, "scrub": scrub, "find leaks": find_leaks}
HOSTILE = {
    "HTML": "<script>alert(1)</script>&amp;\"'",
    "control characters": "a\x00b\x07c\rd\ne\x7f",
    "terminal escapes": "\x1b[2J\x1b]0;owned\x07",
    "bidirectional": "\u202eevil\u2066",
    "long": "k" * 100_000,
    "SQL": "'); DROP TABLE StringIds; --",
    "empty": "",
    "spaces": " \t\n ",
    "astral": "\U0001f600" * 10,
}


def small(folder: Path) -> TraceFile:
    file = TraceFile(folder / "t.sqlite")
    file.requests((0, 100))
    for start in range(0, 4_000, 20):
        file.launch("kernel", (start, start + 5), (start + 6, start + 9))
    return file


@pytest.fixture(params=READERS)
def refusal_of(request: pytest.FixtureRequest) -> RefusalOf:
    def refusal(path: Path) -> str:
        with pytest.raises(LaunchgapError) as caught:
            READERS[request.param](path)
        message = str(caught.value)
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        return message

    return refusal


@pytest.mark.parametrize("name", ["t.sqlite", "t.sqlite.gz"])
@pytest.mark.parametrize("content", [b"", b"{}", b"no trace " * 1_000, b"SQLite format 3\x00"])
def test_no_database(tmp_path: Path, refusal_of: RefusalOf, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert "no SQLite file" in refusal_of(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_database(tmp_path: Path, refusal_of: RefusalOf, share: float) -> None:
    path = small(tmp_path).save()
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert "cut short" in refusal_of(path)


def test_missing_file_and_folder(tmp_path: Path, refusal_of: RefusalOf) -> None:
    assert "No such file" in refusal_of(tmp_path / "none.sqlite")
    assert "directory" in refusal_of(tmp_path)


def test_locked_database_is_read(tmp_path: Path) -> None:
    path = small(tmp_path).save()
    before = path.read_bytes()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert len(read_trace(path).kernels) == 200
        assert len(read_trace(path).ranges) == 1
        scrub(path)
        find_leaks(path)
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert path.read_bytes() == before


def test_read_only_file_in_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "shut"
    folder.mkdir()
    path = small(folder).save()
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        for reader in READERS.values():
            reader(path)
        assert [child.name for child in folder.iterdir()] == [path.name]
    finally:
        folder.chmod(0o755)


def test_no_cuda_tables(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    trace = read_trace(file.save())
    assert not trace.has_gpu_work
    assert kernel_summary(trace).empty
    assert api_summary(trace).empty
    found = attribute(trace, RangeSelector())
    assert len(found.requests) == 1
    assert found.operations.empty
    assert inspect(trace)[0].what == "no CUDA activity recorded"


def test_no_nvtx(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("kernel", (10, 20), (30, 40))
    trace = read_trace(file.save())
    assert trace.ranges.empty
    assert kernel_summary(trace)["instances"].tolist() == [1]
    assert attribute(trace, RangeSelector()).requests.empty
    assert [finding.what for finding in inspect(trace)] == ["no NVTX ranges"]


def test_range_without_gpu_work(tmp_path: Path) -> None:
    file = small(tmp_path)
    file.range("request", 10_000, 10_100)
    found = attribute(read_trace(file.save()), RangeSelector())
    assert count_by_request(found.kernels, 2).tolist() == [5, 0]
    assert count_by_request(found.launches, 2).tolist() == [5, 0]


def test_no_replays(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 100))
    file.launch("kernel", (10, 20), (30, 40))
    trace = read_trace(file.save())
    assert trace.graph_launches.empty
    assert inspect(trace) == ()


def test_nothing_at_all(tmp_path: Path) -> None:
    trace = read_trace(TraceFile(tmp_path / "t.sqlite").save())
    assert attribute(trace, RangeSelector()).requests.empty
    assert inspect(trace)[0].severity == "fatal"


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_read_as_they_are(tmp_path: Path, schema: str, name: str) -> None:
    file = TraceFile(tmp_path / "t.sqlite", schema)
    file.domain(name, 1)
    file.range(name, 0, 100)
    file.range(name, 200, 300, registered=False)
    file.launch(name, (10, 20), (30, 40))
    file.kernel(name, 50, 60, file.call(name, 41, 42))
    trace = read_trace(file.save())
    assert trace.ranges["name"].tolist() == [name, name]
    assert trace.ranges["domain"].tolist() == [name, name]
    assert trace.kernels["name"].tolist() == [name, name]
    assert kernel_summary(trace)["name"].tolist() == [name]
    assert len(attribute(trace, RangeSelector(name, name)).kernels) == 2
    assert all(finding.sentence.isprintable() and len(finding.sentence) < 500 for finding in inspect(trace))
    assert all(len(line) < 200 for line in find_leaks(file.path))


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.domain("launchgap", 1)
    file.range("request", 0, 100)
    file.launch("kernel", (10, 20), (30, 40))
    file.execute("UPDATE StringIds SET value = CAST(x'6bff80' AS TEXT) WHERE value = 'kernel'")
    file.execute("UPDATE NVTX_EVENTS SET text = CAST(x'c3' AS TEXT), textId = NULL WHERE eventType = 59")
    path = file.save()
    trace = read_trace(path)
    assert trace.kernels["name"].tolist() == ["k\ufffd\ufffd"]
    assert trace.ranges["name"].tolist() == ["\ufffd"]
    clean = tmp_path / "clean.sqlite"
    clean.write_bytes(scrub(path))
    assert read_trace(clean).kernels["name"].tolist() == ["k\ufffd\ufffd"]
    assert find_leaks(clean) == []


def test_ids_that_are_null_where_the_table_says_they_cannot_be(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("kernel", (10, 20), (30, 40))
    file.execute("ALTER TABLE StringIds RENAME TO Whole")
    file.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    file.execute("INSERT INTO StringIds SELECT * FROM Whole")
    file.execute("INSERT INTO StringIds VALUES (NULL, 'lost'), ('x', 'text'), (77, NULL)")
    file.execute("DROP TABLE Whole")
    path = file.save()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")  # as a flipped byte does it
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'id INTEGER', 'id INTEGER NOT NULL') "
            "WHERE name = 'StringIds'"
        )
    assert read_trace(path).kernels["name"].tolist() == ["kernel"]


def test_two_processes_with_equal_correlation_ids(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    for shift in (0, 1 << 24):
        file.domain("launchgap", 1, process=PROCESS + shift)
        file.range("request", 0, 100, thread=THREAD + shift)
        for number in (1, 2):
            call = file.call(
                "cudaLaunchKernel", 10 * number, 10 * number + 5, thread=THREAD + shift, correlation=number
            )
            file.kernel(f"of {shift >> 24}", 50 + number, 60, call, globalPid=PROCESS + shift)
    found = attribute(read_trace(file.save()), RangeSelector())
    assert found.kernels.groupby("request")["name"].agg(list).tolist() == [["of 0"] * 2, ["of 1"] * 2]
    assert found.unlaunched == 0
