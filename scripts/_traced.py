"""What `run_baseline.py` and `run_graph.py` share: options, and a record beside the trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from contract import LaunchgapError, Strategy, TraceMode, TraceRecord
from inference.torch_tracer import TorchTracer
from inference.traced import run_traced
from scripts._arguments import Parser, seconds, whole
from scripts._cli import require_writable, write_text_atomic
from scripts._options import add_case_options, case_options


def run(description: str | None, strategies: Sequence[Strategy], argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run one of the given strategies with ranges for nsys or torch.profiler.

    Raises:
        LaunchgapError: bad options, or a strategy that cannot be captured or annotated.
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
    _add_tracer_options(parser)
    arguments = parser.parse_args(argv)
    tracer = _torch_tracer(arguments.tracer, arguments.trace)
    modules = arguments.annotate == "modules"
    if modules and tracer is not None:
        raise LaunchgapError(
            "--annotate modules: torch.profiler does not tell when a node was made; trace with nsys"
        )

    def save(record: TraceRecord) -> None:
        # nsys runs around this program, so the capture step adds what it knows to the record.
        about = {"tracer": "torch", "trace_mode": str(TraceMode.NODE)} if tracer else {}
        write_text_atomic(arguments.record, json.dumps({**record, **about}, indent=1) + "\n")

    run_traced(
        case_options(arguments),
        Strategy(arguments.strategy),
        requests=arguments.requests,
        warmup_s=arguments.warmup_s,
        command=[Path(sys.argv[0]).name, *sys.argv[1:]],
        save=save,
        tracer=tracer,
        modules=modules,
    )
    return 0


def _add_tracer_options(parser: Parser) -> None:
    parser.add_argument(
        "--tracer",
        choices=("nsys", "torch"),
        default="nsys",
        help="nsys, which is started around this program, or torch.profiler within it (default: nsys)",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="the trace to write with --tracer torch, .json(.gz)",
    )
    parser.add_argument(
        "--annotate",
        choices=("none", "modules"),
        default="none",
        help="modules: an NVTX range for every module, for `python -m analysis layers`; "
        "makes the host slower (default: none)",
    )


def _torch_tracer(tracer: str, trace: Path | None) -> TorchTracer | None:
    if tracer == "nsys":
        if trace is not None:
            raise LaunchgapError(f"--trace {trace}: nsys writes its own file; give --tracer torch as well")
        return None
    if trace is None or not trace.name.endswith((".json", ".json.gz")):
        raise LaunchgapError("--tracer torch: needs --trace FILE, and FILE ends in .json or .json.gz")
    require_writable(trace.parent)
    return TorchTracer(trace)
