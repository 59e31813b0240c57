import getpass
import gzip
import socket
import sqlite3
from pathlib import Path

import pytest

from analysis.database import open_sqlite
from analysis.leaks import find_leaks, leaks_in, recorded_names
from contract import LaunchgapError
from tests.analysis.trace_file import TraceFile


def leaks_of(text: str | bytes, *names: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (number INTEGER, other)")
    connection.execute("INSERT INTO t VALUES (1, ?)", (text,))
    found = [str(leak) for leak in leaks_in(connection, names)]
    connection.close()
    return found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("API_TOKEN=abc123", "environment variable"),
        ("SHELL=/bin/bash\x00HOME=/root", "environment variable"),
        ("see /home/someone/model.py", "path"),
        ("/opt", "path"),
        ("'/usr/lib/x.so'", "path"),
        ("file=/tmp/x", "path"),
        ("C:\\Users\\someone", "path"),
        ("~/.cache", "path"),
        ("file:///srv/x", "path"),
        ("GPU-3f1c2b4a-0000-1111-2222-0123456789ab", "identifier"),
        ("3F1C2B4A-0000-1111-2222-0123456789AB", "identifier"),
        (b"\x08\x00/etc/hosts", "path"),
        ("password=hunter2", "secret"),
        ("api_key: 8aa", "secret"),
        ("ghp_abcdefghij", "secret"),
        ("sk-proj-abcdefgh", "secret"),
        ("AKIAABCDEFGHIJKL", "secret"),
        ("xoxb-1234", "secret"),
        ("hf_abcdefghijkl", "secret"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIi", "secret"),
        ("postgres://u:pw@host/db", "secret"),
        ("bob@corp.example", "address"),
        ("10.11.12.13", "address"),
        ("https://git.corp/x", "address"),
    ],
)
def test_what_gives_something_away(text: str | bytes, kind: str) -> None:
    (found,) = leaks_of(text)
    assert found.startswith(f"t.other: {kind}: 1 rows, such as ")


@pytest.mark.parametrize(
    "text",
    [
        "void at::native::elementwise_kernel<(int)128, at::F::operator ()() const::[lambda()]>(int, T3)",
        "T at::operator/(T1, T2)",
        "operator/=<float>",
        "a == b, N=4, a=b, x86_64/linux, 1/2, text/html",
        "triton_poi_fused_add_mul_0",
        "2025.3.2.0",
        "NVIDIA H200",
        "forward pass, layer 3/12",
        "token=3",
        "token: decode",
        "cuda 10.1.105",
        "12.4.1.3",
        "task-1234567890",
        "",
    ],
)
def test_what_is_harmless(text: str) -> None:
    assert leaks_of(text, "vm") == []


def test_names_of_host_and_user() -> None:
    assert leaks_of("someone", "someone")
    assert leaks_of("made by someone.", "someone")
    assert leaks_of("vm", "vm")
    assert leaks_of("the vm of someone", "vm", "") == []
    assert leaks_of("awesomeone", "someone") == []


def test_file_is_searched_for_this_host_and_user(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.insert("META_DATA_EXPORT", name="EXPORT_HOST", value=socket.gethostname())
    file.range(getpass.getuser(), 0, 10)
    file.range("colleague", 0, 10, registered=False)
    path = file.save()
    found = find_leaks(path, ["colleague"])
    assert {line.split(":")[0] for line in found} == {
        *("META_DATA_EXPORT.value", "StringIds.value", "NVTX_EVENTS.text")
    }
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert find_leaks(packed, ["colleague"]) == found


def test_rows_are_counted_by_column_and_kind() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "odd ""table" ("the ""column")')
    texts = ["/home/one", "/home/one", "/home/two", "KEY=value", "harmless"]
    connection.executemany('INSERT INTO "odd ""table" VALUES (?)', [(text,) for text in texts])
    found = {leak.kind: (leak.table, leak.column, leak.rows) for leak in leaks_in(connection, ())}
    connection.close()
    assert found == {
        "path": ('odd "table', 'the "column', 3),
        "environment variable": ('odd "table', 'the "column', 1),
    }


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("hunter2", "TOKEN=hunter2", "'TOKEN=…'"),
        ("/home/somebody", "/home/somebody/x", "'/ho…'"),
        ("/ab", "in /ab", "'/…'"),
        ("3f1c2b4a-0000-1111-2222-0123456789ab", "GPU-3f1c2b4a-0000-1111-2222-0123456789ab", "'3f1…'"),
        ("somebody", "of somebody", "'som…'"),
        ("x", "x", "'…'"),
    ],
)
def test_no_secret_is_printed_in_full(secret: str, text: str, shown: str) -> None:
    (found,) = leaks_of(text, "somebody", "x")
    example = found.split("such as ")[1]
    assert example == shown
    assert secret not in example


def test_names_are_taken_from_the_trace_itself(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.insert("META_DATA_EXPORT", name="EXPORT_HOST", value="the-host")
    file.insert("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="another-host")
    file.string("SHELL=/bin/sh\x00USER=colleague\x00HOSTNAME=third-host")
    file.string("LOGNAME=root")
    for name in ("run of colleague", "on another-host", "the-host", "root of a number", "third-host:1"):
        file.range(name, 0, 10, registered=False)
    with open_sqlite(file.save()) as database:
        assert recorded_names(database) - {""} == {"the-host", "another-host", "third-host", "colleague"}
    named = [line for line in find_leaks(file.path) if "NVTX_EVENTS.text: name" in line]
    rows = 4 + (getpass.getuser() == "root")
    assert [line.split(": ")[2].split(",")[0] for line in named] == [f"{rows} rows"]


def test_deleted_rows_are_still_in_the_file(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    for number in range(2_000):
        file.range(f"TOKEN=hunter{number}", 0, 10, registered=False)
    file.execute("COMMIT")
    file.execute("PRAGMA secure_delete = OFF")
    file.execute("DELETE FROM NVTX_EVENTS")
    path = file.save()
    assert b"hunter1" in path.read_bytes()
    (found,) = find_leaks(path)
    assert found.startswith("(file).(unused pages): deleted rows: ")


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match="cannot be read"):
        find_leaks(tmp_path / "none.sqlite")
