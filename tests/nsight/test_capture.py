"""A capture's three files are in place together or not at all."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contract import LaunchgapError
from nsight import capture as capture_module
from nsight.capture import capture
from nsight.errors import NsysFailed, ProgramFailed
from nsight.install import Nsys
from nsight.trace import Traced
from tests.nsight.conftest import FakeNsys, processes_with, read_json

MakeTraced = Callable[..., Traced]
NAMES = ["graph.node.json", "graph.node.nsys-rep", "graph.node.sqlite"]

# A whole nsys in shell: profile runs the program and writes a report, export writes a SQLite file.
WORKING = f"""
if [ -n "$report" ]; then
  touch "$report"
  record=$(dirname "$report")/trace.json
  printf '{{"schema_version": 1, "kind": "trace", "requests": 1}}' > "$record"
else
  touch "$(dirname "$0")/exported"; cd "$LAUNCHGAP_CAPTURE"
  {sys.executable} -c 'import sqlite3; sqlite3.connect("trace.sqlite").execute("CREATE TABLE StringIds(id)")'
fi
"""


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.nsys
def test_three_files_in_a_folder_with_an_odd_name(
    real_nsys: Nsys, traced: MakeTraced, tmp_path: Path
) -> None:
    output = tmp_path / 'it\'s 50% "done" & more' / "graph.node"
    record = capture(real_nsys, traced("ok"), output, os.environ)
    assert _files(output.parent) == NAMES
    assert record == read_json(output.with_name("graph.node.json"))
    assert record["command"] == ["ok"]
    assert record["trace_mode"] == "node"
    assert record["nsys_version"] == real_nsys.version_text
    assert record["nsys_command"][:2] == ["nsys", "profile"]
    assert str(tmp_path) not in " ".join(record["nsys_command"])
    assert (output.parent / "graph.node.sqlite").read_bytes()[:15] == b"SQLite format 3"
    assert (output.parent / "graph.node.sqlite").stat().st_mode & 0o777 == 0o644


@pytest.mark.nsys
def test_program_without_a_record(real_nsys: Nsys, traced: MakeTraced, tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match="the traced program wrote none; it must take --record FILE"):
        capture(real_nsys, traced("silent"), tmp_path / "graph.node", os.environ)
    assert _files(tmp_path) == ["program.py"]


def test_failed_capture_leaves_the_old_one(fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path) -> None:
    output = tmp_path / "traces/graph.node"
    capture(fake_nsys(WORKING), traced("ok"), output, os.environ)
    before = {name: (output.parent / name).stat().st_mtime_ns for name in NAMES}
    with pytest.raises(ProgramFailed):
        capture(fake_nsys('touch "$report"; exit 4'), traced("ok"), output, os.environ)
    assert {name: (output.parent / name).stat().st_mtime_ns for name in _files(output.parent)} == before


def test_the_record_says_that_nsys_was_not_confined(
    fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path
) -> None:
    """It shows no GPU work confined, so it is tried again; this fake one shows none either."""
    program = replace(traced("ok"), trace_cuda=True)
    told = capture(fake_nsys(WORKING), program, tmp_path / "graph.node", os.environ)
    assert told["unconfined_because"] == "the trace shows no GPU work"
    assert "unconfined_because" not in capture(
        fake_nsys(WORKING), traced("ok"), tmp_path / "graph.node", os.environ
    )


def test_failed_move_leaves_nothing(
    fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "traces/graph.node"
    replace = Path.replace

    def refuse_sqlite(self: Path, target: Path) -> Path:
        if target.suffix == ".sqlite":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse_sqlite)
    with pytest.raises(
        LaunchgapError, match=r"cannot be written \(No space left on device\); give a writable"
    ):
        capture(fake_nsys(WORKING), traced("ok"), output, os.environ)
    assert _files(output.parent) == []


@pytest.mark.parametrize("where", ["/proc/traces/graph.node", "{tmp_path}/program.py/graph.node"])
def test_destination_that_cannot_be_written(
    fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path, where: str
) -> None:
    output = Path(where.format(tmp_path=tmp_path))
    with pytest.raises(LaunchgapError, match=r"cannot be written .*; give a writable folder"):
        capture(fake_nsys(WORKING), traced("ok"), output, os.environ)


def test_leftovers_of_a_killed_run_go(fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    dead, other = traces / ".graph.node.capture-dead", traces / ".graph.graph.capture-other"
    for folder in (dead, other):
        folder.mkdir(parents=True)
        (folder / "trace.nsys-rep").touch()
    running = subprocess.Popen(["sleep", "600"], env={"LAUNCHGAP_CAPTURE": str(dead)})
    # Popen returns when the program is being loaded, a moment before its environment can be read.
    while str(dead).encode() not in Path(f"/proc/{running.pid}/environ").read_bytes():
        assert running.poll() is None
    try:
        capture(fake_nsys(WORKING), traced("ok"), traces / "graph.node", os.environ)
        assert running.wait(timeout=30) == -9
    finally:
        running.kill()
    # Another trace's folder may belong to a capture that runs right now.
    assert _files(traces) == [other.name, *NAMES]


def test_two_captures_of_one_trace(
    fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "_LOCK_WAIT_S", 0.2)
    with (tmp_path / ".graph.node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LaunchgapError, match="another capture is writing it; wait"):
            capture(fake_nsys(WORKING), traced("ok"), tmp_path / "graph.node", os.environ)
    capture(fake_nsys(WORKING), traced("ok"), tmp_path / "graph.node", os.environ)


def test_nothing_runs_after_a_failure(fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path) -> None:
    with pytest.raises(NsysFailed):
        capture(fake_nsys("sleep 600 & exit 1"), traced("ok"), tmp_path / "graph.node", os.environ)
    assert processes_with(f"LAUNCHGAP_CAPTURE={tmp_path}") == []


def test_record_of_another_kind(fake_nsys: FakeNsys, traced: MakeTraced, tmp_path: Path) -> None:
    nsys = fake_nsys(WORKING.replace('"trace", "req', '"latency", "req'))
    with pytest.raises(LaunchgapError, match="not a trace record"):
        capture(nsys, traced("ok"), tmp_path / "traces/graph.node", os.environ)
    assert _files(tmp_path / "traces") == []
