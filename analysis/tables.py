"""The tables of a case: what one request did, per strategy and trace mode, and eager against each graph.

Units are in the column names. A cell that the trace cannot show is NA, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.attribute import (
    Attributed,
    IntArray,
    count_by_request,
    has_time,
    hidden_requests,
    untimed_requests,
)
from analysis.intervals import union_by_group
from analysis.kernel_names import shorten_all
from analysis.launches import LaunchKind
from contract import Strategy, TraceMode

REQUEST_COLUMNS = (
    "strategy",
    "trace_mode",
    "request",
    "kernels",
    "memcpys",
    "memsets",
    "graph_launches",
    "launches",
    "launch_api_us",
    "gpu_busy_us",
    "gpu_span_us",
    "range_us",
)
LAUNCH_COLUMNS = (
    "strategy",
    "trace_mode",
    "api",
    "kind",
    "calls_per_request",
    "launch_api_us_per_request",
    "mean_us",
    "p50_us",
    "max_us",
)
KERNEL_COLUMNS = (
    "strategy",
    "kernel",
    "full_name",
    "calls_per_request",
    "total_us_per_request",
    "mean_us",
    "min_us",
    "max_us",
    "share_percent",
)
COMPARISON_COLUMNS = (
    "strategy",
    "kernel",
    "full_name",
    "eager_calls_per_request",
    "graph_calls_per_request",
    "eager_us_per_request",
    "graph_us_per_request",
    "difference_us",
)

_NS_PER_US = 1_000.0
_DECIMALS = 4


@dataclass(frozen=True)
class TraceLabel:
    """Which trace of a case a row comes from."""

    strategy: str
    trace_mode: TraceMode


@dataclass(frozen=True)
class CountedTrace:
    """What one trace shows of its requests, and whether it saw a GPU at all."""

    label: TraceLabel
    attributed: Attributed
    has_gpu: bool


def requests_table(traces: Sequence[CountedTrace]) -> pd.DataFrame:
    """One row per request of each trace; columns `REQUEST_COLUMNS`.

    Counts of single operations are NA for a request that launched a graph whose nodes the trace does not
    show, GPU times where a graph's own time is missing, and every GPU column where the trace saw no GPU.
    Busy time is the union of the intervals on each device, summed over devices; the span runs from the first
    start to the last end.
    """
    return stacked([_requests(trace) for trace in traces], REQUEST_COLUMNS)


def launches_table(traces: Sequence[CountedTrace]) -> pd.DataFrame:
    """Launch calls inside requests by API name, suffixes aside; columns `LAUNCH_COLUMNS`."""
    return stacked([_launches(trace) for trace in traces], LAUNCH_COLUMNS)


def kernels_table(traces: Sequence[CountedTrace]) -> pd.DataFrame:
    """Kernels inside requests by full name, from node-mode traces; columns `KERNEL_COLUMNS`.

    A full name has the same short one in all strategies of the case. The share is of the strategy's own
    kernel time.
    """
    node = [trace for trace in traces if trace.label.trace_mode is TraceMode.NODE]
    # Without its nodes a graph's kernels would be the few that were launched beside it.
    parts = [_kernels(trace) for trace in node if not hidden_requests(trace.attributed).size]
    table = stacked(parts, KERNEL_COLUMNS)
    short = shorten_all(table["full_name"])
    return table.assign(kernel=[short[name] for name in table["full_name"]])


def comparison_table(kernels: pd.DataFrame) -> pd.DataFrame:
    """Eager against every other strategy of `kernels_table` by full name; columns `COMPARISON_COLUMNS`.

    A kernel that one side does not run counts 0 there. `difference_us` is graph minus eager: positive is more
    GPU time in the graph. Largest changes first.
    """
    eager = kernels[kernels["strategy"] == Strategy.EAGER]
    others = [name for name in pd.unique(kernels["strategy"]) if name != Strategy.EAGER]
    if eager.empty:
        others = []
    parts = [_compared(eager, kernels[kernels["strategy"] == name], name) for name in others]
    return stacked(parts, COMPARISON_COLUMNS)


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV with a header: NA as an empty cell, numbers with at most four decimals."""
    return table.round(_DECIMALS).to_csv(index=False, lineterminator="\n")


def _requests(trace: CountedTrace) -> pd.DataFrame:
    found = trace.attributed
    n = len(found.requests)
    columns: dict[str, object] = {
        "strategy": trace.label.strategy,
        "trace_mode": str(trace.label.trace_mode),
        "request": np.arange(n),
        "range_us": (found.requests["end_ns"] - found.requests["start_ns"]).to_numpy() / _NS_PER_US,
    }
    table = pd.DataFrame(columns, index=range(n)).reindex(columns=list(REQUEST_COLUMNS))
    if not trace.has_gpu:
        return table.astype(_count_types())
    for name, rows in (("kernels", found.kernels), ("memcpys", found.memcpys), ("memsets", found.memsets)):
        table[name] = pd.array(count_by_request(rows, n), dtype="Int64")
        table.loc[hidden_requests(found), name] = pd.NA
    graphs = found.launches[found.launches["kind"] == LaunchKind.GRAPH]
    table["graph_launches"] = count_by_request(graphs, n)
    table["launches"] = count_by_request(found.launches, n)
    table["launch_api_us"] = _sum_by_request(found.launches, n) / _NS_PER_US
    timed = found.operations[has_time(found.operations)]
    table["gpu_busy_us"] = _busy_ns(timed, n) / _NS_PER_US
    span = timed.groupby("request").agg(first=("start_ns", "min"), last=("end_ns", "max")).reindex(range(n))
    table["gpu_span_us"] = (span["last"] - span["first"]) / _NS_PER_US
    table.loc[untimed_requests(found), ["gpu_busy_us", "gpu_span_us"]] = np.nan
    return table.astype(_count_types())


def _count_types() -> dict[str, str]:
    return dict.fromkeys(("kernels", "memcpys", "memsets", "graph_launches", "launches"), "Int64")


def _launches(trace: CountedTrace) -> pd.DataFrame:
    rows, n = trace.attributed.launches, len(trace.attributed.requests)
    duration_us = (rows["end_ns"] - rows["start_ns"]) / _NS_PER_US
    grouped = duration_us.groupby([rows["api"], rows["kind"]])
    table = grouped.agg(["count", "sum", "mean", "median", "max"]).reset_index()
    table.columns = pd.Index(["api", "kind", "calls", "total_us", "mean_us", "p50_us", "max_us"])
    table = table.assign(
        strategy=trace.label.strategy,
        trace_mode=str(trace.label.trace_mode),
        calls_per_request=table["calls"] / max(n, 1),
        launch_api_us_per_request=table["total_us"] / max(n, 1),
    )
    return table.sort_values(["launch_api_us_per_request", "api"], ascending=[False, True])


def _kernels(trace: CountedTrace) -> pd.DataFrame:
    rows, n = trace.attributed.kernels, len(trace.attributed.requests)
    duration_us = (rows["end_ns"] - rows["start_ns"]) / _NS_PER_US
    table = duration_us.groupby(rows["name"], observed=True).agg(["count", "sum", "mean", "min", "max"])
    table.columns = pd.Index(["calls", "total_us", "mean_us", "min_us", "max_us"])
    table = table.rename_axis("full_name").reset_index()
    table = table.assign(
        strategy=trace.label.strategy,
        full_name=table["full_name"].astype("object"),
        calls_per_request=table["calls"] / max(n, 1),
        total_us_per_request=table["total_us"] / max(n, 1),
        share_percent=table["total_us"] * 100.0 / max(float(table["total_us"].sum()), 1e-9),
    )
    return table.sort_values(["total_us", "full_name"], ascending=[False, True])


def _compared(eager: pd.DataFrame, other: pd.DataFrame, strategy: str) -> pd.DataFrame:
    sides: Mapping[str, pd.DataFrame] = {"eager": eager, "graph": other}
    kept = ["kernel", "full_name", "calls_per_request", "total_us_per_request"]
    renamed = [
        side[kept].rename(
            columns={
                "calls_per_request": f"{name}_calls_per_request",
                "total_us_per_request": f"{name}_us_per_request",
            }
        )
        for name, side in sides.items()
    ]
    table = renamed[0].merge(renamed[1], on=["kernel", "full_name"], how="outer").fillna(0.0)
    table = table.assign(
        strategy=strategy, difference_us=table["graph_us_per_request"] - table["eager_us_per_request"]
    )
    size = table["difference_us"].abs()
    return table.assign(size=size).sort_values(["size", "full_name"], ascending=[False, True])


def _busy_ns(operations: pd.DataFrame, requests: int) -> IntArray:
    device, devices = pd.factorize(pd.MultiIndex.from_frame(operations[["process", "device"]]))
    width = max(len(devices), 1)
    group = operations["request"].to_numpy(dtype=np.int64) * width + device
    starts, ends = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    by_device = union_by_group(group, starts, ends, requests * width).reshape(requests, width)
    return np.asarray(by_device.sum(axis=1), dtype=np.int64)


def _sum_by_request(calls: pd.DataFrame, requests: int) -> IntArray:
    total_ns = np.zeros(requests, dtype=np.int64)
    duration_ns = (calls["end_ns"] - calls["start_ns"]).to_numpy(dtype=np.int64)
    np.add.at(total_ns, calls["request"].to_numpy(dtype=np.int64), duration_ns)
    return total_ns


def stacked(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """The parts below each other, with exactly these columns."""
    whole = [part.reindex(columns=list(columns)) for part in parts if len(part)]
    if not whole:
        return pd.DataFrame({name: pd.Series(dtype="object") for name in columns})
    return pd.concat(whole, ignore_index=True)
