"""What every command of launchgap shares: one-line errors with exit code 2, outputs that are whole or absent.

Standard library only: `inference`, `analysis` and `scripts` all import it.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

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
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "give a path whose links do not lead in a circle",
}


_OWN = ("analysis", "inference", "nsight", "scripts")


class _Verbose(argparse.Action):
    """`--verbose`: launchgap's own packages log everything, and an error shows where it came from."""

    on = False

    def __call__(self, *_: object) -> None:
        """Turn it on, for the rest of the process."""
        _Verbose.on = True
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
        for package in _OWN:  # of others, libraries that explain themselves at length, the usual
            logging.getLogger(package).setLevel(logging.DEBUG)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are launchgap's one line instead of a page of usage.

    It has one option already, `--verbose`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of argparse
        super().__init__(*arguments, **options)
        _Verbose.on = False
        self.add_argument(
            "--verbose",
            nargs=0,
            action=_Verbose,
            default=argparse.SUPPRESS,
            help="say more on stderr; with an error, where it came from",
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage.

        Raises:
            LaunchgapError: always.
        """
        raise LaunchgapError(f"{message}; see --help")


def run_command(main: Callable[[], int | None]) -> int:
    """The exit code of a command: what its `main` returns, or 2 after one line on stderr.

    A reader of stdout that leaves early (`| head`) ends the command quietly, as it ends other programs.
    """
    try:
        code = main()
        if sys.stdout is not None:  # closed by the shell, as by `>&-`
            sys.stdout.flush()
    except LaunchgapError as error:
        if _Verbose.on:
            traceback.print_exc()
        return _complain(str(error))
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends; nobody reads that either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        return _complain(f"{error.filename or 'output'}: {error.strerror}; {_REMEDIES[error.errno]}")
    return code or 0


def _complain(message: str) -> int:
    """One line on stderr, whatever a file or a trace put into the message."""
    line = " ".join(message.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    sys.stderr.write(f"error: {shown}\n")
    return EXIT_USER_ERROR


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        OSError: no space, no permission; the old file is then untouched and no temporary file is left.
    """
    with replaced(path) as temporary, temporary.open("wb") as file:
        file.write(data)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary file to write in the block, put in the place of `path` at its end and removed on failure.

    What a link leads to is replaced, not the link, and keeps its permissions. A device or a pipe, such as
    /dev/stdout, cannot be replaced: it is given itself to write to.

    Raises:
        OSError: no space, no permission; names `path`.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not (target.is_file() or target.is_dir()):
        yield target
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
        temporary.replace(target)
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
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
