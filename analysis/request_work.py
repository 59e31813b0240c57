"""What belongs to one request of a trace: its work on the GPU, and the calls of its thread meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, has_time
from analysis.operation_keys import COPY_DIRECTIONS
from analysis.schema import HOST_DEVICE, NO_ID
from analysis.timeline import WorkKind
from analysis.trace import Trace
from contract import LaunchgapError

OPERATION_TABLES = ("kernels", "memcpys", "memsets", "graph_launches")
"""Tables of `Attributed` that hold what ran on the GPU."""

WORK_COLUMNS = ("kind", "name", "shape", "process", "device", "stream", "start_ns", "end_ns", "call")

_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def only_request(attributed: Attributed, number: int) -> Attributed:
    """One request by itself, as number 0, for every function that takes requests.

    Raises:
        LaunchgapError: there is no request of this number.
    """
    count = len(attributed.requests)
    if not 0 <= number < count:
        raise LaunchgapError(f"request {number}: there are {count}; give a number from 0 to {count - 1}")
    tables = {name: getattr(attributed, name) for name in ("launches", *OPERATION_TABLES)}
    own = {name: table[table["request"] == number].assign(request=0) for name, table in tables.items()}
    rows = attributed.requests.iloc[[number]].reset_index(drop=True)
    return replace(
        attributed, requests=rows, **{name: table.reset_index(drop=True) for name, table in own.items()}
    )


def work_of_request(attributed: Attributed, request: int) -> pd.DataFrame:
    """The request's operations, by start; columns `WORK_COLUMNS`. `kind` is a `WorkKind`, `shape` words."""
    named = {
        WorkKind.KERNEL: _named_kernels(_own(attributed.kernels, request)),
        WorkKind.COPY: _named_copies(_own(attributed.memcpys, request)),
        WorkKind.FILL: _own(attributed.memsets, request).assign(name="fill"),
        WorkKind.GRAPH: _named_graphs(_own(attributed.graph_launches, request)),
    }
    sized = (WorkKind.COPY, WorkKind.FILL)
    tables = []
    for kind, table in named.items():
        if kind in sized:
            table = table.assign(shape=[f"{size} bytes" for size in table["bytes"]])  # noqa: PLW2901
        tables.append(
            table.assign(kind=kind)[list(WORK_COLUMNS)].astype({"name": "object", "shape": "object"})
        )
    found = pd.concat(tables, ignore_index=True)
    return found.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)


def with_time(work: pd.DataFrame) -> pd.DataFrame:
    """Of a request's operations those that ran on a GPU at a known time."""
    timed: pd.DataFrame = work[has_time(work) & (work["device"] != HOST_DEVICE)]
    return timed.reset_index(drop=True)


def calls_of_thread(trace: Trace, thread: int, first_ns: int, last_ns: int) -> pd.DataFrame:
    """Rows of the trace's calls on a thread that the span sees any of; of equal starts the longest first."""
    table = trace.api_calls
    seen = (table["start_ns"] < last_ns) & (table["end_ns"] > first_ns)
    inside = (table["start_ns"] >= first_ns) & (table["end_ns"] <= last_ns)
    table = table[(table["thread"] == thread) & (seen | inside)]
    return table.iloc[np.lexsort((-table["end_ns"].to_numpy(), table["start_ns"].to_numpy()))]


def _own(table: pd.DataFrame, request: int) -> pd.DataFrame:
    return table[table["request"] == request].reset_index(drop=True)


def _named_kernels(table: pd.DataFrame) -> pd.DataFrame:
    shapes = table[list(_SHAPE)].to_numpy().tolist()
    words = [f"grid {a}×{b}×{c}, block {d}×{e}×{f}" for a, b, c, d, e, f in shapes]
    names = table["name"].astype("object").fillna("")
    return table.assign(name=names, shape=pd.Series(words, table.index, dtype="object"))


def _named_copies(table: pd.DataFrame) -> pd.DataFrame:
    names = [f"copy {COPY_DIRECTIONS.get(int(kind), f'of kind {kind}')}" for kind in table["copy_kind"]]
    return table.assign(name=pd.Series(names, table.index, dtype="object"))


def _named_graphs(table: pd.DataFrame) -> pd.DataFrame:
    names = [f"graph {graph}" if graph != NO_ID else "graph" for graph in table["graph"].tolist()]
    return table.assign(name=pd.Series(names, table.index, dtype="object"), shape="a whole replay")
