"""Runs nsys twice, profile and export, in a folder private to the run, and names what went wrong."""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from contract import LaunchgapError, TraceMode
from nsight.command import allowed_environ, export_command, profile_command
from nsight.confined import CONFINED_VARIABLE, confining
from nsight.errors import ImporterBroken, NsysFailed, NsysTimeout, ProgramFailed
from nsight.install import Nsys
from nsight.lease import alone, lock_folder
from nsight.processes import Finished, printed, run_marked

REPORT_NAME = "trace.nsys-rep"
SQLITE_NAME = "trace.sqlite"

# What nsys says of itself while all is well: neither the reason of a failure nor worth a line in the log.
_CHATTER = (
    "Try '",
    "usage:",
    "Generat",
    "[1/1]",
    "Exporting ",
    "Processing ",
    "WARNING:",
    "Collecting",
    "The target app",
)

# nsys 2022.4 could not talk to the agent that it had just started, or not find the semaphore they share:
# seen on busy machines, and where somebody else's capture began or ended at the same moment.
_LOST_AGENT = ("Local Endpoint is not available", "Agent launcher failed", "= sem_open")
_LOST_AGENT_LINE = "End of file"

# With less than this nsys cannot write even the smallest report.
_FULL_BYTES = 4 * 1024**2

# One of them has rows in every trace of a model, of the second kind in graph mode.
_GPU_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Traced:
    """What to trace and how. nsys profile and nsys export each get `timeout_s`, without the wait for a turn.

    `may_go_on` is asked while they wait or run; both are ended once it says no.
    """

    program: tuple[str, ...]
    trace_mode: TraceMode
    trace_cuda: bool
    timeout_s: float
    may_go_on: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Recorded:
    """A trace's SQLite file, beside the report, and why nsys was not confined although it was tried."""

    sqlite: Path
    unconfined_because: str | None = None


def record_trace(nsys: Nsys, traced: Traced, folder: Path, environ: Mapping[str, str]) -> Recorded:
    """Trace a program and export the report.

    Raises:
        NsysFailed: nsys failed, or wrote nothing.
        NsysTimeout: nsys or the program took longer than `timeout_s`.
        ImporterBroken: only a `.qdstrm` was left.
        ProgramFailed: the program's exit code was not 0.
        LaunchgapError: `may_go_on` said no.
    """
    try:
        return _confined_if_it_works(nsys, traced, folder, environ)
    except NsysFailed as error:
        free = min(shutil.disk_usage(path).free for path in (folder, tempfile.gettempdir()))
        if free >= _FULL_BYTES:
            raise
        # On a full disk nsys crashes, or says something that leads nowhere.
        raise NsysFailed(
            f"{folder.parent}: its disk or that of temporary files is full ({free >> 10} KiB left); free some"
        ) from error


def _confined_if_it_works(nsys: Nsys, traced: Traced, folder: Path, environ: Mapping[str, str]) -> Recorded:
    """A trace by nsys confined or, on a GPU, if nothing of the GPU comes of that, by nsys as it is.

    Without CUDA the preflight has proved that the confined nsys traces; what a driver needs is not known. A
    program that fails for a reason of its own runs twice.
    """
    if not (traced.trace_cuda and confining()):
        return Recorded(_record_trace(nsys, traced, folder, environ))
    try:
        sqlite = _record_trace(nsys, traced, folder, environ)
        if _shows_gpu_work(sqlite):
            return Recorded(sqlite)
        why = "the trace shows no GPU work"
    except NsysTimeout as error:
        raise NsysTimeout(f"{error}, or try {CONFINED_VARIABLE}=0 (docs/security.md)") from error
    except (NsysFailed, ImporterBroken, ProgramFailed) as error:
        why = str(error)
    log.warning(
        "kept from other processes' environments and from networks: %s; trying once more with nsys as it is, "
        "which %s=0 does at once",
        *(why, CONFINED_VARIABLE),
    )
    for path in folder.glob(f"{Path(REPORT_NAME).stem}.*"):
        path.unlink()
    return Recorded(_record_trace(nsys, traced, folder, environ, confined=False), why)


def _shows_gpu_work(sqlite: Path) -> bool:
    with opened_export(sqlite) as (connection, tables):
        return any(
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
            for table in _GPU_TABLES
            if table in tables
        )


@contextmanager
def opened_export(sqlite: Path) -> Iterator[tuple[sqlite3.Connection, set[str]]]:
    """An export, to be read only, and the names of its tables: nsys makes none of what it has not recorded.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    with closing(sqlite3.connect(f"{sqlite.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield connection, {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _record_trace(
    nsys: Nsys, traced: Traced, folder: Path, environ: Mapping[str, str], *, confined: bool = True
) -> Path:
    report, sqlite = folder / REPORT_NAME, folder / SQLITE_NAME
    profile = profile_command(nsys, report, traced.program, traced.trace_mode, traced.trace_cuda)
    allowed = allowed_environ(environ)
    with _turn(nsys, traced, environ):
        finished = _run(profile, traced, folder, allowed, confined)
        if _lost_agent(finished, report):
            log.warning("nsys lost its own agent, so nothing was recorded; trying once more")
            finished = _run(profile, traced, folder, allowed, confined)
    _check_profile(finished, report)
    exported = _run(export_command(nsys, report, sqlite), traced, folder, allowed, confined)
    if exported.exit_code or not sqlite.exists():
        raise NsysFailed(f"nsys export: {_told(exported)}; export the report with a newer Nsight Systems")
    _check_export(sqlite)
    return sqlite


def _turn(nsys: Nsys, traced: Traced, environ: Mapping[str, str]) -> AbstractContextManager[None]:
    """Keeps other captures of this host out, from before nsys starts until it has ended, where nsys needs it.

    The host is in the name because hosts may share the folder of the locks.
    """
    if nsys.captures_side_by_side:
        return nullcontext()
    told = f"waiting: another capture runs, and nsys {nsys.version_text} can lose one of two at a time"
    return alone(
        f"nsys-{socket.gethostname()}", lock_folder(environ), traced.may_go_on, lambda: log.info(told)
    )


def _lost_agent(finished: Finished, report: Path) -> bool:
    said = finished.stdout + finished.stderr
    lost = any(words in said for words in _LOST_AGENT) or _LOST_AGENT_LINE in finished.stderr.splitlines()
    return bool(finished.exit_code) and lost and not report.exists()


def _check_export(sqlite: Path) -> None:
    """Raise unless the export holds tables and all of its pages: nsys can end well and have written less."""
    try:
        with opened_export(sqlite) as (_, tables):
            problem = "" if tables else "it holds no tables"
    except sqlite3.DatabaseError as error:
        problem = str(error)
    if problem:
        raise NsysFailed(f"nsys export: its SQLite file is damaged ({problem}); see its log, and trace again")


def _run(
    command: list[str], traced: Traced, folder: Path, environ: Mapping[str, str], confined: bool
) -> Finished:
    """Run nsys and log what it and the program print; ends other than its own become named errors."""
    nsys, verb = command[0], f"nsys {command[1]}"
    log.debug("running %s", command)
    begin = time.monotonic()
    try:
        finished = run_marked(command, folder, environ, traced.timeout_s, traced.may_go_on, confined=confined)
    except TimeoutError as error:
        raise NsysTimeout(
            f"{verb}: {error}, so it and its program were ended; raise the time-out (capture_timeout_s)"
        ) from error
    except InterruptedError as error:
        raise LaunchgapError(f"{verb}: ended early because {error}; start it again") from error
    except (FileNotFoundError, PermissionError) as error:
        raise NsysFailed(f"{nsys}: does not start ({error.strerror}); install it again") from error
    finally:
        _log_output(folder)
    log.info("%s took %.1f s", verb, time.monotonic() - begin)
    return finished


def _log_output(folder: Path) -> None:
    for line in "".join(printed(folder)).splitlines():
        if line.strip() and not line.strip().startswith((*_CHATTER, str(folder))):
            log.info("%s", line)


def _check_profile(finished: Finished, report: Path) -> None:
    """Raise unless nsys and the program did what they should.

    nsys passes the program's exit code on. Once it got past running the program it prints `Generated:` and
    writes what was recorded: a failure with either is the program's, one with neither is nsys's own. (For a
    path with a quote or an ampersand 2022.4 writes the report but prints an error instead of that word.)
    """
    if not report.exists() and report.with_suffix(".qdstrm").exists():
        raise ImporterBroken(
            "nsys: its importer does not run, so only a .qdstrm is left; on Debian link the host folder "
            "beside its target folder (envs/install-nsys.sh does it), elsewhere install libdw1 (libdw.so.1)"
        )
    if finished.exit_code:
        told = f"exit code {_code_words(finished.exit_code)}, {_told(finished)}"
        if report.exists() or "Generated:" in finished.stdout:
            raise ProgramFailed(f"traced program: {told}; try it without nsys", finished.exit_code)
        raise NsysFailed(f"nsys profile: {told}; see its log, or check the set-up with scripts/preflight.py")
    if not report.exists():
        remedy = "with CUDA the program must call cudaProfilerStart"
        raise NsysFailed(f"nsys profile: wrote no report, {_told(finished)}; {remedy}")


def _code_words(exit_code: int) -> str:
    """An exit code as a shell gives it, with the signal's name where it stands for one."""
    try:
        return f"{exit_code} ({signal.Signals(exit_code - 128).name})"
    except ValueError:
        return str(exit_code)


def _told(finished: Finished) -> str:
    """The last line on stderr that says something."""
    lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_CHATTER)]
    return repr(telling[-1]) if telling else "it said nothing"
