"""The summaries of a trace of any size straight from its file: a few columns of a large table, never all.

`analysis.trace.read_trace` holds every column of every event, which takes two gigabytes for ten million
kernels. Here kernels and API calls are summed up as they come; what is left of the file is small and kept as
a `Trace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import schema
from analysis.attribute import NO_CALL, IntArray, call_of
from analysis.bulk import IntArray as BulkArray
from analysis.containment import Spans
from analysis.grouping import AnyIntArray
from analysis.launches import launch_kind
from analysis.range_counts import count_in_ranges
from analysis.reading import DURATION, read_columns
from analysis.summaries import range_summary, summary
from analysis.trace import Trace, named, read_trace

_SUMMED = ("name", DURATION)
_CALLED = ("thread", "correlation", "start_ns")
_STARTED = ("process", "correlation")


@dataclass(frozen=True)
class Summary:
    """What `nsys stats` tells of a whole trace; columns as in `analysis.summaries`.

    Attributes:
        kernels: as `kernel_summary`.
        api_calls: as `api_summary`.
        ranges: as `range_summary`; if counted, with launching_instances (that have a launch inside),
            launches, and operations (GPU work that these started), a call once for each name. Ranges that
            ended on another thread hold none.
        unlaunched: GPU operations that no launch call started; None if ranges were not counted.
        rest: the trace without rows of kernels and API calls: its copies, fills and ranges, and what it tells
            of itself.
    """

    kernels: pd.DataFrame
    api_calls: pd.DataFrame
    ranges: pd.DataFrame
    unlaunched: int | None
    rest: Trace


def summarise(path: Path, *, count_ranges: bool = True) -> Summary:
    """Sum up a trace without holding it.

    With `count_ranges` launches are matched with what they started and with the ranges that they lie in,
    which takes twice the time and memory of the summaries alone.

    Raises:
        LaunchgapError: as `read_trace`.
    """
    rest = read_trace(path, small_tables_only=True)
    ranges = range_summary(rest)
    with schema.open_database(path) as database:
        strings = schema.read_strings(database)
        columns = read_columns(database, schema.API_CALLS, _SUMMED + _CALLED * count_ranges)
        api_calls, names = _by_name(columns, strings)
        launches = _launches(columns, names) if count_ranges else None
        columns = read_columns(database, schema.KERNELS, _SUMMED + _STARTED * count_ranges)
        kernels, _ = _by_name(columns, strings)
    if launches is None:
        return Summary(kernels, api_calls, ranges, None, rest)
    started = pd.DataFrame({name: columns[name] for name in _STARTED}, copy=False)
    work = (started, rest.memcpys, rest.memsets, rest.graph_launches)
    operations, unlaunched = _operations_of(launches, work)
    counted = _with_counts(ranges, rest.ranges, launches, operations)
    return Summary(kernels, api_calls, counted, unlaunched, rest)


def _launches(calls: dict[str, BulkArray], names: pd.Categorical[str]) -> pd.DataFrame:
    """The launches among all calls, with process and end_ns; the calls' columns are emptied on the way."""
    is_launch = np.array([launch_kind(name) is not None for name in names.categories], dtype=np.bool_)
    wanted = is_launch[names.codes]
    launches = pd.DataFrame({name: calls.pop(name)[wanted] for name in list(calls)}, copy=False)
    launches["process"] = launches["thread"].to_numpy() & schema.PROCESS_MASK
    launches["end_ns"] = launches["start_ns"] + launches.pop(DURATION)
    return launches


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
