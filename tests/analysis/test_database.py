import gzip
import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analysis.database import open_sqlite
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import TraceFile


def small_trace(folder: Path) -> Path:
    file = TraceFile(folder / "small.sqlite")
    file.requests((0, 100))
    for start in range(0, 4000, 20):
        file.launch("a_kernel", (start, start + 5), (start + 6, start + 9))
    return file.save()


def one_line_about(path: Path) -> str:
    with pytest.raises(LaunchgapError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert ";" in message
    assert "\n" not in message
    return message


def test_missing_file(tmp_path: Path) -> None:
    assert "No such file" in one_line_about(tmp_path / "none.sqlite")
    assert "No such file" in one_line_about(tmp_path / "none.sqlite.gz")


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    assert "directory" in one_line_about(tmp_path)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", b"NSYS-REP" * 100, b"{}"])
def test_no_sqlite(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.sqlite"
    path.write_bytes(content)
    assert "no SQLite file" in one_line_about(path)
    packed = tmp_path / "no.sqlite.gz"
    packed.write_bytes(gzip.compress(content))
    assert "no SQLite file" in one_line_about(packed)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_cut_short(tmp_path: Path, share: float) -> None:
    whole = small_trace(tmp_path).read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * share)])
    message = one_line_about(path)
    assert "cut short" in message
    assert f"of {len(whole):,} bytes" in message


def test_cut_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(small_trace(tmp_path).read_bytes())
    path = tmp_path / "cut.sqlite.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert "no complete gzip file" in one_line_about(path)
    path.write_bytes(b"not gzip at all")
    assert "no complete gzip file" in one_line_about(path)


def test_overwritten_pages(tmp_path: Path) -> None:
    path = small_trace(tmp_path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    assert "damaged" in one_line_about(path)


def test_sqlite_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    assert "no export of Nsight Systems" in one_line_about(path)


def test_reading_leaves_file_and_folder_alone(tmp_path: Path) -> None:
    path = small_trace(tmp_path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    read_trace(path)
    assert [child.name for child in tmp_path.iterdir()] == ["small.sqlite"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_nothing_can_be_written_through_the_connection(tmp_path: Path) -> None:
    path = small_trace(tmp_path)
    with open_sqlite(path) as database, pytest.raises(sqlite3.OperationalError, match="readonly"):
        database.connection.execute("DELETE FROM StringIds")


def test_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "odd % name?#"
    folder.mkdir()
    path = small_trace(folder)
    folder.chmod(0o555)
    path.chmod(0o444)
    try:
        assert len(read_trace(path).kernels) == 200
        assert [child.name for child in folder.iterdir()] == [path.name]
    finally:
        folder.chmod(0o755)


def test_query_of_a_missing_table_is_told_as_damage(tmp_path: Path) -> None:
    with open_sqlite(small_trace(tmp_path)) as database, pytest.raises(LaunchgapError, match="no such table"):
        database.query("SELECT * FROM nowhere")


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_file_whose_writer_left_a_journal_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    connection.close()
    journal = path.with_name(path.name + suffix)
    journal.write_bytes(b"")
    with open_sqlite(path) as database:
        assert database.has("StringIds")
    journal.write_bytes(b"rows")
    with pytest.raises(LaunchgapError, match="still being written"), open_sqlite(path):
        pass


def test_a_folder_name_that_is_no_text_can_be_read_from(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/gr\xfcn"))
    folder.mkdir()
    path = folder / "trace.sqlite"
    with closing(sqlite3.connect(os.fsencode(path))) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    with open_sqlite(path) as database:
        assert database.has("StringIds")
