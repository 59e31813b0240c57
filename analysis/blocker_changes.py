"""What differs from request to request: launches that are not always there, and shapes that change."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.attribute import Attributed
from analysis.blocker_hits import stacked
from analysis.blocker_rules import COUNTS, RULES, SHAPES
from analysis.operation_keys import operations_with_keys, short_names

CHANGE_COLUMNS = (
    "kernel",
    "full_name",
    "changes",
    "fewest_calls",
    "most_calls",
    "shapes",
    "example_shapes",
    "unusual_requests",
    "us_per_request",
)

_NS_PER_US = 1_000.0
_EXAMPLES = 3


def changing_work(attributed: Attributed) -> pd.DataFrame:
    """Kernels, copies and fills that are not the same in every request; columns `CHANGE_COLUMNS`.

    `changes` is `count` where requests run different numbers of them, else `shape`: grid and block of a
    kernel, bytes of a copy or fill. `unusual_requests` are those that do not run what most do. Dearest first.
    """
    work = _named(attributed)
    counts = _by_request(work, ["kind", "full_name"], attributed)
    shaped = _by_request(work, ["kind", "full_name", "shape"], attributed)
    rows = []
    for key, group in shaped.groupby(level=["kind", "full_name"], sort=True):
        if group.ne(group[0], axis=0).any(axis=None):
            rows.append(_row(key, group, counts.T[key], work))
    table = pd.DataFrame(rows, columns=["kind", *(name for name in CHANGE_COLUMNS if name != "kernel")])
    table = table.assign(kernel=short_names(table))
    order = table.sort_values(["us_per_request", "full_name"], ascending=[False, True])
    return order[list(CHANGE_COLUMNS)].reset_index(drop=True)


def change_hits(attributed: Attributed, changes: pd.DataFrame) -> pd.DataFrame:
    """The same as hits (`analysis.blocker_hits`): each operation whose kernel's number or shape changes."""
    work = _named(attributed)
    parts = []
    for rule, kind in ((COUNTS, "count"), (SHAPES, "shape")):
        names = changes.loc[changes["changes"] == kind, "full_name"]
        rows = work[work["full_name"].isin(names)]
        detail = f"{len(names)} kernels, first {changes.loc[names.index[0], 'kernel']}" if len(names) else ""
        gpu_ns = rows["end_ns"] - rows["start_ns"]
        parts.append(rows.assign(rule=RULES.index(rule), detail=detail, host_ns=0, gpu_ns=gpu_ns))
    return stacked(parts)


def _named(attributed: Attributed) -> pd.DataFrame:
    work, keys = operations_with_keys(attributed)
    named = pd.DataFrame(keys, columns=["kind", "full_name", "shape"]).astype("object")
    named = named.iloc[work["key"]].set_axis(work.index)
    # What a replay runs is the same each time.
    return pd.concat([work[["request", "start_ns", "end_ns"]], named], axis=1)[~work["replayed"]]


def _by_request(work: pd.DataFrame, keys: list[str], attributed: Attributed) -> pd.DataFrame:
    """Number of operations of each key (rows) in each request (columns), zeros included."""
    table = work.assign(n=1).pivot_table("n", keys, "request", "sum", fill_value=0)
    return table.reindex(columns=range(len(attributed.requests)), fill_value=0).astype("int64")


def _row(key: object, shapes: pd.DataFrame, counts: pd.Series[int], work: pd.DataFrame) -> tuple[object, ...]:
    assert isinstance(key, tuple)
    kind, name = key
    usual = shapes.T.value_counts().index[0]
    named = work[work["full_name"] == name]
    spent_ns = (named["end_ns"] - named["start_ns"]).sum()
    listed = list(shapes.index.get_level_values("shape"))
    more = f" and {len(listed) - _EXAMPLES} more" if len(listed) > _EXAMPLES else ""
    return (
        kind,
        name,
        "count" if counts.min() < counts.max() else "shape",
        int(counts.min()),
        int(counts.max()),
        len(listed),
        "; ".join(listed[:_EXAMPLES]) + more,
        int((shapes.to_numpy() != np.array(usual)[:, None]).any(axis=0).sum()),
        spent_ns / max(shapes.shape[1], 1) / _NS_PER_US,
    )
