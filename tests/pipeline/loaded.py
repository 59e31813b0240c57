"""Real Snakemake in a process of its own, forked off one that has loaded it: loading is most of a dry run."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_LOADED = multiprocessing.get_context("forkserver")
_LOADED.set_forkserver_preload(["snakemake.cli"])


class Snakemake:
    """A `python -m snakemake` that was started in a folder: leader of a group, as a shell would make it.

    It is used as `subprocess.Popen` is, and ends at the latest with the tests.
    """

    def __init__(self, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.args = ["snakemake", *arguments]
        self._files = [tempfile.NamedTemporaryFile("r", encoding="utf-8") for _ in range(2)]  # noqa: SIM115
        names = [file.name for file in self._files]
        told = (self.args, folder, dict(environ), names)
        self._process = _LOADED.Process(target=_run, args=told, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Process id, which is that of the group too."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, below zero that of a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same: looking is asking."""
        return self.returncode

    def kill(self) -> None:
        """End it at once, and nothing that it started."""
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it said on stdout and stderr, and whatever it started until then.

        Raises:
            subprocess.TimeoutExpired: it runs on after so many seconds.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        out, err = (Path(file.name).read_text(encoding="utf-8") for file in self._files)
        return out, err


def _run(words: list[str], folder: Path, environ: dict[str, str], files: list[str]) -> None:
    """What `python -m` does in the process that is forked."""
    os.setsid()
    # As in a shell's foreground; a shell's background, where these tests may run, ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in enumerate(files, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    # A project has modules of its own by the names of this checkout's.
    sys.path[:] = [str(folder), *(path for path in sys.path if path and Path(path).resolve() != _ROOT)]
    sys.argv[:] = words
    from snakemake.cli import main  # type: ignore[import-untyped]  # loaded already

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # which a process that was forked would leave out
