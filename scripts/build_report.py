#!/usr/bin/env python3
"""Build report.html, report.md, report.json and the figures from latency records, tables and preflight."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.report_ahead import collecting_seldom, gathering
from analysis.report_failures import NOT_RUN, read_failures
from scripts._arguments import Parser
from scripts._cli import require_writable, run_main, write_bytes_atomic


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add(
        "--latency-dir",
        type=Path,
        default=Path("results/latency"),
        metavar="DIR",
        help="(default: %(default)s)",
    )
    add(
        "--tables-dir",
        type=Path,
        default=Path("results/tables"),
        metavar="DIR",
        help="(default: %(default)s)",
    )
    add(
        "--preflight",
        type=Path,
        metavar="FILE",
        help="record of what this host can do, to explain missing parts",
    )
    add("--failures", type=Path, metavar="FILE", help="record of what failed, to say so")
    add("--not-run", nargs="+", default=(), metavar="NAME", help="cases that are still to run, to say so")
    add(
        "-o", "--output-dir", type=Path, default=Path("results"), metavar="DIR", help="(default: %(default)s)"
    )
    add("--cases", nargs="+", default=(), metavar="NAME", help="cases to show (default: all that are there)")
    return parser.parse_args(argv)


@collecting_seldom()
def main(argv: Sequence[str] | None = None) -> int:
    """Write the report; a broken case or part is told on stderr and in the report, and the others stand."""
    arguments = _parse(argv)
    require_writable(arguments.output_dir)
    with gathering(
        arguments.latency_dir,
        arguments.tables_dir,
        arguments.preflight,
        arguments.output_dir,
        arguments.cases,
        dict.fromkeys(arguments.not_run, NOT_RUN) | read_failures(arguments.failures),
    ) as gathered:
        from analysis.report import render  # here, since loading it takes as long as gathering does

        data = gathered()
    for warning in data.warnings:
        print(f"warning: {' '.join(warning.split())}", file=sys.stderr)
    for name, content in render(data).items():
        write_bytes_atomic(arguments.output_dir / name, content)
    print(f"saved {arguments.output_dir / 'report.html'}, report.md, report.json and figures/")
    return 0


if __name__ == "__main__":
    run_main(main)
