"""Runs a command's `main` in this process and sees what a shell would: exit code, stdout, stderr."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from commandline import run_command

ROOT = Path(__file__).resolve().parents[1]
NOT_PRINTED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python does not print unless it is asked to."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of a run that failed: anything else fails the test."""
        assert self.code == 2, self
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("error: ")
        assert line.isprintable()
        assert "; " in line or "?" in line
        return line


def in_process(
    main: Callable[[Sequence[str]], int | None], *words: str | Path, folder: Path = ROOT, log: bool = False
) -> Ran:
    """What `main` does in `folder` with these words; with `log`, as an executable that logs to stderr.

    A warning that Python would print on stderr is raised, as is every error that would be a traceback.
    """
    out, err = _stream("strict"), _stream("backslashreplace")
    with ExitStack() as stack:
        for context in (redirect_stdout(out), redirect_stderr(err), chdir(folder), _strict_warnings()):
            stack.enter_context(context)
        if log:
            stack.enter_context(_logging_to_stderr())
        try:
            code = run_command(lambda: main([*map(str, words)]))
        except SystemExit as end:  # of --help
            code = end.code if isinstance(end.code, int) else -1
    return Ran(code, _written(out), _written(err))


@contextmanager
def _strict_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for category in NOT_PRINTED:
            warnings.simplefilter("ignore", category)
        yield


@contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """What `scripts._cli.run_main` sets up, until the block ends."""
    root, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _stream(errors: str) -> io.TextIOWrapper:
    """As Python opens stdout and stderr where they are no terminal."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
