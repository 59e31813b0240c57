"""Measures the reader on large traces, beside `nsys stats`: `python -m tests.data.measure_scale`.

For each size a trace is made of a real one, read in a process of its own, and deleted. The table on stdout
is the one in docs/trace-reader.md. Ten million kernels take about 2 GB of disk and, with nsys, some
minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from tests.data.multiply_trace import multiply

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/data/traces/h200-gpt2-fp32-baseline-trace-node.sqlite.gz"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)

SUM_UP = (
    "import sys, pathlib, analysis.aggregate as a; a.summarise(pathlib.Path(sys.argv[1]), count_ranges={})"
)
OVERVIEW = "-m", "analysis"
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "nvtx_sum", "nvtx_kern_sum")
"""Reports of `nsys stats` with the same tables; the last one is for the counts by range."""
OLD_REPORTS = ("gpukernsum", "cudaapisum", "gpumemtimesum", "nvtxsum", "nvtxkernsum")

TITLES = (
    *("kernels", "file MB", "summaries s", "CPU s", "MB", "nsys s", "ratio"),
    *("with ranges s", "CPU s", "MB", "nsys s", "ratio", "overview s", "MB"),
)

_MIB = 2**20


class Cost(NamedTuple):
    """What a command took: seconds by the clock, of all cores together, and the most memory it held."""

    wall_s: float
    cpu_s: float
    resident_bytes: int


def cost(command: Sequence[str]) -> Cost:
    """Run a command, its output thrown away. Raises CalledProcessError if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    wall_s = time.perf_counter() - start
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def ours(path: Path, *, count_ranges: bool = True) -> Cost:
    """What it takes to sum a trace up, interpreter and imports included."""
    return cost([sys.executable, "-c", SUM_UP.format(count_ranges), str(path)])


def nsys_stats(nsys: str, path: Path, *, count_ranges: bool = True) -> Cost:
    """What `nsys stats` takes for the same tables, by whichever names it knows them."""
    told = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True, check=False)
    names = REPORTS if REPORTS[0] in told.stdout + told.stderr else OLD_REPORTS
    kept = ",".join(names if count_ranges else names[:-1])
    return cost([nsys, "stats", "--force-export=false", "--format", "csv", "--report", kept, str(path)])


def measure(path: Path, nsys: str | None, repeat: int) -> list[str]:
    """Cells of one size: with and without counts by range, then the whole overview; the best of some runs."""
    cells = []
    for count_ranges in (False, True):
        best = min(ours(path, count_ranges=count_ranges) for _ in range(repeat))
        cells += [f"{best.wall_s:.1f}", f"{best.cpu_s:.1f}", f"{best.resident_bytes / _MIB:,.0f}"]
        if nsys is None:
            cells += ["-", "-"]
        else:
            theirs = min(nsys_stats(nsys, path, count_ranges=count_ranges) for _ in range(repeat))
            cells += [f"{theirs.wall_s:.1f}", f"{theirs.wall_s / best.wall_s:.1f}"]
    shown = min(cost([sys.executable, *OVERVIEW, str(path)]) for _ in range(repeat))
    return [*cells, f"{shown.wall_s:.1f}", f"{shown.resident_bytes / _MIB:,.0f}"]


def main() -> int:
    """Measure each size and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=int, nargs="+", default=SIZES, help="sizes (default: %(default)s)")
    parser.add_argument("--source", type=Path, default=SOURCE, help="trace to multiply")
    parser.add_argument("--processes", type=int, default=1, help="deal the kernels out to so many processes")
    parser.add_argument("--repeat", type=int, default=1, help="take the best of so many runs (default: 1)")
    parser.add_argument("--without-nsys", action="store_true", help="leave nsys stats out")
    args = parser.parse_args()
    nsys = None if args.without_nsys else shutil.which("nsys")
    lines = [f"| {' | '.join(TITLES)} |", "|" + "---:|" * len(TITLES)]
    with tempfile.TemporaryDirectory() as folder:
        for kernels in tqdm(args.kernels, disable=None, delay=2, unit=" sizes"):
            path = Path(folder) / f"{kernels}.sqlite"
            count = multiply(args.source, path, kernels, args.processes)
            size = f"{path.stat().st_size / _MIB:,.0f}"
            lines.append(f"| {' | '.join([f'{count:,}', size, *measure(path, nsys, args.repeat)])} |")
            path.unlink()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
