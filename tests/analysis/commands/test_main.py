"""The first word decides: a command, or a trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS
from commandline import run_command
from contract import LaunchgapError
from tests.analysis.commands.run_command import ROOT, analysis, analysis_process, busy_trace
from tests.analysis.trace_file import EXAMPLES


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_has_help_of_its_own(command: str) -> None:
    ran = analysis(command, "--help")
    assert ran.code == 0
    assert "--help" in ran.out
    assert ran.out != analysis("--help").out


EAGER, GRAPH = (str(EXAMPLES[name]) for name in ("eager.node", "graph.node"))
WORDS = {
    "perfetto": (EAGER, "-o", "{tmp}/perfetto.json"),
    "match": (EAGER, GRAPH, "--range", "forward"),
    "layers": (EAGER, "--range", "forward"),
    EAGER: ("--range", "forward"),
}
"""No command, and one for each way in which they end: a file, an alarm, a mistake."""


@pytest.mark.parametrize("command", WORDS, ids=lambda word: Path(word).name)
def test_a_shell_gets_what_the_other_tests_look_at_in_their_process(command: str, tmp_path: Path) -> None:
    words = (command, *(word.format(tmp=tmp_path) for word in WORDS[command]))
    ran = analysis_process(*words)
    assert ran == analysis(*words)
    assert ran.out + ran.err
    assert ran.code == {"match": 1, "layers": 2}.get(command, 0)


def test_a_trace_may_be_called_like_a_command(tmp_path: Path) -> None:
    trace = busy_trace(tmp_path).rename(tmp_path / "scrub")
    command = [sys.executable, "-m", "analysis", "./scrub"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=trace.parent, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["ledgr"], ["ledgr", "x"]])
def test_a_misspelt_command_is_told(words: list[str]) -> None:
    ran = analysis(*words)
    assert ran.code == 2
    assert ran.err == "error: ledgr: neither a command nor a file; did you mean 'ledger'? See --help\n"


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
