"""Runs a command and everything it starts, and ends all of it on time-out, interruption or error.

nsys needs this: it starts the program in a session of its own and an agent that is reparented to init, so
neither the process group nor the parent chain reaches all of them. What does is an environment variable that
only this run's processes carry.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nsight.confined import confinement

MARK_VARIABLE = "LAUNCHGAP_CAPTURE"
"""Environment variable that marks every process of one run; its value is the run's private folder."""

_POLL_S = 0.05
_END_TIMEOUT_S = 5.0
# A process that was just being started when its parent was killed shows no environment for a moment.
_QUIET_LOOKS = 4
_TEMPORARY_LINK = "temporary"
_TEMPORARY_PREFIX = "launchgap-"
_SHARED_MEMORY = ("quadd-agent-instance-{pid}", "sem.nsys_sem_{pid}")
"""What nsys leaves in /dev/shm for each of its processes that is killed."""


@dataclass(frozen=True)
class Finished:
    """How a command ended: exit code as a shell gives it (128 + n for signal n) and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def run_marked(
    command: Sequence[str | Path],
    folder: Path,
    environ: Mapping[str, str],
    timeout_s: float,
    may_go_on: Callable[[], bool] = lambda: True,
    *,
    confined: bool = True,
) -> Finished:
    """Run a command in a folder private to it; when this returns or raises, nothing of it is running.

    The folder exists and is the value of the mark. The command sees neither other processes nor a network,
    as far as this host has it so (`nsight.confined`), unless it shall not be `confined`. `may_go_on` is asked
    20 times a second; the run is ended once it says no.

    Raises:
        TimeoutError: the command was not done after `timeout_s`.
        InterruptedError: `may_go_on` said no.
        OSError: the command cannot be started.
    """
    marked = {**environ, "TMPDIR": str(_make_temporary(folder)), MARK_VARIABLE: str(folder)}
    stdout, stderr = _output_files(folder)
    process = None
    try:
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                command,
                env=marked,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=confinement() if confined else None,  # noqa: PLW1509 - one thread runs here
            )
        code = _wait(process, timeout_s, may_go_on)
    finally:
        end_run(folder, process.pid if process is not None and process.poll() is None else None)
        if process is not None:
            process.wait()
    return Finished(128 - code if code < 0 else code, *printed(folder))


def printed(folder: Path) -> tuple[str, str]:
    """What the run of this folder has printed so far, on stdout and on stderr."""
    texts = [path.read_text("utf-8", "replace") if path.exists() else "" for path in _output_files(folder)]
    return texts[0], texts[1]


def _output_files(folder: Path) -> tuple[Path, Path]:
    return folder / "stdout.txt", folder / "stderr.txt"


def _wait(process: subprocess.Popen[bytes], timeout_s: float, may_go_on: Callable[[], bool]) -> int:
    deadline = time.monotonic() + timeout_s
    while (code := process.poll()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {timeout_s:g} s")
        if not may_go_on():
            raise InterruptedError("whoever started it is gone")
        time.sleep(_POLL_S)
    return code


def _make_temporary(folder: Path) -> Path:
    """A folder for the run's temporary files; a link in the private folder leads to it.

    Not inside the private folder: tools put sockets there, whose paths may have 107 characters at most.
    """
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    (folder / _TEMPORARY_LINK).symlink_to(temporary)
    return temporary


def _remove_temporary(folder: Path) -> None:
    link = folder / _TEMPORARY_LINK
    if link.is_symlink():
        target = link.readlink()
        if target.name.startswith(_TEMPORARY_PREFIX):
            shutil.rmtree(target, ignore_errors=True)
        link.unlink()


def end_run(folder: Path, leader: int | None = None) -> list[int]:
    """Kill every process of the run whose private folder this is, remove its temporary files, return the ids.

    `leader` is the process id of the command while it runs: its descendants and session are ended as well,
    in case one of them cleared its environment.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + _END_TIMEOUT_S
    quiet_looks = 0
    while quiet_looks < _QUIET_LOOKS and time.monotonic() < deadline:
        found = _marked(folder) | _relatives(leader)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= found
        quiet_looks = 0 if found else quiet_looks + 1
        if not ended:
            break
        time.sleep(_POLL_S)
    for pid in ended:
        for pattern in _SHARED_MEMORY:
            Path("/dev/shm", pattern.format(pid=pid)).unlink(missing_ok=True)
    _remove_temporary(folder)
    return sorted(ended)


def _marked(folder: Path) -> set[int]:
    """Live processes that carry the run's mark."""
    mark = os.fsencode(f"{MARK_VARIABLE}={folder}")  # as the kernel has it, whatever the locale
    return {pid for pid in _process_ids() if mark in _proc_bytes(pid, "environ").split(b"\0")} - {os.getpid()}


def _relatives(leader: int | None) -> set[int]:
    """Live processes in a leader's session, and those below one of them by their parents' chain."""
    if leader is None:
        return set()
    ancestry = {pid: ids for pid in _process_ids() if (ids := _parent_and_session(pid)) is not None}
    found = {pid for pid, (_, session) in ancestry.items() if session == leader}
    generation = found
    while generation:
        generation = {pid for pid, (parent, _) in ancestry.items() if parent in generation} - found
        found |= generation
    return found


def _process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent_and_session(pid: int) -> tuple[int, int] | None:
    """Parent and session of a live process; None when it is gone or a zombie, which nothing can end."""
    # The command name stands in parentheses and may itself contain spaces and parentheses.
    _, _, rest = _proc_bytes(pid, "stat").rpartition(b")")
    fields = rest.split()
    return (int(fields[1]), int(fields[3])) if len(fields) > 3 and fields[0] != b"Z" else None


def _proc_bytes(pid: int, name: str) -> bytes:
    """Content of a file in /proc, empty when the process is gone or not ours to read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def exit_on_signals() -> None:
    """Turn SIGTERM, SIGHUP and SIGINT into SystemExit: `finally` blocks then run before the process ends."""

    def leave(number: int, _frame: FrameType | None) -> None:
        # A second signal must not interrupt the cleaning up that the first one started.
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, leave)


def starter_alive() -> Callable[[], bool]:
    """A question for `run_marked`: is the process that started this one still its parent?"""
    parent = os.getppid()
    return lambda: os.getppid() == parent
