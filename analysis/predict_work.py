"""Which of an eager request's GPU work would be nodes of a graph, and which would not.

Not in a graph are the input's copy from the host, copies back to the host with the wait for them, and the
question whether a prompt packs several sequences, which transformers asks of eager only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, IntArray, has_time
from analysis.intervals import union_by_group
from analysis.launches import LaunchKind
from analysis.schema import HOST_DEVICE
from contract import LaunchgapError

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
"""CUpti_ActivityMemcpyKind."""


class Role(StrEnum):
    """What becomes of an operation in a graph."""

    NODE = "node"
    INPUT_COPY = "input-copy"
    READ_BACK = "read-back"
    PACKED = "packed-question"


WHY = {
    Role.INPUT_COPY: "copied from the host before the replay, which a latency by events does not hold",
    Role.READ_BACK: "a copy to the host, for which eager waits; what is captured cannot wait",
    Role.PACKED: "asks whether the prompt packs several sequences, for the copy to the host right after it",
}

LEFT_OUT_COLUMNS = ("role", "operations_per_request", "us_per_request", "why")

# transformers' find_packed_sequence_indices: (position_ids.diff(prepend) != 1).cumsum(-1)[:, -1] == 0, .all()
_PACKED = re.compile(
    r"DeviceScan(?:Init)?Kernel|CatArrayBatchedCopy|add<long>|Compare\w*Functor<long|direct_copy\w*.*\(long\)"
)
_PACKED_SIGNS = ("DeviceScan", "CompareEqFunctor<long>")

_NS_PER_US = 1_000.0


@dataclass(frozen=True)
class EagerWork:
    """An eager trace's requests as a graph would see them.

    Attributes:
        requests: one row each; `REQUEST_COLUMNS`, microseconds.
        left_out: what would be no node, by role; columns `LEFT_OUT_COLUMNS`.
        streams: streams that the nodes ran on.
        mean_node_us: mean duration of a node.
    """

    requests: pd.DataFrame
    left_out: pd.DataFrame
    streams: int
    mean_node_us: float


REQUEST_COLUMNS = (
    "request",
    "kernels",
    "memsets",
    "memcpys",
    "launches",
    "work_us",
    "busy_us",
    "eager_us",
)


def eager_work(attributed: Attributed, keep: Sequence[Role] = ()) -> EagerWork:
    """The requests of an eager trace that worked on the GPU.

    `work_us` is the union of the intervals of a request's nodes: on one stream their sum. `busy_us` is the
    same of all its work. `eager_us` runs from the end of the input's copy, or from the start of the range
    where there is none before the first node, to the end of the last work: what CUDA events around the
    forward pass would have told under the profiler. Operations of the roles in `keep` are taken for nodes.

    Raises:
        LaunchgapError: the trace is no baseline (see the sentences).
    """
    _check(attributed)
    work = _operations(attributed)
    work["role"] = np.where(work["role"].isin([str(role) for role in keep]), str(Role.NODE), work["role"])
    nodes = work[work["role"] == Role.NODE]
    if nodes.empty:
        raise LaunchgapError("baseline: nothing that its requests ran could be in a graph; see --keep")
    number = len(attributed.requests)
    columns: dict[str, object] = {"request": np.arange(number)}
    for name, kind in (("kernels", "kernel"), ("memsets", "memset"), ("memcpys", "memcpy")):
        columns[name] = _count(nodes[nodes["kind"] == kind], number)
    columns["launches"] = _count(attributed.launches, number)
    columns["work_us"] = _union(nodes, number) / _NS_PER_US
    columns["busy_us"] = _union(work, number) / _NS_PER_US
    table = pd.DataFrame(columns)
    table["eager_us"] = _latency_us(work, attributed.requests)
    return EagerWork(
        requests=table[_count(nodes, number) > 0].reset_index(drop=True)[list(REQUEST_COLUMNS)],
        left_out=_left_out(work, number),
        streams=len(nodes[["process", "device", "stream"]].drop_duplicates()),
        mean_node_us=float((nodes["end_ns"] - nodes["start_ns"]).mean()) / _NS_PER_US,
    )


def _check(attributed: Attributed) -> None:
    """Refuse what is no baseline.

    Raises:
        LaunchgapError: says why.
    """
    requests = attributed.requests
    replays = (attributed.launches["kind"] == LaunchKind.GRAPH).any() or len(attributed.graph_launches)
    if replays or (attributed.kernels["graph_node"] >= 0).any():
        raise LaunchgapError(
            "baseline: its requests replay CUDA graphs already, so there is nothing to predict; give the "
            "trace of the eager run"
        )
    if len(requests) < 2:
        raise LaunchgapError(
            f"baseline: the range is there {len(requests)} times, and one time has no spread to tell chance "
            "from cost; capture several requests"
        )
    starts, ends = (requests[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    overlapping = int((starts[1:] < np.maximum.accumulate(ends)[:-1]).sum())
    if overlapping:
        raise LaunchgapError(
            f"baseline: {overlapping} of its {len(requests)} ranges begin before an earlier one has ended, "
            "so their GPU work cannot be told apart; name a range whose instances come one after the other"
        )
    if attributed.operations.empty:
        raise LaunchgapError(
            f"baseline: none of its {len(requests)} ranges started GPU work on its own thread; name the "
            "range around the launches, and capture with `-t cuda,nvtx`"
        )
    devices = attributed.operations.loc[attributed.operations["device"] != HOST_DEVICE, "device"].nunique()
    if devices > 1:
        raise LaunchgapError(
            f"baseline: its requests work on {devices} GPUs, and this predicts a graph on one; choose it "
            "with --device"
        )


def _operations(attributed: Attributed) -> pd.DataFrame:
    """Single operations in order of request and start: kind, role, name and the trace's columns."""
    copies = attributed.memcpys
    role = copies["copy_kind"].map(
        {HOST_TO_DEVICE: str(Role.INPUT_COPY), DEVICE_TO_HOST: str(Role.READ_BACK)}
    )
    tables = (
        attributed.kernels.assign(kind="kernel", role=str(Role.NODE)),
        copies.assign(kind="memcpy", role=role.astype("object").fillna(str(Role.NODE)), name=""),
        attributed.memsets.assign(kind="memset", role=str(Role.NODE), name=""),
    )
    columns = ["request", "process", "device", "stream", "start_ns", "end_ns", "kind", "role", "name"]
    work = pd.concat([table[columns].astype({"name": "object"}) for table in tables], ignore_index=True)
    work = work[has_time(work) & (work["device"] != HOST_DEVICE)]
    work = work.sort_values(["request", "start_ns", "end_ns"], kind="stable", ignore_index=True)
    work.loc[_packed(work), "role"] = str(Role.PACKED)
    return work


def _packed(work: pd.DataFrame) -> IntArray:
    """Places of the question for packed sequences: by its names, right before a copy to the host."""
    names = work["name"].astype(str).tolist()
    on_device = ((work["kind"] == "memcpy") & (work["role"] == Role.NODE)).tolist()
    requests = work["request"].tolist()
    found: list[int] = []
    for copy in np.flatnonzero((work["role"] == Role.READ_BACK).to_numpy()).tolist():
        first = copy
        while first and requests[first - 1] == requests[copy]:
            if not (on_device[first - 1] or _PACKED.search(names[first - 1])):
                break
            first -= 1
        run = names[first:copy]
        if all(any(sign in name for name in run) for sign in _PACKED_SIGNS):
            found += range(first, copy)
    return np.array(found, dtype=np.int64)


def _latency_us(work: pd.DataFrame, requests: pd.DataFrame) -> pd.Series[float]:
    """`eager_us` of each request; NaN for one without work."""
    copies = work["role"] == Role.INPUT_COPY
    first = work[~copies].groupby("request")["start_ns"].min()
    before = work[copies & (work["start_ns"] <= work["request"].map(first))]
    begin = before.groupby("request")["end_ns"].max().reindex(requests.index)
    begin = begin.fillna(requests["start_ns"])
    last = work.groupby("request")["end_ns"].max().reindex(requests.index)
    return (last - begin) / _NS_PER_US


def _left_out(work: pd.DataFrame, requests: int) -> pd.DataFrame:
    rows = work[work["role"] != Role.NODE]
    spent_us = (rows["end_ns"] - rows["start_ns"]) / _NS_PER_US
    of_role = {role: spent_us[rows["role"] == role] for role in WHY}
    roles = [role for role in WHY if len(of_role[role])]
    return pd.DataFrame(
        {
            "role": [str(role) for role in roles],
            "operations_per_request": [len(of_role[role]) / requests for role in roles],
            "us_per_request": [float(of_role[role].sum()) / requests for role in roles],
            "why": [WHY[role] for role in roles],
        },
        columns=list(LEFT_OUT_COLUMNS),
    )


def _count(rows: pd.DataFrame, requests: int) -> IntArray:
    return np.bincount(rows["request"].to_numpy(dtype=np.int64), minlength=requests).astype(np.int64)


def _union(work: pd.DataFrame, requests: int) -> IntArray:
    group, starts, ends = (work[name].to_numpy(dtype=np.int64) for name in ("request", "start_ns", "end_ns"))
    return union_by_group(group, starts, ends, requests)
