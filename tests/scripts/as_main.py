"""Runs a file as Python runs its main program, in this process: without a second import of torch."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from tests.in_process import ROOT, Ran, in_process


def as_main(path: str, *words: str | Path) -> Ran:
    """What `python PATH WORDS...` in the project's folder gives; `path` is relative to that folder."""
    file = ROOT / path

    def main(argv: Sequence[str]) -> None:
        with mock.patch.object(sys, "argv", [str(file), *argv]), mock.patch.object(sys, "path", [*sys.path]):
            runpy.run_path(str(file), run_name="__main__")

    return in_process(main, *words, log=True)
