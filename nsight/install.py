"""Finds an installed nsys and says what it can do."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract import LaunchgapError
from nsight.errors import NsysFailed, NsysMissing

OVERRIDE_VARIABLE = "LAUNCHGAP_NSYS"
"""Environment variable that names one nsys and ends the search."""

BUNDLED = ("nsight-systems*/*/bin/nsys", "nsight-compute/*/host/target-linux-*/nsys")
"""Where NVIDIA's packages put an nsys that is on no PATH, below their root folder."""

BUNDLED_ROOT = Path("/opt/nvidia")

GRAPH_EXPORT_SINCE = (2024, 2, 0)
"""First version seen to export graph-mode rows; 2022.4 and 2023.4 record them but have no table for them."""

SIDE_BY_SIDE_SINCE = (2024, 1, 0)
"""First version of which several captures at a time are let run on one host.

All of 2022.4 share memory (/dev/shm/NSys-VERSION) that the first makes and the last removes. Two that start
at once, and now and then one that starts as another ends, lose their agents or hang. 2023 was not tried.
"""

_VERSION = re.compile(r"\b(20\d\d)\.(\d+)\.(\d+)(?:\.\S+)?")
_VERSION_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Nsys:
    """One installed nsys. `version` compares, `version_text` is what it prints, build number included."""

    path: Path
    version: tuple[int, int, int]
    version_text: str

    @property
    def exports_graph_mode(self) -> bool:
        """Whether a graph-mode trace survives the export to SQLite."""
        return self.version >= GRAPH_EXPORT_SINCE

    @property
    def captures_side_by_side(self) -> bool:
        """Whether several captures at a time leave each other alone."""
        return self.version >= SIDE_BY_SIDE_SINCE


def parse_version(text: str) -> tuple[tuple[int, int, int], str]:
    """Version numbers and full version word in what `nsys --version` prints.

    2022.4 prints `NVIDIA Nsight Systems version 2022.4.2.1-df9881f`, 2025.3 `... 2025.3.1.90-253135822126v0`.

    Raises:
        NsysFailed: no version in the text.
    """
    match = _VERSION.search(text)
    if match is None:
        shown = " ".join(text.split())[:80] or "nothing"
        raise NsysFailed(f"nsys --version: printed {shown!r}, no version; install Nsight Systems again")
    return (int(match[1]), int(match[2]), int(match[3])), match[0]


def find_nsys(environ: Mapping[str, str], bundled_root: Path = BUNDLED_ROOT) -> Nsys:
    """The nsys to use: the override variable's, else the one on PATH, else the newest that a package bundles.

    Raises:
        NsysMissing: there is none.
        NsysFailed: the one found does not run or prints no version.
    """
    path = _named_nsys(environ)
    if path is not None:
        return _ask(path)
    bundled: list[Nsys] = []
    problem: LaunchgapError = NsysMissing(
        "nsys: not found on PATH nor below /opt/nvidia; install Nsight Systems with envs/install-nsys.sh"
    )
    for path in (path for pattern in BUNDLED for path in bundled_root.glob(pattern)):
        try:
            bundled.append(_ask(path))
        except NsysFailed as error:
            problem = error
    if not bundled:
        raise problem
    return max(bundled, key=lambda nsys: nsys.version)


def _named_nsys(environ: Mapping[str, str]) -> Path | None:
    override = environ.get(OVERRIDE_VARIABLE)
    found = shutil.which(override or "nsys", path=environ.get("PATH", ""))
    if override and found is None:
        raise NsysMissing(
            f"{override}: {OVERRIDE_VARIABLE} names it but it is no executable; correct or unset the variable"
        )
    return Path(found) if found else None


def _ask(path: Path) -> Nsys:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NsysFailed(f"{path}: does not run ({error}); install Nsight Systems again") from error
    return Nsys(path, *parse_version(answer.stdout + answer.stderr))
