"""How a module that can be run as a command complains: see `commandline`."""

from __future__ import annotations

from commandline import EXIT_USER_ERROR, Parser, run_command

__all__ = ["EXIT_USER_ERROR", "Parser", "run_command"]
