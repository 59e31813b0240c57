"""Measures the reader on large traces, beside `nsys stats`: `python -m tests.data.measure_scale`.

For each size a trace is made of a real one, read in a process of its own, and deleted. The table on stdout is the one
in docs/trace-reader.md. Ten million kernels take about 2 GB of disk and, with nsys, some minutes.
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

SUM_UP = "import sys, pathlib, analysis.aggregate as a; a.summarise(pathlib.Path(sys.argv[1]))"
OVERVIEW = "-m", "analysis"
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "nvtx_sum", "nvtx_kern_sum")
"""Reports of `nsys stats` that hold what `summarise` gives; the last for the counts by range."""
OLD_REPORTS = ("gpukernsum", "cudaapisum", "gpumemtimesum", "nvtxsum", "nvtxkernsum")

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


def ours(path: Path) -> Cost:
    """What it takes to sum a trace up, interpreter and imports included."""
    return cost([sys.executable, "-c", SUM_UP, str(path)])


def nsys_stats(nsys: str, path: Path) -> Cost:
    """What `nsys stats` takes for the same tables, by whichever names it knows them."""
    told = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True, check=False)
    names = REPORTS if REPORTS[0] in told.stdout + told.stderr else OLD_REPORTS
    command = [nsys, "stats", "--force-export=false", "--format", "csv", "--report", ",".join(names)]
    return cost([*command, str(path)])


def row(kernels: int, size_bytes: int, summed: Cost, shown: Cost, theirs: Cost | None) -> str:
    """One line of the table."""
    cells = [
        f"{kernels:,}",
        f"{size_bytes / _MIB:,.0f}",
        f"{summed.wall_s:.2f}",
        f"{summed.cpu_s:.2f}",
        f"{summed.resident_bytes / _MIB:,.0f}",
        f"{shown.wall_s:.2f}",
        f"{shown.resident_bytes / _MIB:,.0f}",
        f"{theirs.wall_s:.2f}" if theirs else "-",
        f"{theirs.wall_s / summed.wall_s:.1f}" if theirs else "-",
    ]
    return f"| {' | '.join(cells)} |"


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
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for kernels in tqdm(args.kernels, disable=None, delay=2, unit=" sizes"):
            path = Path(folder) / f"{kernels}.sqlite"
            count = multiply(args.source, path, kernels, args.processes)
            rounds = range(args.repeat)
            summed = min(ours(path) for _ in rounds)
            shown = min(cost([sys.executable, *OVERVIEW, str(path)]) for _ in rounds)
            theirs = min(nsys_stats(nsys, path) for _ in rounds) if nsys else None
            lines.append(row(count, path.stat().st_size, summed, shown, theirs))
            path.unlink()
    titles = (
        "kernels, file (MB), summed up (s), CPU (s), memory (MB), overview (s), memory (MB), nsys (s), ratio"
    )
    header = titles.replace(", ", " | ")
    lines = [f"| {header} |", "|" + "---:|" * (titles.count(", ") + 1), *lines]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
