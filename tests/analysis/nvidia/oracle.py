"""Asks the installed nsys for its reports on a file, whatever it calls them, and compares cell by cell."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import subprocess
import tempfile
from collections.abc import Hashable, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from analysis.trace import Trace, read_trace
from nsight.install import Nsys, find_nsys

# Names of nsys 2023 and newer, and what 2022.4 calls the same; None: it has nothing of the kind.
REPORTS = {
    "cuda_gpu_kern_sum": None,
    "cuda_gpu_kern_gb_sum": "gpukernsum",
    "cuda_api_sum": "cudaapisum",
    "cuda_kern_exec_sum": "kernexecsum",
    "cuda_gpu_mem_time_sum": "gpumemtimesum",
    "nvtx_gpu_proj_sum": None,
    "nvtx_gpu_proj_trace": "nvtxgpuproj",
    "nvtx_kern_sum": "nvtxkernsum",
    "cuda_gpu_trace": "gputrace",
}
RULES = {"gpu_gaps": "gpu-starv", "cuda_api_sync": "cuda-sync-api"}

ONLY_IN_NEWER = {"Green Context ID"}
"""Columns that a newer nsys may add to a report."""

# nsys prints averages, deviations and percentages with one decimal.
_ROUNDED_TO = 0.1
_BLOCK = re.compile(r"^Processing \[.*\] with \[(.*?)\](?:\(.*\))?\.\.\.[ \t]*$", re.MULTILINE)


class Refused(Exception):
    """nsys printed something that is neither a table nor that there is no data."""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def unpack_once(packed: Path) -> Path:
    """A copy of a bundled trace that nsys may write beside, the same for all tests of a run."""
    path = Path(_folder().name) / f"{packed.parent.name}-{packed.name.removesuffix('.gz')}"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@cache
def read_once(path: Path) -> Trace:
    """A trace to look at and not to change."""
    return read_trace(path)


@cache
def nsys() -> Nsys:
    return find_nsys(os.environ)


def run(*words: str) -> str:
    command = [str(nsys().path), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@cache
def listed(command: str, option: str) -> frozenset[str]:
    """Names of the reports or rules that nsys offers."""
    done = subprocess.run([str(nsys().path), command, option], capture_output=True, text=True, check=False)
    return frozenset(
        re.findall(r"^\s+([\w-]+)(?:\[\S*\])*(?::\S*)? -- ", done.stdout + done.stderr, re.MULTILINE)
    )


def own_name(report: str) -> str | None:
    """What this nsys calls a report or rule; None where it has none."""
    known, offered = (
        (RULES, listed("analyze", "--help-rules"))
        if report in RULES
        else (REPORTS, listed("stats", "--help-reports"))
    )
    return next((name for name in (report, known[report]) if name in offered), None)


def missing() -> set[str]:
    """Reports and rules that this nsys does not have under any name."""
    return {report for report in (*REPORTS, *RULES) if own_name(report) is None}


def rows_of(text: str) -> pd.DataFrame:
    """One printed table as strings, NULL as none; no rows and no columns where nsys found no data."""
    text = text.strip("\n")
    if not text or text.startswith("SKIPPED: "):
        return pd.DataFrame()
    header, *rows = csv.reader(io.StringIO(text))
    if len(header) < 2 or any(len(row) != len(header) for row in rows):
        raise Refused(text[:500])
    return pd.DataFrame(rows, columns=header, dtype="object").replace("None", "")


def tables(printed: str) -> list[tuple[str, str]]:
    """Stem of the script and the text of each table, in the order in which nsys printed them."""
    _, *parts = _BLOCK.split(printed)
    return [(Path(script).stem, text) for script, text in zip(parts[::2], parts[1::2], strict=True)]


@cache
def texts(path: Path) -> dict[str, str]:
    """What nsys prints for every report that it has, by NVIDIA's newer name."""
    names = {own: report for report in REPORTS if (own := own_name(report))}
    printed = run("stats", "--format", "csv", "--force-export=false", "--report", ",".join(names), str(path))
    found = {names[stem]: text for stem, text in tables(printed)}
    assert set(found) == set(names.values())
    return found


def stats(path: Path, report: str) -> pd.DataFrame:
    """A report of nsys on a file, every cell a string."""
    return rows_of(texts(path)[report])


def stats_of_one(path: Path, report: str) -> pd.DataFrame:
    """The same of a file that no other report is asked of."""
    printed = run(
        "stats", "--format", "csv", "--force-export=false", "--report", str(own_name(report)), str(path)
    )
    ((_, text),) = tables(printed)
    return rows_of(text)


def projection(path: Path) -> pd.DataFrame:
    """`nvtx_gpu_proj_trace`, without the row that 2023.4 adds for the work outside of all ranges."""
    rows = stats(path, "nvtx_gpu_proj_trace")
    return rows if rows.empty else rows[rows["Name"] != ""].reset_index(drop=True)


@cache
def analyses(path: Path, *rules: str) -> list[pd.DataFrame]:
    """What several rules, each with its options, say of a file."""
    named = [":".join([str(own_name(rule.split(":")[0])), *rule.split(":")[1:], "rows=-1"]) for rule in rules]
    printed = tables(run("analyze", "--format", "csv", "--rule", ",".join(named), str(path)))
    assert [stem for stem, _ in printed] == [name.split(":")[0] for name in named]
    return [rows_of(text) for _, text in printed]


def assert_every_cell(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Compare all rows in any order, and all columns in order; floats as nsys rounds them, others exactly."""
    assert len(ours) == len(theirs)
    if theirs.empty:
        return
    assert [title for title in theirs if title not in ONLY_IN_NEWER] == list(ours)
    rounded = [title for title in ours if pd.api.types.is_float_dtype(ours[title])]
    exact = [title for title in ours if title not in rounded]
    mine, other = ordered(ours, exact), ordered(theirs, exact)
    for title in exact:
        assert cells(mine[title]) == cells(other[title]), title
    for title in rounded:
        wanted = pd.to_numeric(other[title].mask(other[title] == "")).astype("float64")
        assert mine[title].isna().tolist() == wanted.isna().tolist(), title
        off = (mine[title].astype("float64") - wanted).abs().fillna(0.0)
        assert off.max() <= _ROUNDED_TO / 2 + 1e-6, title


def cells(column: pd.Series[str]) -> list[str]:
    """Cells as nsys prints them: nothing for NA, no decimals for a whole number."""
    return ["" if pd.isna(cell) else str(cell) for cell in column.astype("object")]


def ordered(table: pd.DataFrame, by: Sequence[Hashable]) -> pd.DataFrame:
    keys = list(zip(*(cells(table[title]) for title in by), strict=True))
    return table.iloc[sorted(range(len(table)), key=keys.__getitem__)].reset_index(drop=True)
