"""Finds out what this host can do before anything long starts: is there a GPU, does nsys trace our ranges?"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal

from contract import NVTX_DOMAIN, SCHEMA_VERSION, LaunchgapError, PreflightRecord, TraceMode
from nsight.confined import CONFINED_VARIABLE, unconfined
from nsight.gpu import find_gpu
from nsight.install import BUNDLED_ROOT, Nsys, find_nsys
from nsight.trace import Traced, opened_export, record_trace

Device = Literal["auto", "cuda", "cpu"]
Profiler = Literal["auto", "required", "torch", "off"]
Tracer = Literal["nsys", "torch"]

FREE_BYTES_WANTED = 512 * 1024**2
"""Free space below which tracing is not started."""

_PROOF_RANGE = "preflight"
_PROOF_TIMEOUT_S = 60.0
_TORCH_INSTEAD = (
    "nsys does not work here, so torch.profiler records the traces: it counts the same, has no graph mode "
    "and cannot tell whether records were dropped; mend what is named above, or set profiler: torch or off"
)
_OFF = "tracing is off: the configuration says profiler: off; set profiler: auto to trace"
_NVTX_REMEDY = "pip install 'nvtx<0.2.12'"


def preflight(
    device: Device,
    profiler: Profiler,
    folder: Path,
    environ: Mapping[str, str],
    bundled_root: Path = BUNDLED_ROOT,
) -> PreflightRecord:
    """What this host can do, with a finding for everything that is missing.

    `folder` is an existing folder on the file system that the traces will be written to.

    Raises:
        LaunchgapError: the GPU is asked for and cannot be used, or tracing is required and impossible.
    """
    gpu = find_gpu(environ) if device != "cpu" else None
    if device == "cuda" and gpu is not None and not gpu.usable:
        raise LaunchgapError(f"device cuda: {gpu.problem}; {gpu.remedy}")
    findings: list[str] = []
    if gpu is not None and not gpu.usable:
        findings.append(f"{gpu.problem}, so the simulation runs and its traces hold no kernels; {gpu.remedy}")
    on_gpu = gpu is not None and gpu.usable
    nsys, tracer, problems = _choose_tracer(profiler, on_gpu, folder, environ, bundled_root)
    if profiler == "required" and tracer is None:
        raise LaunchgapError(f"profiler required: {problems[0]}")
    if tracer == "nsys":
        findings += unconfined()
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "preflight",
        "device": "cuda" if on_gpu else "cpu",
        "can_trace": tracer is not None,
        "tracer": tracer,
        "nsys_path": str(nsys.path) if nsys else None,
        "nsys_version": nsys.version_text if nsys else None,
        "nvtx_version": nvtx_version(),
        "findings": problems + findings,
    }


def nvtx_version() -> str | None:
    """Version of the installed nvtx package."""
    try:
        return metadata.version("nvtx")
    except metadata.PackageNotFoundError:
        return None


def _choose_tracer(
    profiler: Profiler, on_gpu: bool, folder: Path, environ: Mapping[str, str], bundled_root: Path
) -> tuple[Nsys | None, Tracer | None, list[str]]:
    """The nsys found, what records the traces, and what stands in the way of nsys or of any tracer."""
    if profiler == "off":
        return None, None, [_OFF]
    full = _disk_problems(folder)
    if profiler == "torch":
        return None, None if full else "torch", full
    nsys, problems = _nsys_problems(full, environ, bundled_root)
    if not problems:
        return nsys, "nsys", []
    if profiler == "auto" and on_gpu and not full:
        return nsys, "torch", [*problems, _TORCH_INSTEAD]
    return nsys, None, problems


def _disk_problems(folder: Path) -> list[str]:
    free = shutil.disk_usage(folder).free
    if free >= FREE_BYTES_WANTED:
        return []
    return [f"disk: {free >> 20} MiB free, too few for traces; free {FREE_BYTES_WANTED >> 20} MiB"]


def _nsys_problems(
    problems: list[str], environ: Mapping[str, str], bundled_root: Path
) -> tuple[Nsys | None, list[str]]:
    """The nsys found, and every reason why it cannot trace, after those known already."""
    problems = [*problems]
    nsys = None
    try:
        nsys = find_nsys(environ, bundled_root)
        if not problems:
            _prove(nsys, environ)
    except LaunchgapError as error:
        problems.append(str(error))
    return nsys, problems


def _prove(nsys: Nsys, environ: Mapping[str, str]) -> None:
    """Trace a one-line program and see that its range arrives in the SQLite file.

    Raises:
        LaunchgapError: it does not, and why.
    """
    version = nvtx_version()
    if version is None:
        raise LaunchgapError(f"nvtx: not installed, so there are no ranges to trace; {_NVTX_REMEDY}")
    program = f"import nvtx\nwith nvtx.annotate({_PROOF_RANGE!r}, domain={NVTX_DOMAIN!r}): pass"
    traced = Traced((sys.executable, "-c", program), TraceMode.NODE, False, _PROOF_TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="launchgap-", ignore_cleanup_errors=True) as folder:
        sqlite = record_trace(nsys, traced, Path(folder).resolve(), environ).sqlite
        if _PROOF_RANGE not in _range_names(sqlite):
            raise LaunchgapError(
                f"nvtx: version {version} records no ranges under nsys {nsys.version_text} (NVIDIA/NVTX "
                f"issue 126); {_NVTX_REMEDY}"
            )


def _range_names(sqlite: Path) -> set[str]:
    """Texts of all NVTX events of a trace; a table without events is absent."""
    with opened_export(sqlite) as (connection, tables):
        if "NVTX_EVENTS" not in tables:
            return set()
        rows = connection.execute(
            "SELECT COALESCE(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
        )
        return {row[0] for row in rows}


def host_fingerprint(environ: Mapping[str, str]) -> dict[str, str]:
    """What a preflight depends on: when it changes, the preflight has to run again."""
    try:
        nsys = find_nsys(environ)
        installed = f"{nsys.path} {nsys.version_text} {nsys.path.stat().st_mtime_ns}"
    except LaunchgapError as error:
        installed = str(error)
    found = {"nsys": installed, "nvtx": nvtx_version() or "not installed", "python": sys.version.split()[0]}
    return found | ({"confined": environ[CONFINED_VARIABLE]} if environ.get(CONFINED_VARIABLE) else {})
