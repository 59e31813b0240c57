"""The nsys command lines, and the environment that nsys and the traced program get."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from contract import TraceMode
from nsight.errors import NsysFailed
from nsight.install import Nsys

# nsys writes the whole environment into the trace, so a key or a token in it would travel with the file.
# Only what a run of the program depends on is let through, and of that nothing that is named like a secret or
# holds one: NVIDIA_API_KEY, or redis://user:password@host as a compiler's cache.
_ALLOWED = re.compile(
    r"PATH|HOME|USER|LANG|LANGUAGE|LC_ALL|LC_CTYPE|TZ|TERM|TMPDIR|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX"
    r"|PYTHON(PATH|HOME|HASHSEED|UNBUFFERED|DONTWRITEBYTECODE|PYCACHEPREFIX)"
    r"|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|XDG_CACHE_HOME"
    r"|(OMP|MKL|OPENBLAS)_NUM_THREADS|(CUDA|NVIDIA|CUBLAS|PYTORCH|TORCH|TORCHINDUCTOR|TRITON)_\w+"
)

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH")
_SECRET_VALUE = re.compile(r"\w://[^\s/@]+@")


def allowed_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that nsys may see, and therefore store."""
    return {
        name: value
        for name, value in environ.items()
        if _ALLOWED.fullmatch(name) and not _secret(name, value)
    }


def _secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def profile_command(
    nsys: Nsys, report: Path, program: Sequence[str], trace_mode: TraceMode, trace_cuda: bool
) -> list[str]:
    """`nsys profile` for one program, writing the report (`.nsys-rep`).

    With CUDA the recording starts at the program's `cudaProfilerStart` and stops at its `cudaProfilerStop`;
    `--kill=none` lets the program go on after that. Without CUDA there is no such call, so everything between
    start and end is recorded. Without `--sample=none --cpuctxsw=none` 2025.3 wrote 2 GB in two seconds.

    Raises:
        NsysFailed: graph mode, and this nsys cannot export it.
    """
    if trace_mode is TraceMode.GRAPH and not nsys.exports_graph_mode:
        raise NsysFailed(
            f"nsys {nsys.version_text}: it cannot export a trace in graph mode; trace in node mode or "
            "install Nsight Systems 2024.2 or newer"
        )
    # nsys expands %p, %h, %q{NAME} in the name it writes to.
    command = [str(nsys.path), "profile", "--output", str(report).replace("%", "%%")]
    command += ["--sample=none", "--cpuctxsw=none"]
    if trace_cuda:
        command += ["--trace=cuda,nvtx", f"--cuda-graph-trace={trace_mode}"]
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--kill=none"]
    else:
        command += ["--trace=nvtx"]
    return [*command, *program]


def export_command(nsys: Nsys, report: Path, sqlite: Path) -> list[str]:
    """`nsys export` of a report to SQLite."""
    return [str(nsys.path), "export", "--type=sqlite", f"--output={sqlite}", str(report)]
