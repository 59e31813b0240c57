"""Reads one exported trace into tidy tables.

Every table has int64 nanoseconds `start_ns` and `end_ns`; `process` and `thread` are Nsight Systems'
serialized ids (int64), `correlation` ties a GPU operation to the API call of the same process that launched
it. Other integers are int32 where all of a column fit: ten million kernels must not take more memory than
they need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import schema
from analysis.database import Database
from analysis.grouping import AnyIntArray
from analysis.schema import HOST_DEVICE, NO_ID
from contract import TraceMode

DEFAULT_DOMAIN = ""
"""Name given to the NVTX domain of ranges that were pushed without one."""

_LARGE_TABLES = (schema.KERNELS.source, schema.API_CALLS.source)
_GRAPH_MODE_SUFFIX = "CUDA_GRAPH_TRACE_OPTIONS:MODE"


@dataclass(frozen=True)
class Trace:
    """One exported trace.

    Attributes:
        kernels: GPU kernels; start_ns, end_ns, process, device, green_context (-1: of none), stream,
            correlation, graph_node (-1: not of a graph), name (categorical, demangled), grid_x..z,
            block_x..z.
        memcpys: GPU copies; as kernels, with bytes and copy_kind for the name and the launch shape.
        memsets: GPU fills; as kernels, with bytes for the name and the launch shape.
        graph_launches: whole graph replays as the GPU ran them, recorded in graph mode only; without
            graph_node, with graph; start_ns = end_ns = 0 means that the driver gave no time.
        api_calls: CUDA runtime and driver calls; start_ns, end_ns, thread, process, correlation, name.
        ranges: NVTX ranges; start_ns, end_ns (NA while open), thread, process, same_thread (it also ended
            there), domain, name.
        diagnostics: what nsys itself had to say; severity (label) and text.
        nsys_version, export_schema: None where the file does not say.
        graph_trace_mode: what `--cuda-graph-trace` was, by the file's word or its rows; else None.
        gpu_names: names of the GPUs of the host.
        device_count: devices that ran anything; `schema.HOST_DEVICE`, which marks a graph's work on the
            host, is none.
        graph_nodes: creations of graph nodes; start_ns, end_ns, thread, graph_node, original (node that this
            one was cloned from; -1: none). Empty where the capture did not see graphs being made.
        warnings: what to know about the file before its numbers, a sentence each.
    """

    path: Path
    kernels: pd.DataFrame
    memcpys: pd.DataFrame
    memsets: pd.DataFrame
    graph_launches: pd.DataFrame
    api_calls: pd.DataFrame
    ranges: pd.DataFrame
    diagnostics: pd.DataFrame
    nsys_version: str | None
    export_schema: str | None
    graph_trace_mode: TraceMode | None
    gpu_names: tuple[str, ...]
    device_count: int
    graph_nodes: pd.DataFrame = field(default_factory=pd.DataFrame)
    warnings: tuple[str, ...] = ()

    @property
    def has_gpu_work(self) -> bool:
        """Whether anything at all ran on a GPU."""
        return any(len(table) for table in (self.kernels, self.memcpys, self.memsets, self.graph_launches))


def read_trace(path: Path, *, small_tables_only: bool = False) -> Trace:
    """Read an export (`.sqlite`, or `.sqlite.gz`). The file is opened read-only and never changed.

    With `small_tables_only` the kernels and API calls are left out, which are nearly all of a large file:
    their tables have no rows, and the devices are those of the other work.

    Raises:
        LaunchgapError: the file is missing, damaged, cut short or no export; or a needed column is missing.
    """
    with schema.open_database(path) as database:
        large = database.without(*_LARGE_TABLES) if small_tables_only else database
        strings = schema.read_strings(database)
        kernels = _named(schema.read_table(large, schema.KERNELS), strings)
        memcpys = schema.read_table(database, schema.MEMCPYS)
        memsets = schema.read_table(database, schema.MEMSETS)
        graph_launches = schema.read_table(database, schema.GRAPH_TRACES)
        about = schema.export_metadata(database)
        return Trace(
            path=path,
            kernels=kernels,
            memcpys=memcpys,
            memsets=memsets,
            graph_launches=graph_launches,
            api_calls=_api_calls(large, strings),
            ranges=_ranges(database, strings),
            diagnostics=schema.read_diagnostics(database),
            nsys_version=about.get("EXPORT_PRODUCT_VERSION"),
            export_schema=about.get("EXPORT_SCHEMA_VERSION"),
            graph_trace_mode=_graph_trace_mode(database, kernels, graph_launches),
            gpu_names=schema.read_gpu_names(database),
            device_count=_device_count(kernels, memcpys, memsets, graph_launches),
            graph_nodes=schema.read_graph_nodes(database),
            warnings=schema.version_warnings(about.get("EXPORT_SCHEMA_VERSION")),
        )


def named(ids: AnyIntArray, strings: Mapping[int, str]) -> pd.Categorical[str]:
    """The names behind string ids, as categories: a million kernels have a few dozen names."""
    codes, distinct_ids = pd.factorize(ids)
    names = [strings.get(int(key), f"(string {key})") for key in distinct_ids]
    distinct = {name: position for position, name in enumerate(dict.fromkeys(names))}
    positions = np.array([distinct[name] for name in names], dtype=np.int64)
    merged = codes if len(distinct) == len(names) else positions[codes]
    return pd.Categorical.from_codes(merged, categories=pd.Index(list(distinct)))


def _named(frame: pd.DataFrame, strings: Mapping[int, str]) -> pd.DataFrame:
    frame["name"] = named(frame["name"].to_numpy(), strings)
    return frame


def _api_calls(database: Database, strings: Mapping[int, str]) -> pd.DataFrame:
    calls = _named(schema.read_table(database, schema.API_CALLS), strings)
    calls["process"] = calls["thread"].to_numpy() & schema.PROCESS_MASK
    return calls


def _device_count(*operations: pd.DataFrame) -> int:
    devices = set().union(*(set(table["device"].unique()) for table in operations))
    return len(devices - {HOST_DEVICE})


def _ranges(database: Database, strings: Mapping[int, str]) -> pd.DataFrame:
    events = _nvtx_events(database, strings)
    created = events["event_type"] == schema.NVTX_DOMAIN_CREATE
    domains = events.loc[created, ["process", "domain_id", "name"]].drop_duplicates(["process", "domain_id"])
    is_range = events["event_type"].isin((schema.NVTX_PUSH_POP, schema.NVTX_START_END))
    ranges = events[is_range].merge(
        domains.rename(columns={"name": "domain"}),
        on=["process", "domain_id"],
        how="left",
        validate="many_to_one",
    )
    unnamed = ranges["domain"].isna()
    # Domain 0 is the default one; another without a name row was created before the session knew of it.
    ids = ranges.loc[unnamed, "domain_id"]
    titles = {key: f"(domain {key})" if key else DEFAULT_DOMAIN for key in ids.unique()}
    ranges["domain"] = ranges["domain"].astype("object")
    ranges.loc[unnamed, "domain"] = ids.map(titles).astype("object")
    ranges["same_thread"] = ranges["end_thread"].isin((NO_ID,)) | (ranges["end_thread"] == ranges["thread"])
    kept = ["start_ns", "end_ns", "thread", "process", "same_thread", "domain", "name"]
    return ranges[kept].sort_values(["start_ns", "thread"], kind="stable", ignore_index=True)


def _nvtx_events(database: Database, strings: Mapping[int, str]) -> pd.DataFrame:
    """NVTX rows with `name` from the row's own text or from the string table; both occur in one file."""
    events = schema.read_nvtx_events(database)
    registered = events["text_id"].map(strings)
    name = events["text"].where(events["text"].notna(), registered).fillna("")
    return events.assign(name=name, process=events["thread"] & schema.PROCESS_MASK)


def _graph_trace_mode(
    database: Database, kernels: pd.DataFrame, graph_launches: pd.DataFrame
) -> TraceMode | None:
    for name, value in schema.read_metadata(database, "META_DATA_CAPTURE"):
        # The name carries a prefix such as PROCESS_0: in some versions and none in others.
        if name.endswith(_GRAPH_MODE_SUFFIX) and value.lower() in set(TraceMode):
            return TraceMode(value.lower())
    if len(graph_launches):
        return TraceMode.GRAPH
    return TraceMode.NODE if (kernels["graph_node"] != NO_ID).any() else None
