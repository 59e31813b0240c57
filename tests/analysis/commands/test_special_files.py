"""What is given as a file and is none: devices, pipes, links."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from commandline import run_command, write_text_atomic
from tests.analysis.trace_file import EXAMPLES

ROOT = Path(__file__).parents[3]
TRACE = str(next(iter(EXAMPLES.values())))


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert main([TRACE, "--table", "kernels", "--format", "csv", "-o", str(pipe)]) == 0
        told = reader.communicate(timeout=60)[0]
    assert told.startswith(b"kernel,")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_a_link_leads_to_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_text_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_pipe_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "trace.sqlite"
    os.mkfifo(pipe)
    assert run_command(lambda: main([str(pipe)])) == 2
    assert "save it as a file first" in capsys.readouterr().err


def test_a_scrubbed_trace_replaces_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "clean.sqlite"
    os.mkfifo(pipe)
    assert run_command(lambda: main(["scrub", TRACE, "-o", str(pipe)])) == 2
    assert "no file to replace" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_closed_standard_output_is_told_in_a_line() -> None:
    command = f"{sys.executable} -m analysis {TRACE} >&-"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "standard output is closed" in done.stderr
