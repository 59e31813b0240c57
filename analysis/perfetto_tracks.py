"""Where each event of a trace goes on Perfetto's screen: groups are processes, tracks are threads of it.

Perfetto draws the events of one track properly only if they nest, so whatever overlaps without nesting gets a
further lane (kernels of parallel branches of a graph, start/end ranges). A GPU is a group per process that
used it, its streams are the tracks. Ids below 2^24 are the system's; those that are made up here lie above.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Metadata = tuple[str, int, int, dict[str, object]]
"""Name, process, thread and `args` of an event that names or orders tracks."""

_SYSTEM_BITS = 24
_SYSTEM_MASK = (1 << _SYSTEM_BITS) - 1
_FIRST_OWN_ID = 1 << _SYSTEM_BITS


@dataclass(frozen=True)
class Place:
    """A track of the screen: Perfetto's process and thread."""

    pid: int
    tid: int


class Tracks:
    """Gives out tracks; the same key has the same one. Host groups come first, GPUs below them."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], int] = {}
        self._tracks: dict[tuple[object, ...], Place] = {}
        self._processes: dict[int, str] = {}
        self._named: list[Metadata] = []
        self._next_id = _FIRST_OWN_ID

    def process(self, process: int) -> int:
        """The group of a process, by its serialized id; two machines may have the same system id."""
        key = ("process", process)
        if key not in self._groups:
            system_id = (process >> _SYSTEM_BITS) & _SYSTEM_MASK
            taken = not system_id or system_id in self._groups.values()
            pid = self._new_id() if taken else system_id
            self._processes[process] = f"process {system_id}" + (" of another machine" if taken else "")
            self._add_group(key, pid, self._processes[process])
        return self._groups[key]

    def host(self, thread: int, what: str, order: int, lane: int = 0) -> Place:
        """A track of a thread by its serialized id: `what` is drawn there, lowest `order` on top."""
        tid = thread & _SYSTEM_MASK
        pid = self.process(thread & ~_SYSTEM_MASK)
        return self._track(("host", thread, what, lane), pid, f"{what} · thread {tid}", order, lane)

    def gpu(self, process: int, device: str, what: str, order: int, lane: int = 0) -> Place:
        """A track of a device, by its title, as one process used it."""
        key = ("gpu", process, device)
        if key not in self._groups:
            self.process(process)
            self._add_group(key, self._new_id(), f"{device} · {self._processes[process]}")
        return self._track((*key, what, lane), self._groups[key], what, order, lane)

    def metadata(self) -> Iterator[Metadata]:
        """Names and order of all groups and tracks given out."""
        return iter(self._named)

    def _add_group(self, key: tuple[object, ...], pid: int, name: str) -> None:
        self._groups[key] = pid
        self._named.append(("process_name", pid, pid, {"name": name}))
        self._named.append(("process_sort_index", pid, pid, {"sort_index": len(self._groups)}))

    def _track(self, key: tuple[object, ...], pid: int, name: str, order: int, lane: int) -> Place:
        if key not in self._tracks:
            place = Place(pid, self._new_id())
            self._tracks[key] = place
            shown = name if lane == 0 else f"{name} ({lane + 1})"
            self._named.append(("thread_name", pid, place.tid, {"name": shown}))
            self._named.append(("thread_sort_index", pid, place.tid, {"sort_index": order}))
        return self._tracks[key]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def lanes(starts: IntArray, ends: IntArray) -> IntArray:
    """The lane of each event, from 0: within a lane any two events follow each other or nest.

    Events come ordered by start, and of equal starts the longest first. The lowest lane that fits is taken.
    """
    chosen = np.zeros(len(starts), dtype=np.int64)
    open_ends: list[list[int]] = []
    for position, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        for stack in open_ends:
            while stack and stack[-1] <= start:
                stack.pop()
        lane = next((i for i, stack in enumerate(open_ends) if not stack or end <= stack[-1]), len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        chosen[position] = lane
    return chosen
