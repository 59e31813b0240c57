"""What the nsys at hand can be asked, so that no comparison is left out unnoticed."""

from pathlib import Path

import pytest

from analysis.nvidia import REPORTS, gpu_gaps
from analysis.trace import read_trace
from tests.analysis.nvidia.hard_cases import build, whole_replays
from tests.analysis.nvidia.oracle import REPORTS as ASKED
from tests.analysis.nvidia.oracle import RULES, analyses, assert_every_cell, missing, nsys, projection
from tests.analysis.nvidia.traits import Traits, as_named_by_nsys, seen_by_nsys, traits
from tests.analysis.trace_file import LATEST

pytestmark = pytest.mark.nsys


def test_all_our_reports_are_compared() -> None:
    assert set(REPORTS) == (set(ASKED) | set(RULES)) - {"cuda_gpu_trace"}


def test_only_2022_lacks_reports_and_only_two() -> None:
    of_2022 = {"cuda_gpu_kern_sum", "nvtx_gpu_proj_sum"}
    assert missing() == (of_2022 if nsys().version < (2023,) else set())


def test_reports_differ_between_versions_in_known_ways() -> None:
    found = traits()
    if nsys().version < (2024,):
        # Read in the scripts of 2022.4 and 2023.4: no look at whole replays, no colon without a domain.
        assert found == Traits(
            colon_without_domain=False,
            long_copy_kinds=nsys().version >= (2023,),
            projects_replays=False,
            busy_replays=False,
        )
    else:
        assert found.long_copy_kinds
        assert found.colon_without_domain


def test_whole_replays_are_left_out_or_counted_as_nsys_does(tmp_path: Path) -> None:
    path = build(whole_replays, tmp_path / "replays.sqlite", LATEST)
    trace = read_trace(path)
    mine = REPORTS["nvtx_gpu_proj_trace"](seen_by_nsys(trace, "nvtx_gpu_proj_trace"))
    shown = ["Name", "Projected Start (ns)", "Projected Duration (ns)", "NumGPUOps"]
    named = as_named_by_nsys(mine, "nvtx_gpu_proj_trace")
    assert_every_cell(named[shown], projection(path)[shown])
    (found,) = analyses(path, "gpu_gaps:gap=0")
    assert_every_cell(gpu_gaps(seen_by_nsys(trace, "gpu_gaps"), threshold_ns=0), found)
