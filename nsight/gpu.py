"""Is there a GPU that PyTorch could use? Answered without importing torch: the pipeline must start fast."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SMI_TIMEOUT_S = 60.0
_NO_CUDA_BUILD = re.compile(r"^cuda\b[^=\n]*=\s*None\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Gpu:
    """Whether a GPU is `usable`, and where it is not, what is missing and why, and what to do."""

    usable: bool
    problem: str = ""
    remedy: str = ""


def find_gpu(environ: Mapping[str, str], device_node: Path = Path("/dev/nvidia0")) -> Gpu:
    """Whether a CUDA device can be used: visible, readable, and the installed torch built for CUDA."""
    if environ.get("CUDA_VISIBLE_DEVICES", "unset").strip() in ("", "-1"):
        return Gpu(False, "no GPU: CUDA_VISIBLE_DEVICES hides all of them", "unset it to use the GPU")
    if device_node.exists() and not os.access(device_node, os.R_OK | os.W_OK):
        return Gpu(False, f"{device_node}: no permission to open the GPU", "join the group that owns it")
    problem = _driver_problem(environ, device_node)
    if problem:
        return Gpu(False, f"no GPU: {problem}", "check the NVIDIA driver, or use a host with a GPU")
    if torch_lacks_cuda():
        return Gpu(False, "torch: the installed build has no CUDA", "install one that has, see envs/")
    return Gpu(True)


def _driver_problem(environ: Mapping[str, str], device_node: Path) -> str:
    """Why no GPU answers, or an empty string. Without nvidia-smi the device node decides."""
    smi = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
    if smi is None:
        return "" if device_node.exists() else "this host has no NVIDIA driver"
    try:
        answer = subprocess.run(
            [smi, "-L"], capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi does not answer ({error})"
    if answer.returncode == 0 and "GPU " in answer.stdout:
        return ""
    lines = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
    return f"nvidia-smi says {lines[0]!r}" if lines else "nvidia-smi lists none"


def torch_lacks_cuda() -> bool:
    """Whether the installed torch is a CPU build, by the version file inside it; False without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version_file = Path(spec.origin).with_name("version.py")
    try:
        return bool(_NO_CUDA_BUILD.search(version_file.read_text(encoding="utf-8")))
    except OSError:
        return False
