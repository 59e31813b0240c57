"""What `run_baseline.py` and `run_graph.py` share: options, and a record beside the trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from contract import Strategy, TraceRecord
from inference.traced import run_traced
from scripts._arguments import Parser, seconds, whole
from scripts._cli import write_text_atomic
from scripts._options import add_case_options, case_options


def run(description: str | None, strategies: Sequence[Strategy], argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run one of the given strategies with NVTX ranges.

    Raises:
        LaunchgapError: bad options, or a strategy that cannot be captured.
    """
    parser = Parser(description=description)
    add_case_options(parser)
    parser.add_argument("--strategy", choices=[str(s) for s in strategies], default=str(strategies[0]))
    parser.add_argument(
        "--requests", type=whole(1), default=20, metavar="N", help="requests to run (default: 20)"
    )
    parser.add_argument(
        "--warmup-s", type=seconds, default=0.3, metavar="S", help="eager warm-up (default: 0.3 s)"
    )
    parser.add_argument("--record", type=Path, required=True, metavar="FILE", help="JSON record to write")
    arguments = parser.parse_args(argv)

    def save(record: TraceRecord) -> None:
        write_text_atomic(arguments.record, json.dumps(record, indent=1) + "\n")

    run_traced(
        case_options(arguments),
        Strategy(arguments.strategy),
        requests=arguments.requests,
        warmup_s=arguments.warmup_s,
        command=[Path(sys.argv[0]).name, *sys.argv[1:]],
        save=save,
    )
    return 0
