"""The summaries of a trace of any size straight from its file: a few columns of a large table, never all of them.

`analysis.trace.read_trace` holds every column of every event, which takes over a gigabyte for ten million kernels.
Here kernels and API calls are summed up as they come; what is left of the file is small and kept as a `Trace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import schema
from analysis.attribute import NO_CALL, IntArray, call_of
from analysis.containment import Spans
from analysis.database import Database
from analysis.grouping import AnyIntArray
from analysis.launches import launch_kind
from analysis.range_counts import count_in_ranges
from analysis.reading import DURATION, read_columns
from analysis.summaries import range_summary, summary
from analysis.trace import Trace, named, read_trace


@dataclass(frozen=True)
class Summary:
    """What `nsys stats` tells of a whole trace; columns as in `analysis.summaries`.

    Attributes:
        kernels: as `kernel_summary`.
        api_calls: as `api_summary`.
        ranges: as `range_summary`, with launching_instances (with a launch inside), launches and operations (GPU
            work that they started): those of ranges which ended on their own thread, a call once for each name.
        launches: how many launch calls there are.
        unlaunched: GPU operations that none of them started.
        rest: the trace without rows of kernels and API calls: its copies, fills, ranges and what it tells of itself.
    """

    kernels: pd.DataFrame
    api_calls: pd.DataFrame
    ranges: pd.DataFrame
    launches: int
    unlaunched: int
    rest: Trace


def summarise(path: Path) -> Summary:
    """Sum up a trace without holding it: the API calls are the most that is held at once.

    Raises:
        LaunchgapError: as `read_trace`.
    """
    rest = read_trace(path, small_tables_only=True)
    with schema.open_database(path) as database:
        strings = schema.read_strings(database)
        api_calls, launches = _calls(database, strings)
        kernels, work = _kernels(database, strings)
    operations, unlaunched = _operations_of(launches, [work, rest.memcpys, rest.memsets, rest.graph_launches])
    ranges = _with_counts(range_summary(rest), rest.ranges, launches, operations)
    return Summary(kernels, api_calls, ranges, len(launches), unlaunched, rest)


def _calls(database: Database, strings: Mapping[int, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The summary of all API calls, and of the launches: thread, process, correlation, start_ns, end_ns."""
    names = ("name", DURATION, "thread", "correlation", "start_ns")
    calls = read_columns(database, schema.API_CALLS, names)
    table, called = _by_name(calls, strings)
    kinds = [launch_kind(name) is not None for name in called.categories]
    is_launch = np.array(kinds, dtype=np.bool_)[called.codes]
    launches = pd.DataFrame({name: calls.pop(name)[is_launch] for name in names[1:]}, copy=False)
    launches["process"] = launches["thread"].to_numpy() & schema.PROCESS_MASK
    launches["end_ns"] = launches["start_ns"] + launches.pop(DURATION)
    return table, launches


def _kernels(database: Database, strings: Mapping[int, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The summary of all kernels, and what ties them to their launch: process, correlation."""
    kernels = read_columns(database, schema.KERNELS, ("name", DURATION, "process", "correlation"))
    table, _ = _by_name(kernels, strings)
    return table, pd.DataFrame({name: kernels[name] for name in ("process", "correlation")}, copy=False)


def _by_name(
    rows: Mapping[str, AnyIntArray], strings: Mapping[int, str]
) -> tuple[pd.DataFrame, pd.Categorical[str]]:
    """The summary of a large table, and the name of each of its rows."""
    names = named(rows["name"], strings)
    titles = pd.DataFrame({"name": names.categories.astype("object")})
    return summary(names.codes, rows[DURATION], titles), names


def _operations_of(launches: pd.DataFrame, work: Sequence[pd.DataFrame]) -> tuple[IntArray, int]:
    """How many GPU operations each launch started, and how many no launch did."""
    counts, unlaunched = np.zeros(len(launches), dtype=np.int64), 0
    for operations in work:
        call = call_of(operations, launches)
        found = call != NO_CALL
        counts += np.bincount(call[found], minlength=len(launches))
        unlaunched += int((~found).sum())
    return counts, unlaunched


def _with_counts(
    table: pd.DataFrame, ranges: pd.DataFrame, launches: pd.DataFrame, operations: IntArray
) -> pd.DataFrame:
    complete = ranges[ranges["same_thread"] & ranges["end_ns"].notna()].astype({"end_ns": "int64"})
    keys = pd.MultiIndex.from_frame(table[["domain", "name"]])
    group = keys.get_indexer(pd.MultiIndex.from_frame(complete[["domain", "name"]])).astype(np.int64)
    counts = count_in_ranges(Spans.of(launches), operations, Spans.of(complete), group, len(table))
    return table.assign(
        launching_instances=counts.launching, launches=counts.launches, operations=counts.operations
    )
