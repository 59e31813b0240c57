"""How every executable runs: log lines on stderr, then as any command of launchgap."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from commandline import (
    EXIT_USER_ERROR,
    end_with_starter,
    require_place,
    require_writable,
    run_command,
    write_bytes_atomic,
    write_text_atomic,
)

__all__ = [
    "EXIT_USER_ERROR",
    "require_place",
    "require_writable",
    "run_main",
    "write_bytes_atomic",
    "write_text_atomic",
]


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run an executable's `main` and exit: its return code, or 2 after one line on stderr.

    Started by Snakemake, it ends with it.
    """
    end_with_starter(os.environ)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    sys.exit(run_command(main))
