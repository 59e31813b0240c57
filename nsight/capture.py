"""A capture's three files, put in place together or not at all: report, SQLite export, program's record."""

from __future__ import annotations

import fcntl
import glob
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract import LaunchgapError, read_record
from nsight.command import profile_command
from nsight.errors import cannot_write
from nsight.install import Nsys
from nsight.processes import end_run
from nsight.trace import REPORT_NAME, SQLITE_NAME, Traced, record_trace

RECORD_NAME = "trace.json"

_PARTS = {REPORT_NAME: ".nsys-rep", SQLITE_NAME: ".sqlite", RECORD_NAME: ".json"}
"""Name in the private folder and suffix in place, in the order of moving: the record seals the others."""

_LOCK_WAIT_S = 10.0


def capture(nsys: Nsys, traced: Traced, output: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Trace a program that takes `--record FILE`; returns its record, completed with what nsys was asked.

    Everything is made in a folder of its own beside the destination, so a run that ends half-way, whatever
    ends it, leaves no new file in place; the next run removes the folder and what still runs in it.

    `output` is the path of the three files without suffix; dots in its name are part of it (`graph.node`).

    Raises:
        LaunchgapError: as `record_trace`; also when the destination cannot be written, another capture is
            writing it, or the program wrote no record.
    """
    try:
        with _private_folder(output) as folder:
            record_file = folder / RECORD_NAME
            program = (*traced.program, "--record", str(record_file))
            recorded = record_trace(nsys, replace(traced, program=program), folder, environ)
            record = _completed_record(record_file, nsys, traced, output)
            if recorded.unconfined_because:
                record["unconfined_because"] = recorded.unconfined_because
            record_file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            _publish(folder, output)
    except OSError as error:
        raise cannot_write(output, error) from error
    return record


def _completed_record(record_file: Path, nsys: Nsys, traced: Traced, output: Path) -> dict[str, Any]:
    """The program's record with nsys's version and command line; the paths of this machine are left out."""
    if not record_file.exists():
        raise LaunchgapError(f"{record_file.name}: the traced program wrote none; it must take --record FILE")
    report = output.with_name(output.name + _PARTS[REPORT_NAME])
    command = profile_command(nsys, report, traced.program, traced.trace_mode, traced.trace_cuda)
    record = read_record(record_file, "trace")
    if record.get("command", [])[-2:] == ["--record", str(record_file)]:
        record["command"] = record["command"][:-2]
    return record | {
        "trace_mode": str(traced.trace_mode),
        "nsys_version": nsys.version_text,
        "nsys_command": [Path(word).name if Path(word).is_absolute() else word for word in command],
    }


def _publish(folder: Path, output: Path) -> None:
    """Move the three files into place; after a failure half-way the record is absent."""
    moves = {folder / name: output.with_name(output.name + suffix) for name, suffix in _PARTS.items()}
    seal = moves[folder / RECORD_NAME]
    seal.unlink(missing_ok=True)
    try:
        for source, target in moves.items():
            source.chmod(0o644)
            source.replace(target)
    except OSError:
        for target in moves.values():
            target.unlink(missing_ok=True)
        raise


@contextmanager
def _private_folder(output: Path) -> Iterator[Path]:
    """A new folder beside the destination, removed at the end; those of killed runs are removed first."""
    output.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{output.name}.capture-"
    with _only_capture(output):
        for leftover in output.parent.glob(glob.escape(prefix) + "*"):
            _remove(leftover.resolve())
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=output.parent)).resolve()
        try:
            yield folder
        finally:
            _remove(folder)


def _remove(folder: Path) -> None:
    end_run(folder)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _only_capture(output: Path) -> Iterator[None]:
    """Hold the destination's lock, so that every private folder found beside it belongs to a dead run.

    Waits a little: a capture whose Snakemake was killed notices that within a moment and ends.
    """
    lock_file = output.with_name(f".{output.name}.lock")
    deadline = time.monotonic() + _LOCK_WAIT_S
    with lock_file.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LaunchgapError(
                        f"{output}: another capture is writing it; wait for its end"
                    ) from None
                time.sleep(0.1)
        yield
