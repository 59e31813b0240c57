#!/usr/bin/env python3
"""Count kernels, launches and durations per request in the traces of one case, and write them as tables.

Reads STRATEGY.MODE.sqlite (or .sqlite.gz) and STRATEGY.MODE.json of a folder; writes the tables that
docs/definitions.md lists, traces.json, explained.json and timeline.json. A trace that cannot be trusted is
left out of the tables; traces.json says why, and so does this program. explained.json says what could not be
explained.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.attribute import RangeSelector
from analysis.case import analyse_case
from analysis.case_beside import read_beside
from analysis.parquet import parquet_bytes, require_pyarrow
from contract import LaunchgapError, read_record
from scripts._arguments import Parser
from scripts._cli import require_place, run_main, write_bytes_atomic, write_text_atomic

log = logging.getLogger(__name__)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--case", required=True, metavar="NAME", help="name of the case, as its folders are called")
    add("--trace-dir", type=Path, required=True, metavar="DIR", help="folder of the traces and their records")
    add("--preflight", type=Path, metavar="FILE", help="preflight.json: why there are no traces, if so")
    add("--latency", type=Path, metavar="FILE", help="latency.json of the case, to score the prediction by")
    add("--calibration", type=Path, metavar="FILE", help="scripts.calibrate's (default: the shipped H200's)")
    add("--strategies", nargs="+", default=(), metavar="NAME", help="traces that are missed if not there")
    add("--range-name", default=RangeSelector().name, metavar="TEXT", help="NVTX ranges to take for requests")
    add(
        "--range-domain",
        default=RangeSelector().domain,
        metavar="TEXT",
        help="their domain; '' is the default one",
    )
    add(
        "--strict", action="store_true", help="fail on a trace that cannot be used, instead of leaving it out"
    )
    add("--parquet", action="store_true", help="write each table as Parquet as well; needs pyarrow")
    add("-o", "--output-dir", type=Path, required=True, metavar="DIR", help="folder to write to")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Analyse one case and write its files; with `--strict` only if every trace can be used."""
    arguments = _parse(argv)
    require_place(arguments.output_dir)
    if arguments.parquet:
        require_pyarrow()
    analysed = analyse_case(
        arguments.case,
        arguments.trace_dir,
        preflight=read_record(arguments.preflight, "preflight") if arguments.preflight else None,
        strategies=arguments.strategies,
        selector=RangeSelector(arguments.range_name, arguments.range_domain),
        beside=read_beside(arguments.case, arguments.latency, arguments.calibration),
    )
    if arguments.strict and analysed.failures:
        raise LaunchgapError("; ".join(analysed.failures))
    tables = analysed.tables if arguments.parquet else {}
    packed = {f"{name}.parquet": parquet_bytes(table) for name, table in tables.items()}
    for name, content in packed.items():
        write_bytes_atomic(arguments.output_dir / name, content)
    for name, text in analysed.files().items():
        write_text_atomic(arguments.output_dir / name, text)
    for failure in analysed.failures:
        log.warning("left out: %s", failure)
    for entry in analysed.entries:
        for finding in entry.findings:
            log.info("%s.%s: %s", entry.strategy, entry.trace_mode, finding)


if __name__ == "__main__":
    run_main(main)
