"""What a trace file says beside its events: settings of the capture, names of processes and GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from analysis.database import Database
from analysis.schema import read_metadata, texts_by_number
from analysis.trace import Trace

# An allow-list: nsys also keeps the environment and the command line of what it traced here.
_CAPTURE_FLAGS = re.compile(r"(?:PROCESS_\d+:)?(CAPTURE_EVENT_TYPE|COLLECT_\w+|CUDA_\w+(?::\w+)*)")


@dataclass(frozen=True)
class About:
    """What a trace file says beside its events.

    `flags` are the capture's settings as NAME=VALUE, each once, in file order. `process_names` are by system
    process id, `gpu_names` by (system process id or None, CUDA device number).
    """

    flags: tuple[str, ...]
    process_names: Mapping[int, str]
    gpu_names: Mapping[tuple[int | None, int], str]

    def gpu(self, process: int, device: int) -> str | None:
        """Name of a process's device."""
        return self.gpu_names.get((process, device), self.gpu_names.get((None, device)))


def read_about(database: Database) -> About:
    """What the file says of the capture, the processes and the GPUs."""
    flags = []
    for name, value in read_metadata(database, "META_DATA_CAPTURE"):
        found = _CAPTURE_FLAGS.fullmatch(name)
        if found is not None:
            flags.append(f"{found[1]}={value}")
    return About(tuple(dict.fromkeys(flags)), _process_names(database), _gpu_names(database))


def about_trace(trace: Trace) -> About:
    """What a trace itself knows of that: only the GPUs, numbered as the program saw them."""
    return About((), {}, {(None, number): name for number, name in enumerate(trace.gpu_names)})


def _process_names(database: Database) -> dict[int, str]:
    if not {"pid", "name"} <= database.columns.get("PROCESSES", frozenset()):
        return {}
    return texts_by_number(database, "PROCESSES", "pid", "name")


def _gpu_names(database: Database) -> dict[tuple[int | None, int], str]:
    """Names by device number. Where a process sees other numbers than the host, newer exports say so."""
    if not {"id", "name"} <= database.columns.get("TARGET_INFO_GPU", frozenset()):
        return {}
    of_host = texts_by_number(database, "TARGET_INFO_GPU", "id", "name")
    names: dict[tuple[int | None, int], str] = {(None, key): name for key, name in of_host.items()}
    if {"gpuId", "cudaId", "pid"} <= database.columns.get("TARGET_INFO_CUDA_DEVICE", frozenset()):
        seen = database.query(
            "SELECT gpuId, cudaId, pid FROM TARGET_INFO_CUDA_DEVICE "
            "WHERE typeof(gpuId) = 'integer' AND typeof(cudaId) = 'integer' AND typeof(pid) = 'integer'"
        )
        for gpu, device, pid in seen.itertuples(index=False, name=None):
            if int(gpu) in of_host:
                names[int(pid), int(device)] = of_host[int(gpu)]
    return names
