#!/usr/bin/env python3
"""Say what this host can do before anything long starts: is there a GPU, does nsys trace our ranges?"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nsight.preflight import preflight
from nsight.processes import exit_on_signals
from scripts._arguments import Parser
from scripts._cli import run_main, write_text_atomic

_OUTCOMES = {"nsys": "tracing works", "torch": "tracing works by torch.profiler", None: "no tracing"}


def main(argv: Sequence[str] | None = None) -> int:
    """Log the findings and write the record; fails where the GPU or the profiler is required and missing."""
    parser = Parser(description=__doc__)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="(default: auto)")
    parser.add_argument(
        "--profiler",
        choices=("auto", "required", "torch", "off"),
        default="auto",
        help="auto: nsys where it works, else torch.profiler on a GPU, else no traces (default: auto)",
    )
    parser.add_argument(
        "--trace-dir", type=Path, default=Path(), help="existing folder that traces will go to"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="JSON record to write"
    )
    arguments = parser.parse_args(argv)
    exit_on_signals()
    record = preflight(arguments.device, arguments.profiler, arguments.trace_dir, os.environ)
    write_text_atomic(arguments.output, json.dumps(record, indent=1) + "\n")
    for finding in record["findings"]:
        logging.warning("%s", finding)
    logging.info("device %s, %s", record["device"], _OUTCOMES[record.get("tracer")])
    return 0


if __name__ == "__main__":
    run_main(main)
