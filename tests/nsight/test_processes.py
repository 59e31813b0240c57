from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nsight.processes import end_run, run_marked
from tests.nsight.conftest import processes_with

# Starts a child in a session of its own, as nsys does, and one that cleared its environment; then waits.
FAMILY = """
import subprocess, sys, time
subprocess.Popen(["sleep", "611"], start_new_session=True)
subprocess.Popen(["sleep", "612"], env={})
print("started", flush=True)
time.sleep(613)
"""


def _sleepers() -> list[int]:
    return [pid for number in ("611", "612") for pid in processes_with(f"sleep\0{number}")]


def test_exit_code_and_output(tmp_path: Path) -> None:
    done = run_marked(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, os.environ, 30)
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_signal_as_a_shell_says_it(tmp_path: Path) -> None:
    assert (
        run_marked(["sh", "-c", "kill -TERM $$"], tmp_path, os.environ, 30).exit_code == 128 + signal.SIGTERM
    )


def test_environment_is_only_what_was_given(tmp_path: Path) -> None:
    environ = dict(
        line.split("=", 1) for line in run_marked(["env"], tmp_path, {"PATH": "/bin"}, 30).stdout.split()
    )
    assert sorted(environ) == ["LAUNCHGAP_CAPTURE", "PATH", "TMPDIR"]
    assert environ["LAUNCHGAP_CAPTURE"] == str(tmp_path)


def test_temporary_files_go_with_the_run(tmp_path: Path) -> None:
    done = run_marked(["sh", "-c", 'touch "$TMPDIR/file"; echo "$TMPDIR"; ls'], tmp_path, os.environ, 30)
    temporary = Path(done.stdout.splitlines()[0])
    # A socket's path in there has room below its limit of 107 characters.
    assert temporary.parent == Path(tempfile.gettempdir())
    assert not temporary.exists()


def test_temporary_files_of_a_killed_run_go_later(tmp_path: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="launchgap-"))
    (temporary / "big.qdstrm").touch()
    foreign = tmp_path / "precious"
    foreign.mkdir()
    for name, target in (("killed", temporary), ("odd", foreign)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "temporary").symlink_to(target)
        end_run(tmp_path / name)
        assert list((tmp_path / name).iterdir()) == []
    assert not temporary.exists()
    assert foreign.exists()


def test_output_that_is_no_utf8(tmp_path: Path) -> None:
    assert run_marked(["printf", r"\377ok"], tmp_path, os.environ, 30).stdout == "\ufffdok"


def test_timeout(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"not done after 0\.3 s"):
        run_marked(["sleep", "611"], tmp_path, os.environ, 0.3)
    assert _sleepers() == []


def test_whole_family_is_ended(tmp_path: Path) -> None:
    printed = tmp_path / "stdout.txt"
    with pytest.raises(InterruptedError):
        run_marked([sys.executable, "-c", FAMILY], tmp_path, os.environ, 60, lambda: not printed.read_text())
    assert printed.read_text() == "started\n"
    assert _sleepers() == []


def test_orphans_of_a_finished_command_are_ended(tmp_path: Path) -> None:
    done = run_marked(
        ["sh", "-c", "sleep 611 >/dev/null & disown 2>/dev/null; exit 0"], tmp_path, os.environ, 30
    )
    assert done.exit_code == 0
    assert _sleepers() == []


def test_family_that_is_just_being_started(tmp_path: Path) -> None:
    asked = iter([True, True, False])
    with pytest.raises(InterruptedError):
        run_marked([sys.executable, "-c", FAMILY], tmp_path, os.environ, 60, lambda: next(asked))
    assert _sleepers() == []


def test_missing_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_marked([tmp_path / "absent"], tmp_path, os.environ, 30)


def test_other_runs_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    process = subprocess.Popen(["sleep", "614"], env={"LAUNCHGAP_CAPTURE": str(other)})
    try:
        # A folder whose name begins like another's is still another folder.
        assert end_run(tmp_path) == []
        assert end_run(tmp_path / "othe") == []
        assert process.poll() is None
        assert end_run(other) == [process.pid]
        assert process.wait(timeout=30) == -signal.SIGKILL
    finally:
        process.kill()


SIGNALLED = """
import sys, time
from nsight.processes import exit_on_signals
exit_on_signals()
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    time.sleep(0.5)
    print("cleaned up", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_let_finally_run(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", SIGNALLED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)
    assert process.communicate(timeout=30)[0] == "cleaned up\n"
    assert process.returncode == 128 + number
