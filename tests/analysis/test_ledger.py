"""The GPU's ledger: exact on every trace, and each part is what its definition says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.attribute import Attributed, RangeSelector, attribute, has_time
from analysis.ledger import (
    GPU_PARTS,
    LEDGER_COLUMNS,
    MEAN_COLUMNS,
    gpu_ledger,
    gpu_ledger_by_device,
    mean_ledger,
)
from analysis.schema import HOST_DEVICE
from analysis.tables import CountedTrace, TraceLabel, requests_table
from analysis.trace import read_trace
from contract import TraceMode
from tests.analysis.test_properties import SEED, Launch, Requests, example, random_trace
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"
FORWARD = RangeSelector("forward", "")


def attributed(file: TraceFile) -> Attributed:
    return attribute(read_trace(file.save()), RangeSelector())


def parts_of(file: TraceFile) -> list[list[int]]:
    """Head, busy, launch-bound gaps, device gaps and tail of each request."""
    ledger = gpu_ledger(attributed(file))
    assert_exact(ledger)
    return [[int(value) for value in row] for row in ledger[list(GPU_PARTS)].to_numpy()]


def assert_exact(ledger: pd.DataFrame) -> None:
    assert (ledger[list(GPU_PARTS)].sum(axis=1) == ledger["range_ns"]).all()
    numbers = ledger[[name for name in LEDGER_COLUMNS if name != "timed"]]
    assert (numbers.dtypes == np.int64).all()
    assert (numbers >= 0).all().all()


def test_parts_of_an_eager_request(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("a", (1, 8), (10, 30))
    file.launch("b", (20, 25), (33, 40))  # launched while a ran: the device took its time
    file.launch("c", (42, 50), (51, 60))  # launched after b had ended
    assert parts_of(file) == [[10, 36, 11, 3, 40]]


@pytest.mark.parametrize(("call_end", "bound_ns"), [(19, 0), (20, 0), (21, 10), (29, 10), (33, 10)])
def test_a_gap_is_launch_bound_if_the_next_call_ended_after_the_work(
    call_end: int, bound_ns: int, tmp_path: Path
) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 50))
    file.launch("a", (0, 5), (10, 20))
    file.launch("b", (6, call_end), (30, 50))
    assert parts_of(file) == [[10, 30, bound_ns, 10 - bound_ns, 0]]


def test_request_without_work_is_all_head(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((-70, -20), (0, 100))
    file.launch("k", (10, 20), (30, 50))
    assert parts_of(file) == [[50, 0, 0, 0, 0], [30, 20, 0, 0, 50]]


def test_trace_without_requests_has_no_rows(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("k", (10, 20), (30, 50))
    found = attributed(file)
    for ledger in (gpu_ledger(found), gpu_ledger_by_device(found)):
        assert ledger.empty
        assert set(LEDGER_COLUMNS) <= set(ledger.columns)
    assert mean_ledger(gpu_ledger(found))["us_per_request"].tolist() == [0.0] * len(GPU_PARTS)


def test_work_is_cut_off_at_both_ends_of_the_range(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((100, 200))
    file.launch("clocks disagree", (101, 102), (80, 110))
    file.launch("ends late", (110, 115), (190, 260))
    file.launch("begins late", (120, 125), (260, 300))
    file.launch("clocks disagree wholly", (130, 131), (50, 60))
    found = attributed(file)
    ledger = gpu_ledger(found)
    assert_exact(ledger)
    assert ledger[list(GPU_PARTS)].to_numpy().tolist() == [[0, 20, 80, 0, 0]]
    assert ledger["outside_ns"].tolist() == [20 + 60 + 40 + 10]
    assert ledger["operations"].tolist() == [4]


def test_all_work_after_the_range_leaves_all_head(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("touches the end", (10, 20), (100, 150))
    assert parts_of(file) == [[100, 0, 0, 0, 0]]


def test_work_that_only_touches_the_range_is_not_in_it(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((100, 200), (300, 400))
    file.launch("ends where the range begins", (110, 120), (80, 100))
    file.launch("in it", (301, 302), (310, 320))
    file.launch("begins where the range ends", (303, 304), (400, 420))
    assert parts_of(file) == [[100, 0, 0, 0, 0], [10, 10, 0, 0, 80]]


def test_overlapping_work_is_busy_once(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("long", (1, 2), (10, 60))
    file.launch("inside", (3, 4), (20, 30), streamId=8)
    file.launch("across", (5, 6), (50, 70), streamId=9)
    # The gap begins at the end of all work before it, not at the end of the last to start.
    file.launch("late", (7, 65), (80, 90))
    assert parts_of(file) == [[10, 70, 0, 10, 10]]


def test_of_operations_that_start_together_the_first_submitted_decides(tmp_path: Path) -> None:
    for name, ends in (("late first", (25, 15)), ("ready first", (15, 25))):
        file = TraceFile(tmp_path / f"{name}.sqlite")
        file.requests((0, 100))
        file.launch("a", (1, 2), (10, 20))
        file.launch("b", (3, ends[0]), (30, 40))
        file.launch("c", (4, ends[1]), (30, 35), streamId=8)
        assert parts_of(file) == [[10, 20, 0, 10, 60]]


def test_replay_in_graph_mode_is_one_busy_interval(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 100))
    file.memcpy(10, 12, file.call("cudaMemcpyAsync_v3020", 5, 9))
    file.replay(20, 90, file.call("cudaGraphLaunch_v10000", 11, 19))
    assert parts_of(file) == [[10, 72, 8, 0, 10]]


def test_gaps_between_nodes_of_a_replay_are_the_devices_own(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.memcpy(2, 4, file.call("cudaMemcpyAsync_v3020", 1, 3))
    replay = file.call("cudaGraphLaunch_v10000", 5, 60)  # node mode is slow: nodes run before it returns
    for place in range(3):
        file.kernel(f"k{place}", 10 + 20 * place, 20 + 20 * place, replay, graphNodeId=place)
    assert parts_of(file) == [[2, 32, 6, 20, 40]]


def test_replay_without_a_time_is_marked(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 100), (200, 300))
    file.replay(0, 0, file.call("cudaGraphLaunch_v10000", 11, 19))
    file.replay(220, 290, file.call("cudaGraphLaunch_v10000", 211, 219))
    ledger = gpu_ledger(attributed(file))
    assert_exact(ledger)
    assert ledger["timed"].tolist() == [False, True]
    assert ledger["busy_ns"].tolist() == [0, 70]
    assert ledger["operations"].tolist() == [0, 1]


def test_devices_are_one_in_the_ledger_and_apart_by_device(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("a", (1, 2), (10, 40), deviceId=0)
    file.launch("b", (3, 4), (30, 60), deviceId=1)
    file.launch("a", (5, 6), (60, 70), deviceId=0)
    found = attributed(file)
    assert gpu_ledger(found)[list(GPU_PARTS)].to_numpy().tolist() == [[10, 60, 0, 0, 30]]
    by_device = gpu_ledger_by_device(found)
    assert_exact(by_device)
    assert by_device["device"].tolist() == [0, 1]
    assert by_device[list(GPU_PARTS)].to_numpy().tolist() == [[10, 40, 0, 20, 30], [30, 30, 0, 0, 40]]


def test_host_nodes_of_graphs_are_no_gpu_work(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    replay = file.call("cudaGraphLaunch_v10000", 1, 5)
    file.kernel("k", 10, 20, replay, graphNodeId=1)
    file.kernel("on the host", 20, 50, replay, graphNodeId=2, deviceId=HOST_DEVICE)
    file.kernel("k", 50, 60, replay, graphNodeId=3)
    found = attributed(file)
    assert gpu_ledger(found)[list(GPU_PARTS)].to_numpy().tolist() == [[10, 20, 0, 30, 40]]
    assert gpu_ledger_by_device(found)["device"].tolist() == [0]


def test_call_of_an_unknown_kind_counts_as_in_time(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("a", (1, 2), (10, 20))
    file.kernel("b", 30, 40, file.call("cudaSomethingNew_v14000", 3, 28))
    assert parts_of(file) == [[10, 20, 0, 10, 60]]


def test_means_add_up_and_say_shares(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 400))
    file.launch("a", (1, 2), (10, 60))
    file.launch("a", (201, 202), (210, 260))
    table = mean_ledger(gpu_ledger(attributed(file)))
    assert list(table.columns) == list(MEAN_COLUMNS)
    assert table["part"].tolist() == ["head", "busy", "launch_bound_gaps", "device_gaps", "tail"]
    assert table["total_ns"].tolist() == [20, 100, 0, 0, 180]
    assert table["us_per_request"].sum() == pytest.approx(0.150)
    assert table["share_percent"].tolist() == pytest.approx([100 / 15, 100 / 3, 0, 0, 60])


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*/*.sqlite.gz")), ids=lambda path: path.parent.name)
def test_exact_on_reference_traces(path: Path) -> None:
    found = attribute(read_trace(path), RangeSelector())
    ledger = gpu_ledger(found)
    assert len(ledger) > 0
    assert ledger["timed"].all()
    assert_exact(ledger)
    by_device = gpu_ledger_by_device(found)  # one device worked
    pd.testing.assert_frame_equal(by_device[list(LEDGER_COLUMNS)], ledger)
    # All work of a request ends before it does: launchgap waits for it.
    assert (ledger["outside_ns"] == 0).all()
    assert (ledger["busy_ns"] > 0).all()
    counted = CountedTrace(TraceLabel("x", TraceMode.NODE), found, has_gpu=True)
    assert (ledger["busy_ns"] / 1e3).tolist() == pytest.approx(
        requests_table([counted])["gpu_busy_us"].tolist()
    )


def test_eager_waits_for_launches_and_a_graph_does_not() -> None:
    bound, busy, ranges = {}, {}, {}
    for name in ("eager.node", "graph.graph"):
        ledger = gpu_ledger(attribute(read_trace(EXAMPLES[name]), FORWARD))
        assert_exact(ledger)
        bound[name], busy[name], ranges[name] = (
            int(ledger[part].sum()) for part in ("launch_bound_gaps_ns", "busy_ns", "range_ns")
        )
    assert bound["eager.node"] > ranges["eager.node"] / 2
    assert bound["graph.graph"] < ranges["graph.graph"] / 20
    assert busy["graph.graph"] > 0.9 * ranges["graph.graph"]


def naive(found: Attributed, request: int) -> list[int]:
    """The parts of one request by a loop over its operations, as the definition reads."""
    first, last = (found.requests[name].tolist()[request] for name in ("start_ns", "end_ns"))
    operations = found.operations
    rows = operations[(operations["request"] == request) & has_time(operations)]
    call_end = dict(zip(found.launches["call"], found.launches["end_ns"], strict=True))
    begun = rows.groupby("call")["start_ns"].min().to_dict()
    work = []
    for call, start, end in zip(rows["call"], rows["start_ns"], rows["end_ns"], strict=True):
        low, high = max(start, first), min(end, last)
        if low < high or (low == high and start == end):
            late = start == begun[call] and call in call_end
            work.append((low, high, call_end[call] if late else None))
    if not work:
        return [last - first, 0, 0, 0, 0]
    until = min(start for start, _, _ in work)
    parts = [until - first, 0, 0, 0, 0]
    for start in sorted({start for start, _, _ in work}):
        together = [one for one in work if one[0] == start]
        if start > until:
            bound = all(end is not None and end > until for _, _, end in together)
            parts[2 if bound else 3] += start - until
        longest = max(end for _, end, _ in together)
        parts[1] += max(longest - max(start, until), 0)
        until = max(until, longest)
    parts[4] = last - until
    return parts


@random_trace(60)
def test_parts_are_what_a_naive_loop_finds(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        ledger = gpu_ledger(one.found)
        assert ledger["request"].tolist() == list(range(len(requests)))
        assert_exact(ledger)
        expected = [naive(one.found, request) for request in range(len(requests))]
        assert ledger[list(GPU_PARTS)].to_numpy().tolist() == expected


@random_trace()
def test_every_device_adds_up_by_itself(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        by_device = gpu_ledger_by_device(one.found)
        assert_exact(by_device)
        if by_device.empty:
            return
        busy = by_device.groupby("request")["busy_ns"].agg(["max", "sum"])
        together = gpu_ledger(one.found)["busy_ns"]
        assert (together >= busy["max"]).all()
        assert (together <= busy["sum"]).all()


@random_trace()
def test_order_of_rows_does_not_matter(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        tables = ("launches", "kernels", "memcpys", "memsets", "graph_launches")
        shuffled = {name: getattr(one.found, name).sample(frac=1, random_state=SEED) for name in tables}
        other = replace(one.found, **shuffled)
        pd.testing.assert_frame_equal(gpu_ledger(other), gpu_ledger(one.found))
        pd.testing.assert_frame_equal(gpu_ledger_by_device(other), gpu_ledger_by_device(one.found))
