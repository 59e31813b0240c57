"""What every executable shares: one-line errors with exit code 2, and outputs that are whole or absent."""

from __future__ import annotations

import errno
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from contract import LaunchgapError

EXIT_USER_ERROR = 2

_REMEDIES = {
    errno.ENOSPC: "free some disk space and run it again",
    errno.EDQUOT: "free some of your quota and run it again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) and run it again",
    errno.EACCES: "give a path that you may write to",
    errno.EPERM: "give a path that you may write to",
    errno.EROFS: "give a path outside the read-only file system",
    errno.ENOENT: "give a path that exists or can be made",
    errno.EEXIST: "give a path where no file stands in the way of a folder",
    errno.ENOTDIR: "give a path whose parent is a folder",
    errno.EISDIR: "give a file's path, not a folder's",
}


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run an executable's `main` and exit: its return code, or 2 after one line on stderr."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        code = main()
    except LaunchgapError as error:
        sys.exit(_complain(str(error)))
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        sys.exit(_complain(f"{error.filename or 'output'}: {error.strerror}; {_REMEDIES[error.errno]}"))
    sys.exit(code or 0)


def _complain(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USER_ERROR


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        OSError: no space, no permission; the old file is then untouched and no temporary file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        # A failed write() names no file; the one line on stderr must.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    """`write_bytes_atomic` for UTF-8 text."""
    write_bytes_atomic(path, text.encode("utf-8"))


def require_writable(folder: Path) -> None:
    """Fail before the work, not after it, where its results could not be saved.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
