#!/usr/bin/env python3
"""Make a trace fit to be shared: keep what counting needs, nothing of the host, its user or environment."""

from __future__ import annotations

import argparse
import gzip
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.attribute import RangeSelector
from analysis.leaks import find_leaks
from analysis.scrub import scrub
from contract import LaunchgapError
from scripts._arguments import Parser
from scripts._cli import run_main, write_bytes_atomic

log = logging.getLogger(__name__)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("input", type=Path, metavar="IN.sqlite", help="trace as `nsys export` wrote it")
    add("output", type=Path, metavar="OUT.sqlite", help="file to write; packed if it ends in .gz")
    add(
        "--only-requests",
        action="store_true",
        help="leave out what ran before the first and after the last one",
    )
    add("--range-name", default=RangeSelector().name, metavar="TEXT", help="NVTX ranges to take for requests")
    add(
        "--range-domain",
        default=RangeSelector().domain,
        metavar="TEXT",
        help="their domain; '' is the default one",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Scrub one trace; an output that gives something away is not left behind."""
    arguments = _parse(argv)
    source, target = arguments.input, arguments.output
    if target.exists() and target.samefile(source):
        raise LaunchgapError(f"{target}: is the input; give another name, the original is not overwritten")
    selector = RangeSelector(arguments.range_name, arguments.range_domain)
    clean = scrub(source, only_requests=arguments.only_requests, selector=selector)
    # Without a time in its header, the same trace is the same file.
    write_bytes_atomic(target, gzip.compress(clean, mtime=0) if target.suffix == ".gz" else clean)
    leaks = find_leaks(target)
    if leaks:
        target.unlink()
        raise LaunchgapError(f"{target}: not left behind, it gives away {len(leaks)} texts, first {leaks[0]}")
    log.info("%s: %d kB from %d kB", target, target.stat().st_size // 1000, source.stat().st_size // 1000)


if __name__ == "__main__":
    run_main(main)
