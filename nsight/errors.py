"""What can go wrong with Nsight Systems, one class per remedy."""

from __future__ import annotations

from pathlib import Path

from contract import LaunchgapError


class NsysMissing(LaunchgapError):
    """No nsys on this machine; it has to be installed or put on PATH."""


class ImporterBroken(LaunchgapError):
    """nsys recorded a raw stream (`.qdstrm`) but its importer could not turn it into a report."""


class NsysFailed(LaunchgapError):
    """nsys itself failed: refused its arguments, was killed, wrote nothing."""


class NsysTimeout(LaunchgapError):
    """nsys or the program under it did not end in time; both were ended."""


class ProgramFailed(LaunchgapError):
    """The traced program failed; `exit_code` is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def cannot_write(path: Path, error: OSError) -> LaunchgapError:
    """The one-line error for an output that cannot be written."""
    why = error.strerror or str(error)
    return LaunchgapError(f"{path}: cannot be written ({why}); give a writable folder with free space")
