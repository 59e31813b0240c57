"""What an export tells besides a `Trace` that decides about a capture: kinds of memory, the legacy stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.chrome_events import is_chrome_trace
from analysis.reading import read_table
from analysis.schema import MEMCPYS, NO_ID, open_database
from analysis.spec import Column, TableSpec

PAGEABLE_MEMORY = 0
"""ENUM_CUDA_MEM_KIND, CUPTI's kind less one: host memory that is not pinned."""

UNKNOWN_MEMORY = -1

_NULL_STREAM = 3
"""ENUM_CUPTI_STREAM_TYPE: the stream 0 of the driver, which is the legacy one."""

_PROCESS_UNIT = 2**24
_KEY = ["process", "correlation", "start_ns"]
_KINDS = TableSpec(
    MEMCPYS.source,
    (
        Column("start", "start_ns"),
        Column("globalPid", "process"),
        Column("correlationId", "correlation", NO_ID, small=True),
        Column("srcKind", "source_kind", UNKNOWN_MEMORY, small=True),
        Column("dstKind", "target_kind", UNKNOWN_MEMORY, small=True),
    ),
)


@dataclass(frozen=True)
class CaptureFacts:
    """What a file tells of memory and streams.

    Attributes:
        memory_kinds: of each copy: process, correlation, start_ns, source_kind, target_kind (ids of
            ENUM_CUDA_MEM_KIND, -1 where the file does not say).
        legacy_streams: (system process id, stream id) of the legacy stream of each context; None where the
            file does not list its streams.
    """

    memory_kinds: pd.DataFrame
    legacy_streams: frozenset[tuple[int, int]] | None

    def is_legacy(self, operations: pd.DataFrame) -> pd.Series[bool]:
        """Whether each operation ran on a legacy stream; False throughout where that is not known."""
        process = operations["process"].astype("int64") // _PROCESS_UNIT % _PROCESS_UNIT
        known = list(self.legacy_streams or ())
        if not known:
            return pd.Series(data=False, index=operations.index, dtype="bool")
        told = pd.MultiIndex.from_arrays([process, operations["stream"]]).isin(known)
        return pd.Series(told, operations.index, dtype="bool")

    def with_kinds(self, copies: pd.DataFrame) -> pd.DataFrame:
        """The copies with source_kind and target_kind, in their order."""
        kinds = self.memory_kinds.drop_duplicates(_KEY)
        found = copies.merge(kinds, on=_KEY, how="left").set_index(copies.index)
        columns = ["source_kind", "target_kind"]
        return found.assign(**{name: found[name].fillna(UNKNOWN_MEMORY).astype("int64") for name in columns})


def read_capture_facts(path: Path) -> CaptureFacts:
    """Read them from an export; of torch.profiler's traces neither is known.

    Raises:
        LaunchgapError: the file cannot be read.
    """
    if is_chrome_trace(path):
        names = [column.name for column in _KINDS.columns]
        return CaptureFacts(pd.DataFrame({name: pd.Series(dtype="int64") for name in names}), None)
    with open_database(path) as database:
        kinds = read_table(database, _KINDS)
        legacy = None
        table = "TARGET_INFO_CUDA_STREAM"
        if {"streamId", "processId", "flag"} <= database.columns.get(table, frozenset()):
            rows = database.query(f"SELECT processId, streamId, flag FROM {table}")
            null = rows[rows["flag"] == _NULL_STREAM]
            legacy = frozenset(zip(null["processId"].astype(int), null["streamId"].astype(int), strict=True))
        return CaptureFacts(kinds, legacy)
