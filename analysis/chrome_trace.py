"""Reads a trace of torch.profiler (Chrome's JSON format) into the tables of an nsys trace.

One event is one row: kernels, copies and sets say their device, stream and correlation id; CUDA calls say
their thread and correlation id; `record_function` ranges are `user_annotation` events on the thread that
opened them. A file is of one process, and its GPU events do not name it. torch.profiler records every kernel
of a replayed graph, all under the correlation id of the `cudaGraphLaunch`, as nsys does in node mode.

`analysis.perfetto` writes the same format, with what it lacks in `args` and under the key `launchgap`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.chrome_events import Kind, is_chrome_trace, load
from analysis.chrome_tables import NODE_COLUMNS, Tables, frame_of
from analysis.schema import DIAGNOSTIC_ERROR_LABEL, HOST_DEVICE, NO_ID
from analysis.trace import Trace, read_trace
from contract import TraceMode

ABOUT = "launchgap"
"""Key of a file under which `analysis.perfetto` says what the format has no place for."""

ALWAYS_UNKNOWN = (
    "any nsys version",
    "CUDA calls that torch.profiler leaves out (such as cudaGetDevice and cudaEventCreate)",
    "whether records were dropped",
    "green contexts",
)
"""What no trace of torch.profiler tells."""

_NODES_UNKNOWN = "which node of a graph a kernel is"
_SEVERITIES = {"ERROR": DIAGNOSTIC_ERROR_LABEL, "WARNING": "Warning", "INFO": "Information"}


@dataclass(frozen=True)
class ChromeTrace(Trace):
    """A trace that came in Chrome's format.

    Attributes:
        tracer: what recorded it: `torch`, or `nsys` where the file was made of an nsys trace.
        unknown: what this tracer cannot tell, a phrase each. Nothing of it is 0 or absent: it is not known.
    """

    tracer: str = "torch"
    unknown: tuple[str, ...] = ()


def read_any_trace(path: Path) -> Trace:
    """Read a trace by either tracer: an export of nsys, or what torch.profiler wrote, by the file's suffix.

    Raises:
        LaunchgapError: as `read_trace` or `read_chrome_trace`.
    """
    return read_chrome_trace(path) if is_chrome_trace(path) else read_trace(path)


def read_chrome_trace(path: Path) -> ChromeTrace:
    """Read a trace of torch.profiler (`.json`, or `.json.gz`). Times count from the file's base time.

    Raises:
        LaunchgapError: the file is missing, damaged, cut short, no Chrome trace, or of several processes
            whose GPU work cannot be told apart.
    """
    document = load(path)
    about = _mapping(document.about.get(ABOUT))
    tables = Tables(document)
    kernels, memcpys = tables.operations(Kind.KERNEL), tables.operations(Kind.MEMCPY)
    memsets, graphs = tables.operations(Kind.MEMSET), tables.operations(Kind.GRAPH)
    torch = not about
    mode = _mode(about.get("graph_trace_mode"))
    unknown = _unknown(kernels) if torch else tuple(map(str, about.get("unknown") or ()))
    work = [table for table in (kernels, memcpys, memsets, graphs) if len(table)]
    return ChromeTrace(
        path=path,
        kernels=kernels,
        memcpys=memcpys,
        memsets=memsets,
        graph_launches=graphs,
        api_calls=tables.api_calls(),
        ranges=tables.ranges(),
        diagnostics=_diagnostics(document.about),
        nsys_version=_text(about.get("nsys_version")),
        export_schema=_text(about.get("export_schema")),
        graph_trace_mode=TraceMode.NODE if torch and work else mode,
        gpu_names=_gpu_names(document.about),
        device_count=len({int(d) for table in work for d in table["device"].unique()} - {HOST_DEVICE}),
        graph_nodes=frame_of([], NODE_COLUMNS),
        warnings=(_warning(torch, unknown),),
        tracer="torch" if torch else str(about.get("tracer", "nsys")),
        unknown=unknown,
    )


def _diagnostics(about: Mapping[str, Any]) -> pd.DataFrame:
    """What the profiler itself logged, which libkineto keeps under the names of its log levels."""
    rows = [
        (severity, str(text))
        for key, severity in _SEVERITIES.items()
        if isinstance(about.get(key), list)
        for text in about[key]
    ]
    return pd.DataFrame(rows, columns=["severity", "text"], dtype="object")


def _gpu_names(about: Mapping[str, Any]) -> tuple[str, ...]:
    properties = about.get("deviceProperties")
    listed = [_mapping(one).get("name") for one in properties] if isinstance(properties, list) else []
    return tuple(str(name) for name in listed if name is not None)


def _unknown(kernels: pd.DataFrame) -> tuple[str, ...]:
    nodes = (kernels["graph_node"] != NO_ID).any()
    return ALWAYS_UNKNOWN if nodes else (*ALWAYS_UNKNOWN, _NODES_UNKNOWN)


def _warning(torch: bool, unknown: Sequence[str]) -> str:
    told = f"unknown: {', '.join(unknown)}"
    if not torch:
        return f"read from a file that was made for Perfetto; {told}"
    return (
        "recorded by torch.profiler, not by nsys: it counts the same, but times every operator on the host, "
        f"so gaps are longer; {told}"
    )


def _mode(value: object) -> TraceMode | None:
    return TraceMode(value) if isinstance(value, str) and value in set(TraceMode) else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
