from pathlib import Path

import pandas as pd
import pytest

from analysis import bulk
from analysis.aggregate import Summary, summarise
from analysis.attribute import calls_in_ranges
from analysis.launches import launch_calls
from analysis.summaries import api_summary, kernel_summary, range_summary
from analysis.trace import Trace, read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import EXAMPLES, PROCESS, SCHEMAS, THREAD, TraceFile

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = sorted((ROOT / "profiles" / "reference").glob("**/*.sqlite.gz"))
TRACES = [*EXAMPLES.values(), *REFERENCES]


def assert_same(summed: Summary, trace: Trace) -> None:
    pd.testing.assert_frame_equal(summed.kernels, kernel_summary(trace))
    pd.testing.assert_frame_equal(summed.api_calls, api_summary(trace))
    counts = ["launching_instances", "launches", "operations"]
    pd.testing.assert_frame_equal(summed.ranges.drop(columns=counts), range_summary(trace))
    pd.testing.assert_frame_equal(summed.rest.ranges, trace.ranges)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_traces_sum_up_to_what_reading_all_of_them_gives(path: Path) -> None:
    assert_same(summarise(path), read_trace(path))


def test_ranges_need_not_be_counted() -> None:
    path = EXAMPLES["graph.node"]
    summed, trace = summarise(path, count_ranges=False), read_trace(path)
    pd.testing.assert_frame_equal(summed.kernels, kernel_summary(trace))
    pd.testing.assert_frame_equal(summed.api_calls, api_summary(trace))
    pd.testing.assert_frame_equal(summed.ranges, range_summary(trace))
    assert summed.unlaunched is None


@pytest.mark.parametrize("version", SCHEMAS)
def test_ranges_on_several_threads_and_processes(tmp_path: Path, version: str) -> None:
    other = PROCESS + (1 << 24)
    file = TraceFile(tmp_path / "t.sqlite", version)
    for process, thread in ((PROCESS, THREAD), (PROCESS, THREAD + 1), (other, other | 9)):
        file.range("outer", 0, 100, thread=thread, domain=0)
        file.range("inner", 10, 40, thread=thread, domain=0)
        file.range("inner", 15, 30, thread=thread, domain=0)
        file.range("open", 50, None, thread=thread, domain=0)
        call = file.call("cuLaunchKernelEx", 16, 20, thread=thread, correlation=thread & 0xFF)
        file.kernel("k", 200, 210, call, globalPid=process)
        file.memcpy(220, 230, file.call("cudaMemcpyAsync_v3020", 60, 61, thread=thread), globalPid=process)
        file.call("cudaStreamSynchronize_v3020", 17, 18, thread=thread)
    file.kernel("lost", 300, 310, 12345)
    summed, trace = summarise(file.save()), read_trace(file.path)
    assert_same(summed, trace)
    assert summed.unlaunched == 1
    columns = ["name", "instances", "launching_instances", "launches", "operations"]
    rows = summed.ranges[columns].sort_values("name").to_numpy().tolist()
    assert rows == [["inner", 6, 6, 3, 3], ["outer", 3, 3, 6, 6]]


def test_counts_are_those_of_the_pairs() -> None:
    path = EXAMPLES["eager.node"]
    trace, ranges = read_trace(path), summarise(path).ranges.set_index("name")
    pairs = calls_in_ranges(launch_calls(trace.api_calls), trace.ranges.astype({"end_ns": "int64"}))
    names = trace.ranges["name"].loc[pairs["range"]]
    assert ranges["launches"].to_dict() == names.value_counts().to_dict()


def test_trace_without_anything(tmp_path: Path) -> None:
    summed = summarise(TraceFile(tmp_path / "t.sqlite").save())
    assert summed.unlaunched == 0
    for table in (summed.kernels, summed.api_calls, summed.ranges):
        assert table.empty
    assert "launches" in summed.ranges


def test_durations_and_names_that_are_not_small(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("slow", (0, 10), (5, 20 * 10**9))
    file.launch("backwards", (20, 30), (90, 40))
    file.insert("StringIds", id=2**40, value="far")
    file.launch("far", (40, 50), (60, 70), demangledName=2**40)
    summed, trace = summarise(file.save()), read_trace(file.path)
    assert_same(summed, trace)
    assert summed.kernels.set_index("name")["total_ns"].to_dict() == {
        "slow": 20 * 10**9 - 5,
        "far": 10,
        "backwards": -50,
    }


@pytest.mark.parametrize("column", ["start", "end", "globalTid", "nameId"])
@pytest.mark.parametrize("value", ["'soon'", "x'00'", "1.5"])
def test_what_is_no_number_is_named(tmp_path: Path, column: str, value: str) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("k", (10, 20), (30, 40))
    file.execute(f'UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET "{column}" = {value}')
    with pytest.raises(LaunchgapError, match=f"KIND_RUNTIME has 1 rows without a number in {column}"):
        summarise(file.save())


def test_same_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    path = EXAMPLES["graph.node"]
    whole = summarise(path)
    monkeypatch.setattr(bulk, "ROWS_AT_ONCE", 100)
    parts = summarise(path)
    for name in ("kernels", "api_calls", "ranges"):
        pd.testing.assert_frame_equal(getattr(whole, name), getattr(parts, name))
