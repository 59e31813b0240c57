from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.attribute import (
    NO_CALL,
    Attributed,
    RangeSelector,
    attribute,
    call_of,
    calls_in_ranges,
    hidden_requests,
    select_ranges,
    untimed_requests,
)
from analysis.trace import read_trace
from tests.analysis.trace_file import EXAMPLES, PROCESS, THREAD, TraceFile

FORWARD = RangeSelector("forward", "")


def attributed(file: TraceFile) -> Attributed:
    return attribute(read_trace(file.save()), RangeSelector())


def kernels_by_request(found: Attributed) -> list[int]:
    return found.kernels["request"].value_counts().reindex(range(len(found.requests)), fill_value=0).tolist()


def test_launch_call_decides_not_the_kernels_own_time(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    file.launch("runs in the gap", (10, 20), (110, 190))
    file.launch("runs in the other request", (30, 40), (210, 220))
    file.launch("launched in the gap", (120, 130), (240, 250))
    assert kernels_by_request(attributed(file)) == [2, 0]


def test_both_ends_of_a_range_belong_to_it(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((10, 20), (20, 30))
    for call in ((10, 12), (18, 20), (20, 20), (9, 12), (18, 21), (29, 30), (29, 31)):
        file.launch("k", call, (100, 101))
    assert kernels_by_request(attributed(file)) == [3, 2]


def test_other_threads_launches_do_not_belong(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.kernel("k", 30, 40, file.call("cudaLaunchKernel", 10, 20, thread=THREAD + 1))
    assert kernels_by_request(attributed(file)) == [0]


def test_correlation_ids_of_two_processes_are_kept_apart(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.kernel("ours", 30, 40, file.call("cudaLaunchKernel", 10, 20, correlation=7))
    theirs = file.call("cudaLaunchKernel", 12, 22, thread=other | 9, correlation=7)
    file.kernel("theirs", 32, 42, theirs, globalPid=other)
    found = attributed(file)
    assert found.kernels["name"].tolist() == ["ours"]
    assert found.unlaunched == 0


def test_nested_requests_each_count_what_they_hold(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (10, 50), (20, 30))
    file.launch("k", (22, 24), (200, 201))
    file.launch("k", (60, 64), (210, 211))
    assert kernels_by_request(attributed(file)) == [2, 1, 1]


def test_nodes_of_a_graph_share_its_one_launch(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    replay = file.call("cudaGraphLaunch_v10000", 10, 20)
    for start in (30, 40, 50):
        file.kernel("k", start, start + 5, replay, graphNodeId=start)
    found = attributed(file)
    assert kernels_by_request(found) == [3]
    assert found.launches[["api", "kind", "answered", "nodes"]].to_numpy().tolist() == [
        ["cudaGraphLaunch", "graph", True, True]
    ]
    assert hidden_requests(found).size == 0


def test_graph_mode_hides_nodes(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 100), (200, 300), (400, 500), (600, 700))
    file.replay(30, 60, file.call("cudaGraphLaunch", 10, 20))
    file.launch("no graph here", (210, 220), (230, 240))
    file.call("cudaGraphLaunch", 410, 420)
    file.replay(0, 0, file.call("cudaGraphLaunch", 610, 620))
    found = attributed(file)
    assert found.launches["answered"].tolist() == [True, True, False, True]
    assert hidden_requests(found).tolist() == [0, 2, 3]
    assert untimed_requests(found).tolist() == [2, 3]


def test_operations_without_or_with_an_unknown_launch(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.kernel("call lost", 30, 40, 999)
    file.kernel("no correlation", 41, 42, None)
    file.memcpy(50, 60, file.call("cudaMemPrefetchAsync_v8000", 10, 20))
    file.call("cudaFree", 21, 22, correlation=-1)
    found = attributed(file)
    assert found.unlaunched == 2
    assert found.launched_by_others == {"cudaMemPrefetchAsync_v8000": 1}
    assert len(found.memcpys) == 1
    assert found.launches.empty


def test_repeated_correlation_id_does_not_multiply_operations(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.call("cuLaunchKernel", 12, 18, correlation=5)
    file.kernel("k", 30, 40, file.call("cudaLaunchKernel", 10, 20, correlation=5))
    found = attributed(file)
    assert len(found.kernels) == 1
    trace = read_trace(file.path)
    assert trace.api_calls["start_ns"].to_numpy()[call_of(trace.kernels, trace.api_calls)].tolist() == [10]


def test_call_of_without_any_calls() -> None:
    trace = read_trace(EXAMPLES["eager.node"])
    assert set(call_of(trace.kernels, trace.api_calls.iloc[:0])) == {NO_CALL}
    assert call_of(trace.kernels.iloc[:0], trace.api_calls).size == 0


def test_select_ranges_wants_complete_ranges_of_one_name_and_domain(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.domain("launchgap", 1)
    file.domain("other", 2)
    file.range("request", 50, 60)
    file.range("request", 0, 10)
    file.range("request", 20, None)
    file.range("request", 20, 30, domain=2)
    file.range("request", 20, 30, domain=0)
    file.range("requests", 20, 30)
    file.range("request", 20, 30, event_type=60, end_thread=THREAD + 1)
    file.range("request", 70, 80, event_type=60)
    found = select_ranges(read_trace(file.save()).ranges, "request", "launchgap")
    assert found["start_ns"].tolist() == [0, 50, 70]
    assert found.index.tolist() == [0, 1, 2]
    assert found["end_ns"].dtype == np.int64


@pytest.mark.parametrize("seed", range(30))
def test_calls_in_ranges_against_comparing_every_pair(seed: int) -> None:
    random = np.random.default_rng(seed)

    def spans(n: int, length: int) -> pd.DataFrame:
        start = random.integers(0, 100, n)
        end = start + random.integers(0, length, n)
        return pd.DataFrame({"start_ns": start, "end_ns": end, "thread": random.integers(0, 3, n)})

    calls, ranges = spans(int(random.integers(0, 40)), 6), spans(int(random.integers(0, 12)), 60)
    expected = {
        (call, place)
        for call, (start, end, thread) in enumerate(calls.to_numpy())
        for place, (first, last, owner) in enumerate(ranges.to_numpy())
        if thread == owner and first <= start and end <= last
    }
    found = calls_in_ranges(calls, ranges)
    assert set(zip(found["call"], found["range"], strict=True)) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(("name", "kernels", "launches"), [("eager.node", 232, 271), ("graph.node", 306, 3)])
def test_example_traces(name: str, kernels: int, launches: int) -> None:
    found = attribute(read_trace(EXAMPLES[name]), FORWARD)
    assert kernels_by_request(found) == [kernels] * 20
    assert (found.launches["request"].value_counts() == launches).all()
    assert found.launches["answered"].all()
    assert found.unlaunched == 0
    assert found.launched_by_others == {}
