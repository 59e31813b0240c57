"""Write a trace as a file that https://ui.perfetto.dev opens (drag it there; nothing is uploaded).

Host threads with CUDA calls and NVTX ranges, GPU streams with kernels, copies and fills, replayed graphs, and
an arrow from each launch to what it started.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from analysis.chrome_trace import read_any_trace
from analysis.commands.export import readable
from analysis.commands.progress import Steps
from analysis.perfetto import chrome_lines, event_count, untimed_operations
from analysis.trace import Trace
from commandline import Parser, replaced, require_writable, run_command
from contract import LaunchgapError


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis perfetto",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE", help=".nsys-rep, .sqlite(.gz), or torch.profiler's .json(.gz)")
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="to write; packed if it ends in .gz")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Convert one trace.

    Raises:
        LaunchgapError: the trace cannot be read, or the output is the trace itself or a folder.
    """
    arguments = _parse(argv)
    output: Path = arguments.output
    if output.is_dir():
        raise LaunchgapError(f"{output}: is a folder; give a file's name, such as trace.json.gz")
    if output.exists() and output.samefile(arguments.trace):
        raise LaunchgapError(f"{output}: is the trace itself; give another name")
    require_writable(output.parent)
    with readable(arguments.trace) as path, Steps(1) as steps:
        steps.begin(f"reading {arguments.trace.name}")
        trace = read_any_trace(path)
    size_bytes = _write(output, trace)
    told = f"{event_count(trace)} events, {size_bytes:,} bytes"
    sys.stdout.write(f"saved {output} ({told}): open it in https://ui.perfetto.dev\n")
    untimed = untimed_operations(trace)
    if untimed:
        sys.stderr.write(f"left out: {untimed} GPU operations that the driver gave no time\n")
    return 0


def _write(output: Path, trace: Trace) -> int:
    """Write the file whole or not at all; returns its size."""
    lines = tqdm(chrome_lines(trace), "writing", event_count(trace), unit=" events", disable=None, delay=2)
    with replaced(output) as temporary, temporary.open("wb") as raw:
        if output.suffix == ".gz":
            # The time of writing and the temporary name do not belong into the file.
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                _write_lines(packed, lines)
        else:
            _write_lines(raw, lines)
    return output.stat().st_size


def _write_lines(file: BinaryIO | gzip.GzipFile, lines: Iterable[str]) -> None:
    for line in lines:
        file.write(line.encode("ascii") + b"\n")


if __name__ == "__main__":
    sys.exit(run_command(main))
