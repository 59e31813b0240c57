import getpass
import gzip
import socket
import sqlite3
from pathlib import Path

import pytest

from analysis.leaks import find_leaks, leaks_in
from contract import LaunchgapError
from tests.analysis.trace_file import TraceFile


def leaks_of(text: str | bytes, *names: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (number INTEGER, other)")
    connection.execute("INSERT INTO t VALUES (1, ?)", (text,))
    found = leaks_in(connection, names)
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
    ],
)
def test_what_gives_something_away(text: str | bytes, kind: str) -> None:
    (found,) = leaks_of(text)
    assert found.startswith(f"t.other: {kind}: ")


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


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match="cannot be read"):
        find_leaks(tmp_path / "none.sqlite")
