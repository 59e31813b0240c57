"""What every command of launchgap shares: one-line errors with exit code 2, outputs that are whole or absent.

Standard library only: `inference`, `analysis` and `scripts` all import it.
"""

from __future__ import annotations

import argparse
import codecs
import ctypes
import errno
import io
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from contract import LaunchgapError

EXIT_USER_ERROR = 2

_PRINTED = "launchgap-printed"

STARTER_VARIABLE = "LAUNCHGAP_STARTER"
"""Environment variable that names the Snakemake whose jobs end with it; rules/settings.py sets it."""

_PR_SET_PDEATHSIG = 1

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


_LESS_MEMORY = "use a smaller model, dtype or length, or end what else takes memory"
_MEND_GPU = (
    "the GPU or its driver failed: see nvidia-smi and `dmesg | grep Xid`, reset or reboot, then start again"
)

# What torch says of a machine that failed, in the words of CUDA. Its other errors, an illegal memory access
# among them, are defects of a program and keep their traceback.
_MACHINE_FAILURES = (
    (r"CUDA out of memory|CUDA error: (out of memory|CUBLAS_STATUS_ALLOC_FAILED)", _LESS_MEMORY),
    (r"can't allocate memory|Cannot allocate memory", _LESS_MEMORY),
    (
        r"CUDA error: (unknown error|unspecified launch failure|hardware stack error|.*uncorrectable"
        r"|.*NVLink|initialization error|driver shutting down|system not yet initialized"
        r"|no CUDA-capable device|.*busy or unavailable|.*launch timed out)",
        _MEND_GPU,
    ),
)

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

    A reader of stdout that leaves early (`| head`) ends the command quietly, as it ends other programs. A
    letter that the locale has not is a question mark, no error.
    """
    _print_anything()
    try:
        code = main()
        if sys.stdout is not None:  # closed by the shell, as by `>&-`
            sys.stdout.flush()
    except LaunchgapError as error:
        if _Verbose.on:
            traceback.print_exc()
        return _complain(str(error))
    except (MemoryError, RuntimeError) as error:
        failure = machine_failure(error)
        if failure is None:
            raise
        if _Verbose.on:
            traceback.print_exc()
        return _complain(str(failure))
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends; nobody reads that either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        return _complain(f"{error.filename or 'output'}: {error.strerror}; {_REMEDIES[error.errno]}")
    return code or 0


def _print_anything() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_PRINTED)


def _printable(error: UnicodeError) -> tuple[str | bytes, int]:
    """For what cannot be printed: the bytes of a file's name as they are, a question mark for others."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    try:
        return error.object[error.start : error.end].encode("ascii", "surrogateescape"), error.end
    except UnicodeEncodeError:
        return "?" * (error.end - error.start), error.end


codecs.register_error(_PRINTED, _printable)


def machine_failure(error: BaseException) -> LaunchgapError | None:
    """The one line for full memory or a lost GPU, as torch reports them; None for other errors."""
    if isinstance(error, MemoryError):
        return LaunchgapError(f"out of memory; {_LESS_MEMORY}")
    said = (str(error).strip().splitlines() or [""])[0]
    remedy = next((remedy for words, remedy in _MACHINE_FAILURES if re.search(words, said)), None)
    return None if remedy is None else LaunchgapError(f"{said}; {remedy}")


def end_with_starter(environ: Mapping[str, str]) -> None:
    """Have the kernel end this process once the Snakemake that started it is gone, however that ends.

    A measurement whose Snakemake was killed would otherwise go on beside its redo, and spoil it. Nothing
    polls, which would be seen in what is measured. Does nothing where the parent is another, such as a shell.
    """
    starter = environ.get(STARTER_VARIABLE, "")
    if starter != str(os.getppid()):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if starter != str(os.getppid()):  # it ended before the kernel had been asked
        raise SystemExit(128 + signal.SIGTERM)


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
    """`write_bytes_atomic` for UTF-8 text; names of files in it that are none keep their bytes."""
    write_bytes_atomic(path, text.encode("utf-8", "surrogateescape"))


def require_place(folder: Path) -> None:
    """Fail before the work where a folder could not be made; makes none, unlike `require_writable`.

    Raises:
        OSError: what is in its place, or nearest above it, is no folder, or is closed to this user.
    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


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
