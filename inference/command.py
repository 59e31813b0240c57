"""How a module that can be run as a command complains: one line on stderr and exit code 2, no traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from contract import LaunchgapError

EXIT_USER_ERROR = 2


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are one line instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage.

        Raises:
            LaunchgapError: always.
        """
        raise LaunchgapError(f"{message}; see --help")


def run_command(main: Callable[[], int]) -> int:
    """The exit code of `main`, or 2 after one line on stderr."""
    try:
        return main()
    except LaunchgapError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return EXIT_USER_ERROR
