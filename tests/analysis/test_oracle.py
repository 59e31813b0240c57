"""Counts per request against NVIDIA's own: real `nsys stats` on the same SQLite files.

NVIDIA's whole reports, cell by cell, are compared in `tests/analysis/nvidia`.
"""

from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.nvidia import cuda_gpu_kern_gb_sum
from analysis.scrub import scrub
from analysis.tables import CountedTrace, TraceLabel, kernels_table, requests_table
from analysis.trace import read_trace
from contract import NVTX_DOMAIN, RangeName, TraceMode
from tests.analysis.nvidia.oracle import (
    assert_every_cell,
    projection,
    read_once,
    rows_of,
    stats,
    stats_of_one,
    texts,
    unpack_once,
)
from tests.analysis.nvidia.traits import seen_by_nsys
from tests.analysis.trace_file import EXAMPLES

pytestmark = pytest.mark.nsys

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = sorted((ROOT / "profiles" / "reference").glob("**/*.sqlite.gz"))
TRACES = [*EXAMPLES.values(), *REFERENCES]

# Each strategy and mode once, of the smallest model, and the foreign ones.
SMALL = [*EXAMPLES.values(), *(path for path in REFERENCES if path.parent.name.startswith("bert-tiny"))]


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


every_trace = pytest.mark.parametrize("packed", TRACES, ids=named)
every_kind_of_trace = pytest.mark.parametrize("packed", SMALL, ids=named)


@pytest.fixture
def unpacked(packed: Path) -> Path:
    """A copy that nsys may write beside; made once, so that nsys is asked once."""
    return unpack_once(packed)


def range_of(packed: Path) -> RangeSelector:
    return RangeSelector("forward", "") if packed in EXAMPLES.values() else RangeSelector()


@cache
def attributed_once(packed: Path, unpacked: Path) -> Attributed:
    """The requests of a bundled trace, to look at and not to change."""
    return attribute(read_once(unpacked), range_of(packed))


def range_title(packed: Path) -> str:
    return "forward" if packed in EXAMPLES.values() else f"{NVTX_DOMAIN}:{RangeName.REQUEST}"


def kernels_of_requests(packed: Path, unpacked: Path) -> pd.DataFrame:
    """The rows of nsys's `nvtx_kern_sum` for the requests of a trace; empty without kernels or ranges."""
    rows = stats(unpacked, "nvtx_kern_sum")
    if rows.empty:
        return rows
    own = rows[rows["NVTX Range"].str.removeprefix(":") == range_title(packed)]
    return own.astype({"Kern Inst": "int64", "Total Time (ns)": "int64"})


@every_trace
def test_kernels_belong_to_the_ranges_that_nsys_puts_them_in(packed: Path, unpacked: Path) -> None:
    found = attributed_once(packed, unpacked)
    theirs = kernels_of_requests(packed, unpacked)
    if theirs.empty:
        assert found.kernels.empty
        return
    mine = theirs.groupby("Kernel Name")
    name = found.kernels["name"].astype(str)
    assert found.kernels.groupby(name).size().to_dict() == mine["Kern Inst"].sum().to_dict()
    duration = found.kernels["end_ns"] - found.kernels["start_ns"]
    assert duration.groupby(name).sum().to_dict() == mine["Total Time (ns)"].sum().to_dict()


@every_trace
def test_gpu_span_is_nsys_own_projection(packed: Path, unpacked: Path) -> None:
    trace = seen_by_nsys(read_once(unpacked), "nvtx_gpu_proj_trace")
    found = attribute(trace, range_of(packed))
    rows = found.operations.groupby("request").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    theirs = projection(unpacked)
    if theirs.empty:
        assert rows.empty
        return
    numbers = ["Orig Start (ns)", "Projected Start (ns)", "Projected Duration (ns)", "NumGPUOps"]
    theirs = theirs.astype(dict.fromkeys(numbers, "int64")).sort_values("Orig Start (ns)")
    own = theirs[theirs["Name"].str.removeprefix(":") == range_title(packed)]
    assert own["Projected Start (ns)"].tolist() == rows["first"].tolist()
    assert own["Projected Duration (ns)"].tolist() == (rows["last"] - rows["first"]).tolist()
    assert own["NumGPUOps"].tolist() == found.operations.groupby("request")["call"].nunique().tolist()


@every_trace
def test_tables_add_up_to_nsys_own_totals(packed: Path, unpacked: Path) -> None:
    trace = read_once(unpacked)
    found = attributed_once(packed, unpacked)
    one = CountedTrace(TraceLabel("x", TraceMode.NODE), found, trace.has_gpu_work)
    requests, kernels = requests_table([one]), kernels_table([one])
    if requests["kernels"].isna().any():
        return  # graph mode, or no GPU: there is no count to compare
    mine = kernels_of_requests(packed, unpacked)
    assert requests["kernels"].sum() == mine["Kern Inst"].sum()
    total_us = kernels["total_us_per_request"].sum() * len(requests)
    assert total_us == pytest.approx(mine["Total Time (ns)"].sum() / 1000)


@every_kind_of_trace
def test_nsys_says_the_same_of_a_scrubbed_trace(unpacked: Path, tmp_path: Path) -> None:
    before = texts(unpacked)
    clean = tmp_path / unpacked.name
    clean.write_bytes(scrub(unpacked))
    after = texts(clean)
    for report, text in before.items():
        pd.testing.assert_frame_equal(rows_of(after[report]), rows_of(text))
    assert any(map(len, map(rows_of, before.values()))) or not read_once(unpacked).has_gpu_work


@every_kind_of_trace
def test_nsys_agrees_on_a_trace_cut_to_its_requests(packed: Path, unpacked: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean.sqlite"
    clean.write_bytes(scrub(unpacked, only_requests=True, selector=range_of(packed)))
    cut = read_trace(clean)
    theirs, ours = stats_of_one(clean, "cuda_gpu_kern_gb_sum"), cuda_gpu_kern_gb_sum(cut)
    assert_every_cell(ours, theirs)
    if theirs.empty:
        return
    whole, kept = attributed_once(packed, unpacked), attribute(cut, range_of(packed))
    pd.testing.assert_frame_equal(
        whole.kernels.drop(columns=["call", "name"]), kept.kernels.drop(columns=["call", "name"])
    )
