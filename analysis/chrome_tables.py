"""Puts the events of a Chrome trace into tables, one row each, and finds out which process they belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.chrome_events import Document, Event, Kind, arguments, complain, duration_ns, start_ns, whole
from analysis.schema import NO_ID, PROCESS_MASK
from analysis.trace import DEFAULT_DOMAIN
from contract import NVTX_DOMAIN, LaunchgapError, RangeName

COPY_KINDS = ("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
"""CUPTI's kinds of copies by number, as libkineto spells them in a copy's name."""

_OWN_RANGES = frozenset(map(str, RangeName))
_MAX_ID = 0xFFFFFF
_PROCESS_SHIFT = 24


class Tables:
    """Makes the tables of one document; knows which process and thread each event belongs to."""

    def __init__(self, document: Document) -> None:
        self._path = document.path
        self._events = document.events
        self._calls = document.events[Kind.RUNTIME] + document.events[Kind.DRIVER]
        self._processes, self._threads = _Ids(), _Ids()
        self._owner = self._owners()

    def operations(self, kind: Kind) -> pd.DataFrame:
        """GPU work of one kind, as `analysis.trace.Trace` describes it."""
        return frame_of(
            [self._operation(kind, event) for event in self._events[kind]], _OPERATION_COLUMNS[kind]
        )

    def api_calls(self) -> pd.DataFrame:
        """CUDA runtime and driver calls."""
        rows = []
        for event in self._calls:
            start, end = self._span(event)
            correlation = whole(self._path, event, arguments(event), "correlation", NO_ID)
            rows.append((start, end, self._thread(event), correlation, str(event.get("name", ""))))
        frame = frame_of(rows, ("start_ns", "end_ns", "thread", "correlation", "name"))
        return frame.assign(process=frame["thread"] & PROCESS_MASK)

    def ranges(self) -> pd.DataFrame:
        """Ranges in order of time. A range of launchgap's own names is of its domain, as under nsys."""
        rows = []
        for event in self._events[Kind.RANGE]:
            name, start = str(event.get("name", "")), start_ns(self._path, event)
            duration, args = duration_ns(self._path, event), arguments(event)
            domain = args.get("domain", NVTX_DOMAIN if name in _OWN_RANGES else DEFAULT_DOMAIN)
            end = pd.NA if duration is None else start + duration
            same_thread = not args.get("ends on another thread", False)
            rows.append((start, end, self._thread(event), same_thread, str(domain), name))
        frame = pd.DataFrame(rows, columns=["start_ns", "end_ns", "thread", "same_thread", "domain", "name"])
        kinds = {"start_ns": "int64", "end_ns": "Int64", "thread": "int64", "same_thread": "bool"}
        frame = frame.astype(kinds | {"domain": "object", "name": "object"})
        frame = frame.assign(process=frame["thread"] & PROCESS_MASK)
        return frame.sort_values(["start_ns", "thread"], kind="stable", ignore_index=True)

    def _operation(self, kind: Kind, event: Event) -> tuple[Any, ...]:
        args, path = arguments(event), self._path
        start, end = self._span(event)
        correlation = whole(path, event, args, "correlation", NO_ID)
        device = whole(path, event, args, "device", whole(path, event, args, "inDevice", -2))
        if device == -2:
            device = whole(path, event, event, "pid", 0)
        stream = whole(path, event, args, "stream", NO_ID)
        green = whole(path, event, args, "green context", NO_ID)
        common = (start, end, self._owner(event, correlation), device, green, stream, correlation)
        if kind is Kind.GRAPH:
            return (*common, whole(path, event, args, "graph id", NO_ID))
        node = whole(path, event, args, "graph node id", 0) or NO_ID  # 0 stands for no node
        if kind is Kind.KERNEL:
            shape = (*_axes(args.get("grid")), *_axes(args.get("block")))
            return (*common, node, str(event.get("name", "")), *shape)
        size = whole(path, event, args, "bytes", 0)
        copied = (_copy_kind(str(event.get("name", ""))),) if kind is Kind.MEMCPY else ()
        return (*common, node, size, *copied)

    def _span(self, event: Event) -> tuple[int, int]:
        start, duration = start_ns(self._path, event), duration_ns(self._path, event)
        if duration is None:
            complain(self._path, event, "dur")
        return start, start + duration

    def _process(self, pid: object) -> int:
        return self._processes.of(pid) << _PROCESS_SHIFT

    def _thread(self, event: Event) -> int:
        """Thread id in the way of nsys: the process id above 24 bits of thread id."""
        args = arguments(event)
        pid, tid = args.get("pid", event.get("pid")), args.get("tid", event.get("tid"))
        return self._process(pid) | self._threads.of(tid)

    def _owners(self) -> Callable[[Event, int], int]:
        """Process of a GPU event: the one it names, the only one there is, or the one that launched it."""
        processes = {self._process(event.get("pid")) for event in self._calls or self._events[Kind.RANGE]}
        callers: dict[int, set[int]] = defaultdict(set)
        if len(processes) > 1:
            for event in self._calls:
                correlation = arguments(event).get("correlation")
                callers[correlation if isinstance(correlation, int) else NO_ID].add(
                    self._process(event.get("pid"))
                )

        def owner(event: Event, correlation: int) -> int:
            named = arguments(event).get("pid")
            if named is not None:
                return self._process(named)
            found = processes if len(processes) == 1 else callers[correlation]
            if len(found) > 1:
                raise LaunchgapError(
                    f"{self._path}: merged of {len(processes)} processes with equal correlation ids, so "
                    "their GPU work cannot be told apart; give the file of one process"
                )
            return next(iter(found), 0)

        return owner


class _Ids:
    """Gives every process or thread a number of at most 24 bits: its own where it has one."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._next = _MAX_ID

    def of(self, told: object) -> int:
        """The number of a process or thread id as the file has it."""
        if isinstance(told, int) and 0 <= told <= _MAX_ID >> 1:
            return told
        key = repr(told)
        if key not in self._given:
            self._given[key] = self._next
            self._next -= 1
        return self._given[key]


_COMMON = ("start_ns", "end_ns", "process", "device", "green_context", "stream", "correlation")
NODE_COLUMNS = ("start_ns", "end_ns", "thread", "graph_node", "original")
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_OPERATION_COLUMNS: Mapping[Kind, tuple[str, ...]] = {
    Kind.KERNEL: (*_COMMON, "graph_node", "name", *_SHAPE),
    Kind.MEMCPY: (*_COMMON, "graph_node", "bytes", "copy_kind"),
    Kind.MEMSET: (*_COMMON, "graph_node", "bytes"),
    Kind.GRAPH: (*_COMMON, "graph"),
}


def frame_of(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows as int64 columns; `name` as a category."""
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype({name: "category" if name == "name" else "int64" for name in columns})


def _axes(value: object) -> tuple[int, int, int]:
    """A launch shape; zeros where the file has none, as for any column that an export lacks."""
    if isinstance(value, list) and len(value) == 3 and all(isinstance(axis, int) for axis in value):
        return (value[0], value[1], value[2])
    return (0, 0, 0)


def _copy_kind(name: str) -> int:
    words = name.split()
    return COPY_KINDS.index(words[1]) if len(words) > 1 and words[1] in COPY_KINDS else NO_ID
