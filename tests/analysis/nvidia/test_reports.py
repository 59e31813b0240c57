"""Every cell of NVIDIA's reports: real `nsys stats` and `nsys analyze` on the same files.

A report that the nsys at hand lacks is not compared; `test_capabilities.py` asserts which those are.
"""

from pathlib import Path

import pandas as pd
import pytest

from analysis.nvidia import REPORTS, gpu_gaps
from analysis.trace import Trace
from contract import LaunchgapError
from tests.analysis.nvidia.oracle import (
    analyses,
    assert_every_cell,
    cells,
    ordered,
    own_name,
    projection,
    stats,
)
from tests.analysis.nvidia.traits import as_named_by_nsys, seen_by_nsys

pytestmark = pytest.mark.nsys

PLACES = ["RangeId", "ParentId", "RangeStack"]
RULES = ("gpu_gaps:gap=0", "gpu_gaps:gap=1", "gpu_gaps", "cuda_api_sync")
# nvtx_kern_sum is sorted by titles, which older versions write without a colon.
SORTED_BY = {
    **dict.fromkeys(("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_api_sum"), "Total Time (ns)"),
    "cuda_gpu_mem_time_sum": "Total Time (ns)",
    "cuda_kern_exec_sum": "TAvg (ns)",
    "nvtx_gpu_proj_sum": "Total Proj Time (ns)",
}
SUMMARIES = sorted(set(REPORTS) - {"nvtx_gpu_proj_trace", "gpu_gaps", "cuda_api_sync"})


def ours(trace: Trace, report: str) -> pd.DataFrame:
    return as_named_by_nsys(REPORTS[report](seen_by_nsys(trace, report)), report)


def offered() -> list[str]:
    """Summaries that the nsys at hand has; all of them where there is no nsys, to fail with the reason."""
    try:
        return [report for report in SUMMARIES if own_name(report) is not None]
    except LaunchgapError:
        return SUMMARIES


@pytest.mark.parametrize("report", offered())
def test_every_cell_of_a_summary_is_nsys_own(path: Path, trace: Trace, report: str) -> None:
    mine, theirs = ours(trace, report), stats(path, report)
    assert_every_cell(mine, theirs)
    if report in SORTED_BY and not theirs.empty:
        rows = theirs[SORTED_BY[report]].astype("float64")
        assert mine[SORTED_BY[report]].tolist() == pytest.approx(rows.tolist(), rel=0, abs=0.051)


def test_every_cell_of_the_projection_is_nsys_own(path: Path, trace: Trace) -> None:
    mine, theirs = ours(trace, "nvtx_gpu_proj_trace"), projection(path)
    if theirs.empty:
        assert mine.empty
        return
    assert list(mine) == list(theirs)
    assert_every_cell(mine.drop(columns=PLACES), theirs.drop(columns=PLACES))
    # nsys numbers ranges by the rows of its table: a range is found again by all else that is said of it.
    exact = [title for title in mine if title not in PLACES]
    mine, theirs = ordered(mine, exact), ordered(theirs, exact)
    number = dict(zip(theirs["RangeId"], cells(mine["RangeId"]), strict=True)) | {"": ""}
    assert cells(mine["ParentId"]) == [number[cell] for cell in theirs["ParentId"]]
    stacks = [":".join(number[one] for one in cell.split(":")) for cell in theirs["RangeStack"]]
    assert cells(mine["RangeStack"]) == stacks


def test_every_gap_is_nsys_own(path: Path, trace: Trace) -> None:
    seen = seen_by_nsys(trace, "gpu_gaps")
    every, long, unasked, _ = analyses(path, *RULES)
    assert_every_cell(gpu_gaps(seen, threshold_ns=0), every)
    assert_every_cell(gpu_gaps(seen, threshold_ns=1_000_000), long)
    assert_every_cell(gpu_gaps(seen), unasked)


def test_every_wait_for_the_gpu_is_nsys_own(path: Path, trace: Trace) -> None:
    *_, waits = analyses(path, *RULES)
    assert_every_cell(ours(trace, "cuda_api_sync"), waits)


def test_kernels_by_name_add_up_to_nsys_own_by_shape(path: Path, trace: Trace) -> None:
    """nsys 2022.4 has kernels by launch shape only; what can be added up must agree."""
    theirs = stats(path, "cuda_gpu_kern_gb_sum")
    mine = ours(trace, "cuda_gpu_kern_sum").set_index("Name")
    if theirs.empty:
        assert mine.empty
        return
    figures = {"Total Time (ns)": "sum", "Instances": "sum", "Min (ns)": "min", "Max (ns)": "max"}
    grouped = theirs.astype(dict.fromkeys(figures, "int64")).groupby("Name").agg(figures)
    for title in figures:
        assert mine[title].to_dict() == grouped[title].to_dict()
    mean = grouped["Total Time (ns)"] / grouped["Instances"]
    assert mine["Avg (ns)"].to_dict() == pytest.approx(mean.to_dict())


def test_projections_by_name_add_up_to_nsys_own_ranges(path: Path, trace: Trace) -> None:
    """nsys 2022.4 has the projection of single ranges only; its summary is made of nothing else."""
    theirs = projection(path)
    mine = ours(trace, "nvtx_gpu_proj_sum").set_index(["Range", "Style"])
    if theirs.empty:
        assert mine.empty
        return
    numbers = {"Projected Duration (ns)": "int64", "Orig Duration (ns)": "int64", "NumGPUOps": "int64"}
    levels = pd.to_numeric(theirs["Lvl"].mask(theirs["Lvl"] == ""))
    typed = theirs.astype(numbers | {"NumChild": "int64"}).assign(Lvl=levels)
    grouped = typed.rename(columns={"Name": "Range"}).groupby(["Range", "Style"])
    projected = grouped["Projected Duration (ns)"]
    wanted = {
        "Total Proj Time (ns)": projected.sum(),
        "Total Range Time (ns)": grouped["Orig Duration (ns)"].sum(),
        "Range Instances": projected.size(),
        "Proj Avg (ns)": projected.mean(),
        "Proj Med (ns)": projected.median(),
        "Proj Min (ns)": projected.min(),
        "Proj Max (ns)": projected.max(),
        "Proj StdDev (ns)": projected.std().mask(projected.size() == 1, 0.0),
        "Total GPU Ops": grouped["NumGPUOps"].sum(),
        "Avg GPU Ops": grouped["NumGPUOps"].mean(),
        "Avg Range Lvl": grouped["Lvl"].mean(),
        "Avg Num Child": grouped["NumChild"].mean(),
    }
    assert list(mine) == list(wanted)
    for title, column in wanted.items():
        assert mine[title].astype("float64").to_dict() == pytest.approx(column.to_dict(), nan_ok=True), title
