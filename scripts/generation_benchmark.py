#!/usr/bin/env python3
"""Measure greedy generation at batch 1: transformers, launchgap's graphs, vLLM and SGLang where installed.

A token of a small model costs hundreds of launches without graphs, one with them, and never less than the
time to read the weights once. The table shows how far each is from that floor, and after how many requests
compiling has paid. Writes generation.json (every raw sample, and what it was measured on).
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.generation import generation_table
from contract import GenerationStrategy
from inference.generation_benchmark import failures, measure_generation, require_some_success
from inference.generation_case import GenerationSettings, open_generation_case
from scripts._arguments import Parser, whole
from scripts._cli import EXIT_USER_ERROR, require_writable, run_main, write_text_atomic
from scripts._config import parse_with_config
from scripts._options import add_case_options, case_options

_OUTPUT = Path("results/generation")
_UNNAMED = "all; what is not installed is passed over unless it is named"


def _parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser(description=(__doc__ or "").split("\n\n")[0])
    add_case_options(parser)
    add = parser.add_argument_group("measurement").add_argument
    names = [str(name) for name in GenerationStrategy]
    add(
        "--strategies",
        nargs="+",
        choices=names,
        metavar="NAME",
        help=f"{', '.join(names)} (default: {_UNNAMED})",
    )
    add("--new-tokens", type=whole(1), default=200, metavar="N", help="tokens to generate (default: 200)")
    add("--runs", type=whole(1), default=10, metavar="N", help="timed runs of each strategy (default: 10)")
    add("--output-dir", type=Path, default=_OUTPUT, metavar="DIR", help="(default: %(default)s)")
    partial = "exit 0 although a strategy failed, as long as one did not"
    add("--allow-partial", action="store_true", help=partial)
    config = "YAML file with these options as keys; the command line wins"
    add("--config", type=Path, metavar="FILE", help=config)
    return parse_with_config(parser, argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, save the record, print the table; 2 when a strategy failed."""
    arguments = _parse(argv)
    require_writable(arguments.output_dir)
    named = arguments.strategies is not None
    names = dict.fromkeys(map(GenerationStrategy, arguments.strategies or GenerationStrategy))
    settings = GenerationSettings(tuple(names), arguments.new_tokens, arguments.runs, arguments.seed)
    case = open_generation_case(case_options(arguments), settings.new_tokens)
    record = measure_generation(case, settings, [Path(sys.argv[0]).name, *sys.argv[1:]])
    require_some_success(record)
    path = arguments.output_dir / "generation.json"
    write_text_atomic(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    print(generation_table(record))
    print(f"\nsaved {shlex.quote(str(path))}")
    failed = failures(record, named)
    if failed and not arguments.allow_partial:
        print(f"error: {'; '.join(failed)}", file=sys.stderr)
        return EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    run_main(main)
