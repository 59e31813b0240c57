"""What makes two GPU operations of different traces the same: kind, name and shape."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from analysis.attribute import Attributed
from analysis.kernel_names import shorten_all
from analysis.launches import LaunchKind

COPY_DIRECTIONS = {
    **{1: "host to device", 2: "device to host", 8: "device to device", 9: "host to host"},
    **{10: "device to other device", 3: "host to array", 4: "array to host", 5: "array to array"},
    **{6: "array to device", 7: "device to array"},
}
"""CUpti_ActivityMemcpyKind, as in ENUM_CUDA_MEMCPY_OPER of an export."""

_AXES = tuple(f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz")


class Key(NamedTuple):
    """What makes two operations the same."""

    kind: str
    name: str
    shape: str


def operations_with_keys(attributed: Attributed) -> tuple[pd.DataFrame, list[Key]]:
    """Single operations by request and start: request, call, stream, start_ns, end_ns, key, replayed.

    `key` is the place of the operation's key in the list. `replayed`: launched by a graph launch.
    """
    tables = (_kernels(attributed.kernels), _copies(attributed.memcpys), _fills(attributed.memsets))
    columns = ["request", "call", "stream", "start_ns", "end_ns", "kind", "name", "shape"]
    work = pd.concat([table[columns] for table in tables], ignore_index=True)
    # Of operations that start together any fixed order will do.
    work = work.sort_values(["request", "start_ns", "end_ns", "stream", "name", "shape"], ignore_index=True)
    number, keys = pd.factorize(pd.MultiIndex.from_frame(work[["kind", "name", "shape"]]))
    replays = attributed.launches.loc[attributed.launches["kind"] == LaunchKind.GRAPH, "call"]
    work = work.assign(key=number, replayed=work["call"].isin(replays))
    return work, [Key(*key) for key in keys]


def _kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    shape = pd.Series("", index=kernels.index, dtype="object")
    for _, rows in kernels.groupby(list(_AXES)):
        numbers = [str(value) for value in rows[list(_AXES)].iloc[0]]
        shape.loc[rows.index] = f"grid {'x'.join(numbers[:3])} block {'x'.join(numbers[3:])}"
    name = kernels["name"].astype("object").fillna("")
    return kernels.assign(kind=str(LaunchKind.KERNEL), name=name, shape=shape)


def _copies(copies: pd.DataFrame) -> pd.DataFrame:
    name = [f"copy {COPY_DIRECTIONS.get(int(kind), f'of kind {kind}')}" for kind in copies["copy_kind"]]
    return _sized(copies, LaunchKind.MEMCPY).assign(name=pd.Series(name, copies.index, dtype="object"))


def _fills(fills: pd.DataFrame) -> pd.DataFrame:
    return _sized(fills, LaunchKind.MEMSET).assign(name=pd.Series("fill", fills.index, dtype="object"))


def _sized(rows: pd.DataFrame, kind: LaunchKind) -> pd.DataFrame:
    shape = [f"{size} bytes" for size in rows["bytes"]]
    return rows.assign(kind=str(kind), shape=pd.Series(shape, rows.index, dtype="object"))


def short_names(work: pd.DataFrame) -> list[str]:
    """Short names for a table with kind and full_name; those of copies and fills are short already."""
    kernels = work["kind"] == LaunchKind.KERNEL
    short = shorten_all(work.loc[kernels, "full_name"])
    names = zip(work["full_name"], kernels, strict=True)
    return [short[name] if is_kernel else name for name, is_kernel in names]
