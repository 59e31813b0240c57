"""What a number was measured on, without host or user names. Reads clocks and power, never sets them."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch
import transformers

from inference.neighbours import Neighbour, neighbours

_SMI_FIELDS = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
}


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Hardware and versions, as flat JSON. GPU entries are None on the CPU."""
    return {
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "driver": _driver(device),
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "cpu": _cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "tf32": torch.get_float32_matmul_precision() != "highest",
    }


def read_clocks(device: torch.device) -> dict[str, float] | None:
    """SM and memory clock (MHz), power (W) and temperature (C) now, or None where nvidia-smi cannot tell."""
    values = _smi(device, list(_SMI_FIELDS.values()))
    if values is None:
        return None
    readings = {}
    for name, value in zip(_SMI_FIELDS, values, strict=False):
        try:
            readings[name] = float(value)
        except ValueError:  # "[N/A]": this GPU does not say
            continue
    return readings


def read_neighbours(device: torch.device) -> list[Neighbour] | None:
    """Other processes on the GPU that torch uses, see `inference.neighbours`; None on the CPU."""
    if device.type != "cuda":
        return None
    return neighbours(_uuid(device))


def _uuid(device: torch.device) -> str:
    """As nvidia-smi calls the GPU that torch uses, whatever CUDA_VISIBLE_DEVICES renumbers."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def _driver(device: torch.device) -> str | None:
    values = _smi(device, ["driver_version"])
    return values[0] if values else None


def _smi(device: torch.device, fields: list[str]) -> list[str] | None:
    """One nvidia-smi query for the GPU that torch uses."""
    if device.type != "cuda":
        return None
    command = [
        "nvidia-smi",
        f"--id={_uuid(device)}",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return [value.strip() for value in done.stdout.strip().split(",")]


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
