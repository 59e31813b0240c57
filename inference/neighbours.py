"""Who else computes on the GPU while it is measured: they take its time and memory, and spoil the numbers.

Asked of nvidia-smi, which sees the processes of the whole host. In a container it may list none, not even
this process, or know them by other numbers. Needs no torch.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import TypedDict

_FIELDS = "gpu_uuid,pid,process_name,used_memory"
_SMI_TIMEOUT_S = 20.0


class Neighbour(TypedDict):
    """A process on the GPU: the name of its program, without its folder, and the GPU memory it holds."""

    program: str
    memory_mib: float | None


def neighbours(
    gpu_uuid: str, environ: Mapping[str, str] | None = None, own_pid: int | None = None
) -> list[Neighbour] | None:
    """Other processes that compute on a GPU now. To be asked when this process has begun to use it.

    `gpu_uuid` is as nvidia-smi gives it (`GPU-...`). None where that cannot be known: no nvidia-smi, or one
    that does not list this process, so that it would not list others either.
    """
    command = ["nvidia-smi", f"--query-compute-apps={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True, env=environ
        )
    except (OSError, subprocess.SubprocessError):
        return None
    here = [row for row in map(_row, done.stdout.splitlines()) if row is not None and row[0] == gpu_uuid]
    own = os.getpid() if own_pid is None else own_pid
    if not any(pid == own for _, pid, _ in here):
        return None
    return [process for _, pid, process in here if pid != own]


def _row(line: str) -> tuple[str, int, Neighbour] | None:
    """UUID, process id and process of one line of nvidia-smi; None for a line that is none."""
    uuid, _, rest = line.partition(",")
    pid, _, rest = rest.partition(",")
    name, _, memory = rest.rpartition(",")  # a program's name may have commas in it
    if not pid.strip().isdecimal():
        return None
    # Where a program lies often names its user.
    program = name.strip().replace("\\", "/").rsplit("/", 1)[-1] or "unknown"
    used = memory.strip()
    return (
        uuid.strip(),
        int(pid),
        Neighbour(program=program, memory_mib=float(used) if used.isdecimal() else None),
    )
