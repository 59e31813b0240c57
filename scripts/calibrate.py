#!/usr/bin/env python3
"""Measure what launching costs on this GPU, for `python -m analysis predict`.

Takes about a minute and needs no model: chains of kernels, fills and copies that do next to nothing are
launched one by one and replayed as graphs of 1 to 1,000 nodes, and so are layers of no particular model.
Every raw sample is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.calibration import calibration_of
from analysis.overhead import summary_lines
from inference.calibration import calibrate, require_gpu
from inference.calibration_replays import CalibrationSettings
from scripts._arguments import Parser, seconds, whole
from scripts._cli import require_writable, run_main, write_text_atomic


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, save the record and print what it says."""
    parser = Parser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    usual = CalibrationSettings()
    add("-o", "--output", type=Path, default=Path("results/calibration.json"), metavar="FILE")
    add("--rounds", type=whole(10), default=usual.rounds, metavar="N", help="(default: %(default)s)")
    add("--warmup-s", type=seconds, default=usual.warmup_s, metavar="S", help="(default: %(default)s s)")
    arguments = parser.parse_args(argv)
    device = require_gpu()
    require_writable(arguments.output.parent)
    settings = CalibrationSettings(rounds=arguments.rounds, warmup_s=arguments.warmup_s)
    record = calibrate(device, settings, [Path(sys.argv[0]).name, *sys.argv[1:]])
    write_text_atomic(arguments.output, json.dumps(record, indent=1, allow_nan=False) + "\n")
    print("\n".join(summary_lines(calibration_of(record, arguments.output))))
    print(f"\nsaved {arguments.output}; python -m analysis predict TRACE --calibration {arguments.output}")
    return 0


if __name__ == "__main__":
    run_main(main)
