"""Watches what a process and its descendants listen on while they run."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from types import TracebackType

_TABLES = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""Tables in /proc/net and the state there of a socket that waits for somebody; UDP knows no other."""

_LOOK_EVERY_S = 0.1


class ListeningWatch:
    """While its block runs, finds every socket of a tree of processes that anybody could connect to.

    `mark` is a `NAME=value` that all of the tree, and nothing else, has in its environment.
    """

    def __init__(self, *marks: str) -> None:
        self._marks = [mark.encode() for mark in marks]
        self._foreign = set(_waiting())
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.found: set[str] = set()
        self.looks = 0

    def __enter__(self) -> ListeningWatch:
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_EVERY_S):
            self.looks += 1
            sockets = {inode: where for inode, where in _waiting().items() if inode not in self._foreign}
            if not sockets:
                continue
            ours = _inodes_of(self._marks)
            self.found |= {f"{ours[inode]}: {sockets[inode]}" for inode in sockets.keys() & ours.keys()}
            self._foreign |= sockets.keys() - ours.keys()


def _waiting() -> dict[str, str]:
    """Sockets that wait for a connection or a datagram: inode, and where."""
    found = {}
    for table, state in _TABLES.items():
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state:
                found[words[9]] = f"{table} {words[1]}"
    return found


def _inodes_of(marks: list[bytes]) -> dict[str, str]:
    """Inodes of all sockets that processes with one of the marks have open, and the name of the process."""
    found: dict[str, str] = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or not any(m in (entry / "environ").read_bytes() for m in marks):
                continue
            links = [os.readlink(entry / "fd" / name) for name in os.listdir(entry / "fd")]  # noqa: PTH115, PTH208
            name = (entry / "comm").read_text().strip()
        except OSError:
            continue
        found |= {match[1]: name for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
    return found
