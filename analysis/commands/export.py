"""Makes a SQLite export of a `.nsys-rep` for the time that it is read, with the nsys of this machine."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.progress import Steps
from contract import LaunchgapError

if TYPE_CHECKING:
    from nsight.install import Nsys

REPORT_SUFFIXES = frozenset({".nsys-rep", ".qdrep"})
"""What nsys calls its own files; `.qdrep` until 2021."""

_TIMEOUT_S = 3_600.0
# A build's name, as nsys writes it near the end of each report: 2025.3.1.90-253135822126v0.
_BUILD = re.compile(rb"(?<![\d.])(20\d\d)\.(\d{1,2})\.(\d{1,2})(?:\.\d{1,4})?-[0-9a-f]{6,16}(?:v\d+)?")
# Reports say who made them in their last section; older importers complain of that in words as well.
_READ_BYTES = 1 << 20
_NEWER = re.compile(r"newer than|version not supported|created in Nsight Systems version", re.IGNORECASE)
_CHATTER = ("Exporting", "Generating", "Processing", "[")


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """The path itself, or for a report of nsys an export of it that is deleted afterwards.

    Raises:
        LaunchgapError: no nsys here, or it cannot read the report; a newer report is told by both versions.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LaunchgapError(
            f"{path}: is a pipe or a device, which cannot be read twice; save it as a file first"
        )
    if path.suffix not in REPORT_SUFFIXES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="launchgap-export-") as folder:
        yield _exported(path, Path(folder))


def recorded_by(report: Path) -> str | None:
    """Version of the nsys that made a report, build number included; None where it cannot be found."""
    with report.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _READ_BYTES, 0))
        builds = list(_BUILD.finditer(file.read()))
    return builds[-1].group().decode("ascii") if builds else None


def _exported(report: Path, folder: Path) -> Path:
    # Imported here: reading a SQLite file needs nothing of nsys.
    import os

    from nsight.command import allowed_environ, export_command
    from nsight.errors import NsysMissing
    from nsight.install import find_nsys
    from nsight.processes import run_marked

    _check_report(report)
    try:
        nsys = find_nsys(os.environ)
    except NsysMissing as error:
        raise LaunchgapError(
            f"{report}: reading a report takes nsys; {error}; or give a .sqlite export"
        ) from error
    sqlite, private = folder / "trace.sqlite", folder / "run"
    private.mkdir()
    try:
        command = export_command(nsys, report.resolve(), sqlite)
        with Steps(1) as steps:
            steps.begin(f"exporting {report.name} with nsys {nsys.version_text}")
            done = run_marked(command, private, allowed_environ(os.environ), _TIMEOUT_S)
    except TimeoutError as error:
        raise LaunchgapError(
            f"{report}: nsys export is {error}; export it by hand and give the .sqlite"
        ) from error
    if done.exit_code or not sqlite.exists():
        raise _failed(report, nsys, done.stdout + "\n" + done.stderr)
    return sqlite


def _check_report(report: Path) -> None:
    try:
        with report.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise LaunchgapError(f"{report}: cannot be read ({error.strerror}); give a trace") from error
    if empty:
        raise LaunchgapError(f"{report}: is empty; the capture wrote nothing, so make it again")


def _failed(report: Path, nsys: Nsys, printed: str) -> LaunchgapError:
    """What went wrong with an export: first of all, whether this nsys is too old for it."""
    lines = [line.strip() for part in printed.splitlines() for line in part.split("\r") if line.strip()]
    telling = [line for line in lines if not line.startswith(_CHATTER)] or ["it said nothing"]
    build = recorded_by(report)
    version = _numbers(build)
    if (version is not None and version > nsys.version) or (version is None and _NEWER.search(printed)):
        made = f"made by nsys {build}" if build else f"made by a newer nsys ({telling[-1]})"
        needed = f"nsys {version[0]}.{version[1]} or newer" if version else "a newer nsys"
        return LaunchgapError(
            f"{report}: {made}, which the nsys {nsys.version_text} at hand cannot read; install {needed} or "
            "name it with LAUNCHGAP_NSYS, or run `nsys export --type sqlite` where it was made and give that"
        )
    return LaunchgapError(
        f"{report}: nsys {nsys.version_text} cannot export it ({telling[-1]}): it is cut short or damaged; "
        "copy it again, or capture again"
    )


def _numbers(build: str | None) -> tuple[int, int, int] | None:
    match = _BUILD.fullmatch(build.encode("ascii")) if build else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
