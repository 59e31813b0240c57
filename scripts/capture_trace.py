#!/usr/bin/env python3
"""Run a program under Nsight Systems and keep its report, its SQLite export and its record: all or none.

The program must take `--record FILE` and write its trace record there.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract import TraceMode
from nsight.capture import capture
from nsight.errors import ProgramFailed
from nsight.gpu import find_gpu
from nsight.install import find_nsys
from nsight.processes import exit_on_signals, starter_alive
from nsight.trace import Traced
from scripts._arguments import Parser
from scripts._cli import run_main


def _seconds(text: str) -> float:
    """An argparse type: a time of more than zero seconds."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time of more than zero seconds")
    return value


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    usage = "%(prog)s --output STEM [options] -- PROGRAM [ARGUMENT ...]"
    add = (parser := Parser(description=__doc__, usage=usage)).add_argument
    add("--output", type=Path, required=True, metavar="STEM", help="path of the three files without suffix")
    add(
        "--trace-mode",
        type=TraceMode,
        choices=list(TraceMode),
        default=TraceMode.NODE,
        help="(default: node)",
    )
    add("--device", choices=("auto", "cuda", "cpu"), default="auto", help="what to trace (default: auto)")
    add("--timeout-s", type=_seconds, default=300.0, metavar="S", help="time for the program (default: 300)")
    add("--end-with-starter", action="store_true", help="end when the process that started this one is gone")
    add("program", nargs="+", metavar="PROGRAM", help="program and its arguments")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Capture; the exit code is the program's own where the program failed."""
    arguments = _parse(argv)
    exit_on_signals()
    traced = Traced(
        tuple(arguments.program),
        arguments.trace_mode,
        arguments.device == "cuda" or (arguments.device == "auto" and find_gpu(os.environ).usable),
        arguments.timeout_s,
        starter_alive() if arguments.end_with_starter else lambda: True,
    )
    try:
        record = capture(find_nsys(os.environ), traced, arguments.output, os.environ)
    except ProgramFailed as error:
        logging.error("error: %s", error)
        return error.exit_code
    logging.info("%s: %d requests traced", arguments.output, record["requests"])
    return 0


if __name__ == "__main__":
    run_main(main)
