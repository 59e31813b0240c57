"""What nsys and the traced program can do wrong, told apart. Real nsys where it can be made to do it."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from contract import LaunchgapError
from nsight.errors import ImporterBroken, NsysFailed, NsysTimeout, ProgramFailed
from nsight.install import Nsys
from nsight.trace import Traced, record_trace
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
    sqlite = record_trace(real_nsys, traced("ok", "--record", str(folder / "r.json")), folder, environ)
    assert (folder / "trace.nsys-rep").exists()
    with closing(sqlite3.connect(sqlite)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId "
            "WHERE COALESCE(e.text, s.value) = 'request'"
        ).fetchone()
    assert count == 1
    # nsys's progress bars are no log, and what it stores of the environment holds no secret.
    told = [re.sub(r"\d+\.\d", "N", record.message) for record in caplog.records]
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
    hanging = traced("hang", str(folder / "pid"), "--record", "x", timeout_s=4)
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
