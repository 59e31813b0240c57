"""The first word decides: a command, or a trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS
from commandline import run_command
from contract import LaunchgapError
from tests.analysis.commands.run_command import ROOT, analysis, busy_trace


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_has_help_of_its_own(command: str) -> None:
    ran = analysis(command, "--help")
    assert ran.code == 0
    assert "--help" in ran.out
    assert ran.out != analysis("--help").out


def test_a_trace_may_be_called_like_a_command(tmp_path: Path) -> None:
    trace = busy_trace(tmp_path).rename(tmp_path / "scrub")
    command = [sys.executable, "-m", "analysis", "./scrub"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=trace.parent, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_complaint_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise LaunchgapError("range \x1b[31m\r\nerror: x: \u202e\udcff; do this")

    assert run_command(main) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == r"error: range \x1b[31m error: x: \u202e\udcff; do this"


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    code = (
        "from commandline import run_command; import sys; sys.exit(run_command(lambda: print('x' * 100_000)))"
    )
    with full.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert "free some disk space" in line
