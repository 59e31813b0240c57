"""The definitions against slow and simple ones on random traces; names, empty and cut traces. No nsys."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.nvidia import REPORTS, cuda_kern_exec_sum, gpu_gaps, nvtx_kern_sum
from analysis.nvidia.durations import api_title, describe, process_id, thread_id
from analysis.nvidia.nesting import NOWHERE, parents_of, stack_of
from analysis.trace import Trace, read_trace
from tests.analysis.nvidia.hard_cases import CASES, OTHER_PROCESS, build
from tests.analysis.trace_file import EXAMPLES, LATEST, PROCESS, THREAD, TraceFile

SEEDS = range(40)


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch_v10000"),
        ("cudaMemcpyAsync_ptsz", "cudaMemcpyAsync_ptsz"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2"),
        ("a_vwxyz", "a"),
        ("_v", "_v"),
        ("", ""),
    ],
)
def test_only_a_version_of_four_characters_is_taken_off(recorded: str, shown: str) -> None:
    assert api_title(recorded) == shown


def test_ids_with_all_bits_in_use_are_told_apart() -> None:
    serialized = pd.Series([(0x7F << 56) | (0xFFFFFF << 24) | 0xFFFFFE, THREAD])
    assert process_id(serialized).tolist() == [0xFFFFFF, 4321]
    assert thread_id(serialized).tolist() == [0xFFFFFE, 4321]


def test_the_deviation_is_of_a_sample_and_0_of_one() -> None:
    durations = pd.Series([1, 3, 7, None], dtype="Int64")
    table = describe(durations, [pd.Series(["a", "a", "b", "c"])])
    assert table["std"].tolist() == [pytest.approx(2**0.5), 0.0, 0.0]
    assert table["count"].tolist() == [2, 1, 0]
    assert table["avg"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_parent_is_the_shortest_range_around(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, 12, size=14))
    rows = {
        "start_ns": start,
        "end_ns": start + rng.integers(0, 9, size=14),
        "thread": rng.integers(0, 2, 14),
    }
    ranges = pd.DataFrame(rows)
    parents = parents_of(ranges)
    length = ranges["end_ns"] - ranges["start_ns"]
    for number in range(len(ranges)):
        one = ranges.iloc[number]
        inside = (ranges["start_ns"] <= one["start_ns"]) & (ranges["end_ns"] >= one["end_ns"])
        around = ranges.index[inside & (ranges["thread"] == one["thread"]) & (ranges.index != number)]
        if around.empty:
            assert parents[number] == NOWHERE
        else:
            assert parents[number] in around
            assert length[parents[number]] == length[around].min()


def test_ranges_of_one_span_and_what_they_hold_have_no_level() -> None:
    ranges = pd.DataFrame({"start_ns": [0, 2, 2, 3], "end_ns": [9, 8, 8, 4], "thread": 1})
    parents = parents_of(ranges)
    assert [stack_of(number, parents) for number in range(4)] == [[0], None, None, None]
    assert parents.tolist()[1:3] == [2, 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_gaps_are_what_no_interval_covers(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    trace = TraceFile(tmp_path / "gaps.sqlite")
    idle: dict[tuple[int, int], np.ndarray] = {}
    for process in (PROCESS, OTHER_PROCESS):
        for device in range(2):
            line = np.zeros(200, dtype=bool)
            for start in rng.integers(1, 150, size=8):
                end = start + rng.integers(1, 20)
                line[start:end] = True
                trace.kernel("k", int(start), int(end), None, globalPid=process, deviceId=device)
            inside = np.flatnonzero(line)
            idle[(process >> 24) & 0xFFFFFF, device] = ~line[inside[0] : inside[-1] + 1]
    found = gpu_gaps(read_trace(trace.save()), threshold_ns=0)
    total = found.groupby(["PID", "Device ID"])["Duration (ns)"].sum()
    for place, line in idle.items():
        assert total.get(place, 0) == line.sum()


@pytest.mark.parametrize("report", REPORTS)
def test_a_trace_without_gpu_work_gives_the_same_columns_and_no_rows(report: str, tmp_path: Path) -> None:
    nothing = read_trace(build(CASES["ranges_only"], tmp_path / "nothing.sqlite", LATEST))
    table = REPORTS[report](nothing)
    assert table.empty
    assert list(table) == list(REPORTS[report](read_trace(EXAMPLES["eager.node"])))


@pytest.mark.parametrize("report", REPORTS)
def test_a_trace_cut_down_to_a_process_is_that_process_alone(report: str, tmp_path: Path) -> None:
    both = read_trace(build(CASES["equal_correlation_ids"], tmp_path / "both.sqlite", LATEST))
    table = REPORTS[report](of_process(both, OTHER_PROCESS))
    assert len(table) or report in {"gpu_gaps", "cuda_api_sync"}
    if "PID" in table:
        assert set(table["PID"]) <= {4322}
    whole = REPORTS[report](both)
    if "PID" in whole and report not in {"nvtx_gpu_proj_trace", "gpu_gaps"}:
        own = whole[whole["PID"] == 4322].reset_index(drop=True)
        pd.testing.assert_frame_equal(table, own, check_dtype=False)


def of_process(trace: Trace, process: int) -> Trace:
    tables = ("kernels", "memcpys", "memsets", "graph_launches", "api_calls", "ranges")
    cut = {name: getattr(trace, name) for name in tables}
    return replace(trace, **{name: table[table["process"] == process] for name, table in cut.items()})


def test_equal_correlation_ids_of_two_processes_are_not_mixed(tmp_path: Path) -> None:
    trace = read_trace(build(CASES["equal_correlation_ids"], tmp_path / "both.sqlite", LATEST))
    launched = cuda_kern_exec_sum(trace)
    assert launched["Count"].sum() == len(trace.kernels)
    assert set(zip(launched["PID"], launched["DevId"], strict=True)) == {(4321, 0), (4322, 1)}


def test_kernels_outside_of_all_ranges_are_shown_without_one(tmp_path: Path) -> None:
    table = nvtx_kern_sum(read_trace(build(CASES["nested_ranges"], tmp_path / "nested.sqlite", LATEST)))
    outside = table[table["NVTX Range"].isna()]
    assert set(outside["Kernel Name"]) == {"late", "no call", "no id"}
    assert set(outside.loc[outside["PID"].isna(), "Kernel Name"]) == {"no call", "no id"}
    assert not outside["NVTX Inst"].any()
