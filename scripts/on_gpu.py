#!/usr/bin/env python3
"""Run a program on a GPU of its own: the first that no other program of launchgap uses, or wait for one.

The program takes this one's place, so it has the same process id and keeps the lock until it ends.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract import LaunchgapError
from nsight.lease import VISIBLE, lock_folder, take, usable_devices
from nsight.processes import starter_alive
from scripts._arguments import Parser
from scripts._cli import run_main


def main(argv: Sequence[str] | None = None) -> None:
    """Lock a GPU, set CUDA_VISIBLE_DEVICES to it if there are others, and become the program."""
    usage = "%(prog)s [--end-with-starter] -- PROGRAM [ARGUMENT ...]"
    parser = Parser(description=__doc__.splitlines()[0] if __doc__ else None, usage=usage)
    add = parser.add_argument
    add("--end-with-starter", action="store_true", help="stop waiting when who started this one is gone")
    add("program", nargs="+", metavar="PROGRAM", help="program and its arguments")
    arguments = parser.parse_args(argv)
    devices = usable_devices(os.environ)
    lease = take(
        devices,
        lock_folder(os.environ),
        starter_alive() if arguments.end_with_starter else lambda: True,
        lambda: logging.info(
            "waiting: other programs of launchgap use all GPUs (%s)",
            ", ".join(one.visible for one in devices),
        ),
    )
    os.set_inheritable(lease.descriptor, True)
    # The only GPU needs no choosing, and stays called as its programs are used to.
    chosen = {VISIBLE: lease.device.visible} if len(devices) > 1 else {}
    try:
        os.execvpe(arguments.program[0], arguments.program, {**os.environ, **chosen})
    except OSError as error:
        raise LaunchgapError(
            f"{arguments.program[0]}: cannot be run ({error.strerror}); give a program"
        ) from error


if __name__ == "__main__":
    run_main(main)
