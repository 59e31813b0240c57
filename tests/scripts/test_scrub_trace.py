import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.leaks import find_leaks
from analysis.trace import read_trace
from tests.analysis.trace_file import EXAMPLES, TraceFile

ROOT = Path(__file__).resolve().parents[2]
INPUT = EXAMPLES["graph.graph"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/scrub_trace.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_scrubs_a_file(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.sqlite"
    done = run(INPUT, out)
    assert done.returncode == 0
    assert len(read_trace(out).kernels) == 20
    assert find_leaks(out) == []


def test_packs_by_name_and_repeatably(tmp_path: Path) -> None:
    cut = ("--only-requests", "--range-name", "forward", "--range-domain", "")
    for name in ("one.sqlite.gz", "two.sqlite.gz"):
        assert run(INPUT, tmp_path / name, *cut).returncode == 0
    one, two = ((tmp_path / name).read_bytes() for name in ("one.sqlite.gz", "two.sqlite.gz"))
    assert one == two
    assert gzip.decompress(one).startswith(b"SQLite format 3")
    assert len(read_trace(tmp_path / "one.sqlite.gz").graph_launches) == 20


def test_leaking_trace_is_refused_and_no_file_left(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "in.sqlite")
    file.requests((0, 100))
    file.range("reading /home/somebody/model", 10, 20)
    line = refusal(run(file.save(), tmp_path / "out.sqlite"))
    assert "must not be shared" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.sqlite"]


def test_input_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "in.sqlite.gz"
    path.write_bytes(INPUT.read_bytes())
    assert "the original is not overwritten" in refusal(run(path, path))
    assert path.read_bytes() == INPUT.read_bytes()


@pytest.mark.parametrize("content", [None, b"", b"no trace"])
def test_no_trace_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "in.sqlite"
    if content is not None:
        path.write_bytes(content)
    line = refusal(run(path, tmp_path / "out.sqlite"))
    assert str(path) in line
    assert not (tmp_path / "out.sqlite").exists()


def test_no_request_to_cut_to_is_one_line(tmp_path: Path) -> None:
    line = refusal(run(INPUT, tmp_path / "out.sqlite", "--only-requests"))
    assert "no range 'request' of domain 'launchgap' to cut to" in line
