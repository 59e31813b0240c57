#!/usr/bin/env python3
"""Measure one forward pass of a causal LM at batch 1, eagerly and as a CUDA graph, and compare.

An eager forward of a small model is hundreds of kernels of a few microseconds each; launching one costs the
host several microseconds, so the GPU waits for launches. A graph is launched once. What is left is the GPU's
own time, and no graph can go below the time to read the weights once from memory, which is printed as well.

`--peers` measures what else there is in the same rounds: eager without its wait, torch.compile, and others.

Writes latency_comparison.png and latency.json (every raw sample, and what it was measured on).
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.console import comparison_table, why_below
from analysis.figures import latency_comparison, render_png
from contract import DEFAULT_STRATEGIES, STEP_STRATEGIES, LaunchgapError, Phase, Strategy
from inference.benchmark import BenchmarkSettings, failures, require_some_success
from inference.case import open_case
from inference.devices import resolve_device
from inference.latency import measure_case
from inference.session import baseline_infer, configure, cuda_graph_infer
from scripts._arguments import Parser, percent, seconds, whole
from scripts._cli import EXIT_USER_ERROR, require_writable, run_main, write_bytes_atomic, write_text_atomic
from scripts._config import parse_with_config
from scripts._options import add_case_options, case_options

__all__ = ["baseline_infer", "configure", "cuda_graph_infer", "main"]

EXIT_BELOW_THRESHOLD = 1


def _parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser(description=(__doc__ or "").split("\n\n")[0])
    add_case_options(parser)
    add = parser.add_argument_group("measurement").add_argument
    every, usual = [str(one) for one in Strategy], [str(one) for one in DEFAULT_STRATEGIES]
    # Before --strategies, which owns the name `strategies` in a config file.
    add(
        "--peers",
        action="store_const",
        dest="strategies",
        const=every,
        help="measure every strategy, torch.compile included, which takes minutes to compile",
    )
    add(
        "--strategies",
        nargs="+",
        choices=every,
        metavar="NAME",
        help=f"{', '.join(every)} (default: {' '.join(usual)}; of a decode step eager graph)",
    )
    add("--runs", type=whole(1), default=100, metavar="N", help="timed runs of each strategy (default: 100)")
    add("--warmup-s", type=seconds, default=2.0, metavar="S", help="warm-up before timing (default: 2 s)")
    add(
        "--output-dir",
        type=Path,
        default=Path("results/benchmark"),
        metavar="DIR",
        help="(default: %(default)s)",
    )
    add(
        "--fail-under",
        type=percent,
        metavar="PERCENT",
        help="exit 1 if `graph` is not surely faster by this much",
    )
    add(
        "--allow-partial",
        action="store_true",
        help="exit 0 although a strategy failed, as long as one did not",
    )
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML file with these options as keys; the command line wins",
    )
    return parse_with_config(parser, argv)


def _strategies(arguments: Namespace) -> list[Strategy]:
    """What was asked for, or what is usual for a pass over the prompt or for one decode step.

    Raises:
        LaunchgapError: a strategy that has no decode step.
    """
    is_step = arguments.phase == Phase.DECODE
    if arguments.strategies is None:
        return [Strategy.EAGER, Strategy.GRAPH] if is_step else list(DEFAULT_STRATEGIES)
    chosen = [Strategy(name) for name in dict.fromkeys(arguments.strategies)]
    if not is_step:
        return chosen
    if set(chosen) == set(Strategy):  # --peers
        return list(STEP_STRATEGIES)
    unfit = [one for one in chosen if one not in STEP_STRATEGIES]
    if unfit:
        raise LaunchgapError(
            f"--strategies {' '.join(unfit)}: no way to run a decode step; use {', '.join(STEP_STRATEGIES)}"
        )
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, save figure and record; 2 when a strategy failed, 1 below --fail-under."""
    arguments = _parse(argv)
    require_writable(arguments.output_dir)
    if arguments.fail_under is not None and resolve_device(arguments.device).type == "cpu":
        raise LaunchgapError(
            "--fail-under: a simulation on the CPU shows no speed-up to judge; run it on a GPU"
        )
    settings = BenchmarkSettings(
        _strategies(arguments),
        runs=arguments.runs,
        warmup_s=arguments.warmup_s,
        seed=arguments.seed,
    )
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    record = measure_case(open_case(case_options(arguments)), settings, command)
    require_some_success(record["strategies"])
    write_text_atomic(
        arguments.output_dir / "latency.json", json.dumps(record, indent=1, allow_nan=False) + "\n"
    )
    write_bytes_atomic(
        arguments.output_dir / "latency_comparison.png", render_png(latency_comparison(record))
    )
    print(comparison_table(record))
    print(f"\nsaved {shlex.quote(str(arguments.output_dir))}/latency_comparison.png and latency.json")
    failed = failures(record["strategies"])
    if failed and not arguments.allow_partial:
        print(f"error: {'; '.join(failed)}", file=sys.stderr)
        return EXIT_USER_ERROR
    reason = why_below(record, arguments.fail_under)
    if reason is not None:
        print(reason, file=sys.stderr)
        return EXIT_BELOW_THRESHOLD
    return 0


if __name__ == "__main__":
    run_main(main)
