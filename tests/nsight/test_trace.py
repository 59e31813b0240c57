"""What nsys and the traced program can do wrong, told apart. Real nsys where it can be made to do it."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from contract import LaunchgapError
from nsight.errors import ImporterBroken, NsysFailed, NsysTimeout, ProgramFailed
from nsight.install import SIDE_BY_SIDE_SINCE, Nsys
from nsight.lease import LOCKS_VARIABLE, Device, take
from nsight.trace import Traced, record_trace
from tests.in_process import ROOT
from tests.nsight.conftest import FakeNsys, processes_with

MakeTraced = Callable[..., Traced]


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def broken_nsys(real_nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> Nsys:
    """The real nsys without the host folder beside it: its importer is not found."""
    target = real_nsys.path.resolve().parent
    copy = tmp_path_factory.mktemp("broken") / target.name
    try:
        shutil.copytree(target, copy, copy_function=os.link, symlinks=True)
    except (OSError, shutil.Error):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(target, copy, symlinks=True)
    link = copy.with_name("nsys")
    link.symlink_to(copy / "nsys")
    return replace(real_nsys, path=link)


@pytest.mark.nsys
def test_a_trace(real_nsys: Nsys, traced: MakeTraced, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    environ = {**os.environ, "HF_TOKEN": "hf_secret"}
    recorded = record_trace(real_nsys, traced("ok", "--record", str(folder / "r.json")), folder, environ)
    sqlite = recorded.sqlite
    assert (folder / "trace.nsys-rep").exists()
    with closing(sqlite3.connect(sqlite)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId "
            "WHERE COALESCE(e.text, s.value) = 'request'"
        ).fetchone()
    assert count == 1
    # nsys's progress bars are no log, and what it stores of the environment holds no secret.
    told = [re.sub(r"\d+\.\d", "N", record.message) for record in caplog.records]
    told = [line for line in told if not line.startswith("waiting: another capture")]  # of another test
    assert told == ["hello from the program", "nsys profile took N s", "nsys export took N s"]
    assert b"hf_secret" not in (folder / "trace.nsys-rep").read_bytes()
    assert b"hf_secret" not in sqlite.read_bytes()


@pytest.mark.nsys
def test_program_that_fails(real_nsys: Nsys, traced: MakeTraced, folder: Path) -> None:
    with pytest.raises(ProgramFailed, match="exit code 3, 'the device ran out of patience'") as caught:
        record_trace(real_nsys, traced("fail", "--record", "x"), folder, os.environ)
    assert caught.value.exit_code == 3


@pytest.mark.nsys
def test_program_that_is_missing(real_nsys: Nsys, traced: MakeTraced, folder: Path) -> None:
    missing = replace(traced(), program=("/absent/program",))
    with pytest.raises(NsysFailed, match="No such file or directory: /absent/program"):
        record_trace(real_nsys, missing, folder, os.environ)


@pytest.mark.nsys
def test_program_that_hangs(
    real_nsys: Nsys, traced: MakeTraced, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hanging = traced("hang", str(folder / "pid"), "--record", str(folder / "record"), timeout_s=4)
    with pytest.raises(NsysTimeout, match="not done after 4 s, so it and its program were ended"):
        record_trace(real_nsys, hanging, folder, os.environ)
    assert (folder / "pid").exists()
    # nsys, its agent, the program, and the child that the program started without the mark.
    assert processes_with(str(folder)) == []
    assert processes_with("sleep\0600") == []


@pytest.mark.nsys
def test_importer_that_is_missing(broken_nsys: Nsys, traced: MakeTraced, folder: Path) -> None:
    with pytest.raises(ImporterBroken, match=re.escape("on Debian link the host folder")):
        record_trace(broken_nsys, traced("ok", "--record", str(folder / "r.json")), folder, os.environ)


@pytest.mark.parametrize(
    ("commands", "error", "message"),
    [
        (
            'echo "unrecognised option" >&2; echo "Try \'nsys --help\'" >&2; exit 1',
            NsysFailed,
            "'unrecognised option'",
        ),
        ("exit 1", NsysFailed, "exit code 1, it said nothing"),
        ("kill -KILL $$", NsysFailed, r"exit code 137 \(SIGKILL\), it said nothing"),
        ("true", NsysFailed, "wrote no report, it said nothing; with CUDA .* cudaProfilerStart"),
        ('touch "${report%.nsys-rep}.qdstrm"', ImporterBroken, "only a .qdstrm is left"),
        ('touch "${report%.nsys-rep}.qdstrm"; exit 5', ImporterBroken, "only a .qdstrm is left"),
        ('touch "$report"; exit 6', ProgramFailed, "exit code 6"),
        (
            'echo "Generated:"; echo "ValueError: no" >&2; exit 1',
            ProgramFailed,
            "exit code 1, 'ValueError: no'",
        ),
        ('[ -z "$report" ] || touch "$report"', NsysFailed, "nsys export: it said nothing"),
    ],
)
def test_what_nsys_can_do_wrong(
    fake_nsys: FakeNsys,
    traced: MakeTraced,
    folder: Path,
    commands: str,
    error: type[LaunchgapError],
    message: str,
) -> None:
    with pytest.raises(error, match=message) as caught:
        record_trace(fake_nsys(commands), traced("ok"), folder, os.environ)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("said", "tries", "error"),
    [
        ("[tag_message*] = Local Endpoint is not available.", 2, "Local Endpoint"),
        ("Agent launcher failed.", 2, "Agent launcher failed"),
        ("[boost::errinfo_api_function_*] = sem_open", 2, "sem_open"),
        ("End of file", 2, "End of file"),
        ("EOFError: End of file in a program", 1, "EOFError"),
        ("unrecognised option", 1, "unrecognised option"),
    ],
)
def test_an_agent_that_was_not_found_is_looked_for_once_more(
    fake_nsys: FakeNsys, traced: MakeTraced, folder: Path, said: str, tries: int, error: str
) -> None:
    # A stand-in, since the real nsys fails like this by chance alone.
    nsys = fake_nsys(f'echo try >> "{folder.parent}/tries"; echo "{said}" >&2; exit 1')
    with pytest.raises(NsysFailed, match=error):
        record_trace(nsys, traced("ok"), folder, os.environ)
    assert (folder.parent / "tries").read_text().split() == ["try"] * tries


CAPTURE = """
import logging, os, sys, time
from pathlib import Path
from contract import TraceMode
from nsight.install import find_nsys
from nsight.trace import Traced, record_trace
logging.basicConfig(format="%(message)s", level=logging.INFO)
folder, nsys = Path(sys.argv[1]), find_nsys(os.environ)
print("ready", flush=True)
while not (folder.parent / "go").exists():
    time.sleep(0.001)
program = (sys.executable, "-c", "import time; time.sleep(0.2)")
record_trace(nsys, Traced(program, TraceMode.NODE, False, 60.0), folder, os.environ)
"""


@pytest.mark.nsys
def test_captures_that_start_at_once_all_give_a_trace(real_nsys: Nsys, tmp_path: Path) -> None:
    # Of two at a time of nsys 2022.4, whose starts are that close, every second pair or so gave none.
    folders = [tmp_path / str(number) for number in range(3)]
    running = []
    for folder in folders:
        folder.mkdir()
        command, pipe = [sys.executable, "-c", CAPTURE, str(folder)], subprocess.PIPE
        # With the host's own locks: captures of other tests are kept out as well.
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True))
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    logs = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], logs
    assert all((folder / "trace.sqlite").exists() for folder in folders)
    waited = sum("waiting: another capture runs" in log for log in logs)
    assert waited == 0 if real_nsys.captures_side_by_side else waited >= 2


@pytest.fixture
def old_nsys(fake_nsys: FakeNsys) -> Nsys:
    """A stand-in for an nsys that needs to be alone, which says so and fails."""
    nsys = fake_nsys('echo "began" >&2; exit 1')
    return replace(nsys, version=(2022, 4, 2), version_text="2022.4.2.1-df9881f")


def _hold(locks: Path) -> int:
    locks.mkdir()
    return take([Device("", f"nsys-{os.uname().nodename}")], locks).descriptor


def test_the_wait_for_another_capture_is_told_and_is_none_of_its_time(
    old_nsys: Nsys, traced: MakeTraced, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    held, begin = _hold(folder.parent / "locks"), time.monotonic()
    environ = {**os.environ, LOCKS_VARIABLE: str(folder.parent / "locks")}
    freed: list[float] = []

    def may_go_on() -> bool:
        if not freed and time.monotonic() > begin + 3:
            os.close(held)
            freed.append(time.monotonic())
        return True

    waits = replace(traced("ok", timeout_s=2.5), may_go_on=may_go_on)
    with pytest.raises(NsysFailed, match="began"):
        record_trace(old_nsys, waits, folder, environ)
    assert freed
    told = [line for line in caplog.messages if line.startswith("waiting: ")]
    assert told == [
        "waiting: another capture runs, and nsys 2022.4.2.1-df9881f can lose one of two at a time"
    ]
    # Its end, of whatever kind, frees the lock.
    os.close(take([Device("", f"nsys-{os.uname().nodename}")], folder.parent / "locks").descriptor)


def test_a_capture_that_waits_ends_with_its_starter_and_a_newer_nsys_waits_for_none(
    old_nsys: Nsys, traced: MakeTraced, folder: Path
) -> None:
    held = _hold(folder.parent / "locks")
    environ = {**os.environ, LOCKS_VARIABLE: str(folder.parent / "locks")}
    with pytest.raises(LaunchgapError, match="whoever started this is gone, so it waits no longer"):
        record_trace(old_nsys, replace(traced("ok"), may_go_on=lambda: False), folder, environ)
    with pytest.raises(NsysFailed, match="began"):
        record_trace(replace(old_nsys, version=SIDE_BY_SIDE_SINCE), traced("ok"), folder, environ)
    os.close(held)


def test_export_that_fails(fake_nsys: FakeNsys, traced: MakeTraced, folder: Path) -> None:
    nsys = fake_nsys('[ -n "$report" ] && touch "$report" || { echo "schema is too new" >&2; exit 1; }')
    with pytest.raises(NsysFailed, match="nsys export: 'schema is too new'"):
        record_trace(nsys, traced("ok"), folder, os.environ)


def test_nsys_that_fails_on_a_full_disk(
    fake_nsys: FakeNsys, traced: MakeTraced, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(2**40, 2**40, 40_000))
    with pytest.raises(NsysFailed, match=r"is full \(39 KiB left\); free some"):
        record_trace(fake_nsys("kill -SEGV $$"), traced("ok"), folder, os.environ)


def test_nsys_that_hangs(fake_nsys: FakeNsys, traced: MakeTraced, folder: Path) -> None:
    with pytest.raises(NsysTimeout, match=r"nsys profile: not done after 0\.5 s"):
        record_trace(fake_nsys("sleep 600"), traced("ok", timeout_s=0.5), folder, os.environ)
    assert processes_with(str(folder)) == []


def test_nsys_that_vanished(fake_nsys: FakeNsys, traced: MakeTraced, folder: Path) -> None:
    nsys = fake_nsys("true")
    nsys.path.unlink()
    with pytest.raises(NsysFailed, match="does not start"):
        record_trace(nsys, traced("ok"), folder, os.environ)


def test_starter_that_is_gone(fake_nsys: FakeNsys, traced: MakeTraced, folder: Path) -> None:
    orphaned = replace(traced("ok"), may_go_on=lambda: False)
    with pytest.raises(LaunchgapError, match="ended early because"):
        record_trace(fake_nsys("sleep 600"), orphaned, folder, os.environ)
    assert processes_with(str(folder)) == []


GPU_TABLE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

MAKE_TABLE = """
import sqlite3, sys
path, table, rows = sys.argv[1:]
connection = sqlite3.connect(path)
connection.execute(f"CREATE TABLE {table} (start)")
connection.executemany(f"INSERT INTO {table} VALUES (?)", [(row,) for row in range(int(rows))])
connection.commit()
"""


@pytest.mark.parametrize(
    ("confined_does", "because"),
    [
        (f"made {GPU_TABLE} 1", None),
        (f"made {GPU_TABLE} 0", "the trace shows no GPU work"),
        ("made NVTX_EVENTS 1", "the trace shows no GPU work"),
        ("echo CUDA cannot be seen >&2; exit 1", "nsys profile: exit code 1, 'CUDA cannot be seen'"),
    ],
)
def test_on_a_gpu_nsys_is_confined_unless_nothing_comes_of_it(
    fake_nsys: FakeNsys,
    traced: MakeTraced,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    confined_does: str,
    because: str | None,
) -> None:
    """A stand-in for nsys, which records no CUDA without a GPU; it looks whether it is confined."""
    network = Path("/proc/self/ns/net").readlink()
    make = folder.parent / "make.py"
    make.write_text(MAKE_TABLE)
    nsys = fake_nsys(f"""
        [ -n "$report" ] || exit 0  # the export: it is there already
        made() {{
            touch "$report"; "{sys.executable}" "{make}" "${{report%.nsys-rep}}.sqlite" "$@"; exit
        }}
        if [ "$(readlink /proc/self/ns/net)" = "{network}" ]; then
            echo as-it-is >> "{folder.parent}/tries"; made {GPU_TABLE} 1
        fi
        echo confined >> "{folder.parent}/tries"; {confined_does}
    """)
    recorded = record_trace(nsys, replace(traced("ok"), trace_cuda=True), folder, os.environ)
    with closing(sqlite3.connect(recorded.sqlite)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {GPU_TABLE}").fetchone() == (1,)
    tries = (folder.parent / "tries").read_text().split()
    assert tries == (["confined", "as-it-is"] if because else ["confined"])
    assert (recorded.unconfined_because or "").startswith(because or "")
    assert (recorded.unconfined_because is None) == (because is None)
    assert ("LAUNCHGAP_CONFINED=0 does at once" in caplog.text) == (because is not None)


def test_a_hang_says_that_it_may_be_the_confinement(
    fake_nsys: FakeNsys, traced: MakeTraced, folder: Path
) -> None:
    hangs = replace(traced("ok", timeout_s=0.5), trace_cuda=True)
    with pytest.raises(NsysTimeout, match=r"capture_timeout_s.* or try LAUNCHGAP_CONFINED=0"):
        record_trace(fake_nsys("sleep 600"), hangs, folder, os.environ)


def test_what_fails_both_times_is_told_once(fake_nsys: FakeNsys, traced: MakeTraced, folder: Path) -> None:
    nsys = fake_nsys(f'echo try >> "{folder.parent}/tries"; echo "no space for it" >&2; exit 1')
    with pytest.raises(NsysFailed, match="no space for it"):
        record_trace(nsys, replace(traced("ok"), trace_cuda=True), folder, os.environ)
    assert (folder.parent / "tries").read_text().split() == ["try", "try"]
