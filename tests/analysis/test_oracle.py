"""Our numbers against NVIDIA's own: real `nsys stats` on the same SQLite files, cell by cell."""

import gzip
import io
import os
import subprocess
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from analysis.attribute import RangeSelector, attribute
from analysis.launches import api_name
from analysis.scrub import scrub
from analysis.summaries import SHAPE_COLUMNS, api_summary, kernel_summary
from analysis.tables import CountedTrace, TraceLabel, kernels_table, requests_table
from analysis.trace import read_trace
from contract import NVTX_DOMAIN, RangeName, TraceMode
from nsight.install import find_nsys
from tests.analysis.trace_file import EXAMPLES

pytestmark = pytest.mark.nsys

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = sorted((ROOT / "profiles" / "reference").glob("**/*.sqlite.gz"))
TRACES = [*EXAMPLES.values(), *REFERENCES]
# Names of nsys 2023 and newer, and what 2022 calls the same report.
OLD_NAMES = {
    "cuda_gpu_kern_sum": "gpukernsum",
    "cuda_api_sum": "cudaapisum",
    "nvtx_gpu_proj_trace": "nvtxgpuproj",
    "nvtx_kern_sum": "nvtxkernsum",
    "cuda_gpu_trace": "gputrace",
}
NUMBERS = {
    "Time (%)": "time_percent",
    "Total Time (ns)": "total_ns",
    "Avg (ns)": "avg_ns",
    "Med (ns)": "med_ns",
    "Min (ns)": "min_ns",
    "Max (ns)": "max_ns",
    "StdDev (ns)": "stddev_ns",
}
ROUNDED_TO = 0.1

every_trace = pytest.mark.parametrize("packed", TRACES, ids=lambda path: f"{path.parent.name}-{path.name}")


@cache
def nsys() -> str:
    return str(find_nsys(os.environ).path)


@cache
def has_new_names() -> bool:
    done = subprocess.run([nsys(), "stats", "--help-reports"], capture_output=True, text=True, check=False)
    return "cuda_gpu_kern_sum" in done.stdout + done.stderr


@cache
def stats_texts(path: Path) -> dict[str, str]:
    """What nsys prints as CSV for each report; empty where it finds no data of the kind."""
    names = {report if has_new_names() else old: report for report, old in OLD_NAMES.items()}
    command = [
        nsys(),
        "stats",
        "--format",
        "csv",
        "--force-export=false",
        "--report",
        ",".join(names),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = {}
    for part in done.stdout.split("Processing [")[1:]:
        script, *lines = part.splitlines()
        header = [place for place, line in enumerate(lines) if line.count(",") > 5]
        text = "\n".join(line for line in lines[header[0] :] if line) + "\n" if header else ""
        found[names[Path(script.rsplit("[")[-1].split("]")[0]).stem]] = text
    assert set(found) == set(OLD_NAMES)
    return found


def stats(path: Path, report: str) -> pd.DataFrame:
    text = stats_texts(path)[report]
    return pd.read_csv(io.StringIO(text)) if text else pd.DataFrame()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unpacked")


@pytest.fixture
def unpacked(packed: Path, folder: Path) -> Path:
    """A copy that nsys may write beside; made once, so that nsys is asked once."""
    path = folder / packed.parent.name / packed.name.removesuffix(".gz")
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def assert_cells_equal(ours: pd.DataFrame, theirs: pd.DataFrame, keys: list[str], instances: str) -> None:
    """Compare all rows and all number columns; averages are printed with one decimal."""
    assert len(ours) == len(theirs)
    if theirs.empty:
        return
    ours = ours.sort_values([*keys, "total_ns"], ignore_index=True)
    theirs = theirs.sort_values([*keys, "Total Time (ns)"], ignore_index=True)
    for key in keys:
        assert ours[key].tolist() == theirs[key].tolist()
    assert ours["instances"].tolist() == theirs[instances].tolist()
    for column, name in NUMBERS.items():
        tolerance = 0 if name in {"total_ns", "min_ns", "max_ns"} else ROUNDED_TO / 2 + 1e-6
        difference = (ours[name].astype(float) - theirs[column].astype(float)).abs()
        assert difference.max() <= tolerance, column


def range_of(packed: Path) -> RangeSelector:
    return RangeSelector("forward", "") if packed in EXAMPLES.values() else RangeSelector()


def range_title(packed: Path) -> str:
    return "forward" if packed in EXAMPLES.values() else f"{NVTX_DOMAIN}:{RangeName.REQUEST}"


@every_trace
def test_kernel_summary_is_nsys_own(unpacked: Path) -> None:
    trace, theirs = read_trace(unpacked), stats(unpacked, "cuda_gpu_kern_sum")
    if "GridXYZ" not in theirs:
        renamed = theirs.rename(columns={"Name": "name"})
        assert_cells_equal(kernel_summary(trace), renamed, ["name"], "Instances")
        return
    for kind in ("Grid", "Block"):
        sizes = theirs[f"{kind}XYZ"].str.split(expand=True).astype(int)
        theirs[[f"{kind.lower()}_{axis}" for axis in "xyz"]] = sizes
    renamed = theirs.rename(columns={"Name": "name"})
    ours = kernel_summary(trace, by_shape=True)
    assert_cells_equal(ours, renamed, ["name", *SHAPE_COLUMNS], "Instances")


@every_trace
def test_kernel_summary_by_name_adds_up_to_nsys_own(unpacked: Path) -> None:
    theirs = stats(unpacked, "cuda_gpu_kern_sum")
    ours = kernel_summary(read_trace(unpacked)).set_index("name")
    if theirs.empty:
        assert ours.empty
        return
    grouped = theirs.groupby("Name")
    assert ours["total_ns"].to_dict() == grouped["Total Time (ns)"].sum().to_dict()
    assert ours["instances"].to_dict() == grouped["Instances"].sum().to_dict()
    assert ours["min_ns"].to_dict() == grouped["Min (ns)"].min().to_dict()
    assert ours["max_ns"].to_dict() == grouped["Max (ns)"].max().to_dict()
    mean = grouped["Total Time (ns)"].sum() / grouped["Instances"].sum()
    assert ours["avg_ns"].to_dict() == pytest.approx(mean.to_dict())


@every_trace
def test_api_summary_is_nsys_own(unpacked: Path) -> None:
    theirs = stats(unpacked, "cuda_api_sum")
    ours = api_summary(read_trace(unpacked))
    # nsys takes off version suffixes of four digits only; both sides are compared without any.
    ours["name"] = ours["name"].map(api_name)
    if len(theirs):
        theirs["name"] = theirs["Name"].map(api_name)
    assert_cells_equal(ours, theirs, ["name"], "Num Calls")


@every_trace
def test_kernels_belong_to_the_ranges_that_nsys_puts_them_in(packed: Path, unpacked: Path) -> None:
    trace = read_trace(unpacked)
    found = attribute(trace, range_of(packed))
    theirs = stats(unpacked, "nvtx_kern_sum")
    ours = found.kernels.groupby(found.kernels["name"].astype(str))
    if theirs.empty:
        assert found.kernels.empty
        return
    title = theirs["NVTX Range"].str.removeprefix(":")
    mine = theirs[title == range_title(packed)].groupby("Kernel Name")
    assert ours.size().to_dict() == mine["Kern Inst"].sum().to_dict()
    duration = (found.kernels["end_ns"] - found.kernels["start_ns"]).groupby(
        found.kernels["name"].astype(str)
    )
    assert duration.sum().to_dict() == mine["Total Time (ns)"].sum().to_dict()


@every_trace
def test_gpu_span_is_nsys_own_projection(packed: Path, unpacked: Path) -> None:
    trace = read_trace(unpacked)
    if len(trace.graph_launches) and not has_new_names():
        # The projection of nsys 2022 does not know whole graphs: compare it without them.
        trace = type(trace)(**(vars(trace) | {"graph_launches": trace.graph_launches.iloc[:0]}))
    found = attribute(trace, range_of(packed))
    rows = found.operations.groupby("request").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    theirs = stats(unpacked, "nvtx_gpu_proj_trace")
    if theirs.empty:
        assert rows.empty
        return
    own = theirs[theirs["Name"].str.removeprefix(":") == range_title(packed)].sort_values("Orig Start (ns)")
    assert own["Projected Start (ns)"].tolist() == rows["first"].tolist()
    assert own["Projected Duration (ns)"].tolist() == (rows["last"] - rows["first"]).tolist()
    assert own["NumGPUOps"].tolist() == found.operations.groupby("request")["call"].nunique().tolist()


@every_trace
def test_tables_add_up_to_nsys_own_totals(packed: Path, unpacked: Path) -> None:
    trace = read_trace(unpacked)
    found = attribute(trace, range_of(packed))
    one = CountedTrace(TraceLabel("x", TraceMode.NODE), found, trace.has_gpu_work)
    requests, kernels = requests_table([one]), kernels_table([one])
    if requests["kernels"].isna().any():
        return  # graph mode, or no GPU: there is no count to compare
    theirs = stats(unpacked, "nvtx_kern_sum")
    mine = theirs[theirs["NVTX Range"].str.removeprefix(":") == range_title(packed)]
    assert requests["kernels"].sum() == mine["Kern Inst"].sum()
    total_us = kernels["total_us_per_request"].sum() * len(requests)
    assert total_us == pytest.approx(mine["Total Time (ns)"].sum() / 1000)


@every_trace
def test_nsys_says_the_same_of_a_scrubbed_trace(unpacked: Path, tmp_path: Path) -> None:
    before = stats_texts(unpacked)
    clean = tmp_path / unpacked.name
    clean.write_bytes(scrub(unpacked))
    assert stats_texts(clean) == before
    assert any(before.values()) or not read_trace(unpacked).has_gpu_work


@every_trace
def test_nsys_agrees_on_a_trace_cut_to_its_requests(packed: Path, unpacked: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean.sqlite"
    clean.write_bytes(scrub(unpacked, only_requests=True, selector=range_of(packed)))
    theirs, ours = stats(clean, "cuda_gpu_kern_sum"), kernel_summary(read_trace(clean))
    if theirs.empty:
        assert ours.empty
        return
    assert ours["total_ns"].sum() == theirs["Total Time (ns)"].sum()
    assert ours["instances"].sum() == theirs["Instances"].sum()
    whole, kept = (attribute(read_trace(path), range_of(packed)) for path in (unpacked, clean))
    pd.testing.assert_frame_equal(
        whole.kernels.drop(columns=["call", "name"]), kept.kernels.drop(columns=["call", "name"])
    )
