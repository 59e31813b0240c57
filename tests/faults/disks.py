"""A disk that is full after so many bytes: a real one where it may be mounted, else a limit on file sizes."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE_BYTES = 4096

FULL = (": No space left on device; free some disk space", ": File too large; raise the limit on file sizes")
"""What a command says on either kind of disk."""


@contextmanager
def small_disk(folder: Path, free_bytes: int, limit_bytes: int) -> Iterator[None]:
    """In the block `folder`, made here, has room for so many bytes, in whole pages, and none for one more.

    Where nothing may be mounted no file of the process can have more than `limit_bytes` instead.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = (free_bytes // PAGE_BYTES + 1) * PAGE_BYTES  # a disk without a page cannot be had: one is used up
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            (folder / ".used").write_bytes(b"x" * PAGE_BYTES)
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def made(folder: Path) -> list[Path]:
    """Files in a folder, in the order in which they were written, but for what uses up its disk."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".used"]
    return sorted(files, key=lambda path: path.stat().st_mtime_ns)


def room_for_all_before(files: list[Path]) -> list[tuple[int, int]]:
    """For each file: room for those before it on a disk, and a limit that is too small for this one."""
    sizes = [path.stat().st_size for path in files]
    pages = [-(-size // PAGE_BYTES) for size in sizes]
    return [(sum(pages[:index]) * PAGE_BYTES, size - 1) for index, size in enumerate(sizes)]
