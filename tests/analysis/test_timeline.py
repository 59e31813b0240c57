"""One request as a timeline: all of it is there, and its gaps are the ledger's."""

from __future__ import annotations

import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.host_parts import HostPart
from analysis.ledger import gap_table, gpu_ledger
from analysis.timeline import Gap, GapKind, Row, SubRange, Timeline, WorkKind
from analysis.timeline_trace import timeline_of
from analysis.trace import Trace, read_trace
from analysis.waterfall import median_request
from contract import LaunchgapError, TraceMode
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"
TRACES = sorted(REFERENCE.glob("*/*.sqlite.gz"))
every_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name}-{path.name}")


@cache
def reference(path: Path) -> tuple[Trace, Attributed]:
    trace = read_trace(path)
    return trace, attribute(trace, RangeSelector())


@cache
def drawn(path: Path) -> Timeline:
    trace, attributed = reference(path)
    return timeline_of(trace, RangeSelector(), path.name.split(".")[0], attributed=attributed)


def made(file: TraceFile, request: int = 0) -> Timeline:
    return timeline_of(read_trace(file.save()), RangeSelector(), "eager", request=request)


def gap_ns(timeline: Timeline, kind: GapKind) -> int:
    return sum(gap.duration_ns for gap in timeline.gaps if gap.kind is kind)


@every_trace
def test_the_gaps_are_those_of_the_ledger_for_every_request(path: Path) -> None:
    _, attributed = reference(path)
    ledger = gpu_ledger(attributed)
    gaps = gap_table(attributed).assign(length_ns=lambda table: table["end_ns"] - table["start_ns"])
    for request, row in enumerate(ledger.to_dict("records")):
        for bound, name in ((True, "launch_bound_gaps"), (False, "device_gaps")):
            own = gaps["length_ns"][(gaps["request"] == request) & (gaps["launch_bound"] == bound)]
            assert (len(own), own.sum()) == (row[name], row[f"{name}_ns"])


@every_trace
def test_head_busy_gaps_and_tail_are_the_median_range(path: Path) -> None:
    trace, attributed = reference(path)
    timeline = drawn(path)
    ranges = gpu_ledger(attributed)["range_ns"].tolist()
    assert timeline.request == median_request(ranges)
    assert timeline.range_ns == ranges[timeline.request] == sorted(ranges)[9]
    parts = timeline.head_ns + timeline.busy_ns + sum(gap.duration_ns for gap in timeline.gaps)
    assert parts + timeline.tail_ns == timeline.range_ns
    assert timeline.trace_mode == trace.graph_trace_mode == TraceMode(path.name.split(".")[1])


@every_trace
def test_every_operation_of_the_request_is_there_and_finds_its_call(path: Path) -> None:
    _, attributed = reference(path)
    timeline = drawn(path)
    start_ns = int(attributed.requests["start_ns"].iloc[timeline.request])
    for kind, table in (
        (WorkKind.KERNEL, attributed.kernels),
        (WorkKind.COPY, attributed.memcpys),
        (WorkKind.FILL, attributed.memsets),
        (WorkKind.GRAPH, attributed.graph_launches),
    ):
        own = table[table["request"] == timeline.request]
        spans = zip(own["start_ns"] - start_ns, own["end_ns"] - own["start_ns"], strict=True)
        seen = [(one.start_ns, one.duration_ns) for one in timeline.operations if one.kind is kind]
        assert sorted(spans) == sorted(seen)
    launches = {HostPart.LAUNCHES, HostPart.COPIES}
    assert all(timeline.calls[one.call].part in launches for one in timeline.operations)
    names = attributed.kernels.loc[attributed.kernels["request"] == timeline.request, "name"].astype("str")
    assert sorted(names) == sorted(one.name for one in timeline.operations if one.kind is WorkKind.KERNEL)


@every_trace
def test_each_lane_is_in_order_and_rows_do_not_overlap(path: Path) -> None:
    timeline = drawn(path)
    for lane in (timeline.ranges, timeline.calls, timeline.operations, timeline.gaps):
        starts = [one.start_ns for one in lane]
        assert starts == sorted(starts)
    for row in range(len(timeline.rows)):
        own = [one for one in timeline.operations if one.row == row]
        assert own
        assert all(a.start_ns + a.duration_ns <= b.start_ns for a, b in pairwise(own))


@every_trace
def test_the_calls_are_those_of_the_host_ledger(path: Path) -> None:
    _, attributed = reference(path)
    timeline = drawn(path)
    own = attributed.launches[attributed.launches["request"] == timeline.request]
    found = [call for call in timeline.calls if call.part is HostPart.LAUNCHES]
    assert [call.duration_ns for call in found] == (own["end_ns"] - own["start_ns"]).tolist()
    replayed = "forward" if timeline.strategy == "eager" else "replay"
    assert [one.name for one in timeline.ranges] == ["copy", replayed, "synchronize"]


def test_graph_mode_shows_a_replay_and_node_mode_its_kernels() -> None:
    folder = REFERENCE / "gpt2-float32-p50-m1024"
    nodes, whole = (drawn(folder / f"graph.{mode}.sqlite.gz") for mode in ("node", "graph"))
    assert (nodes.count(WorkKind.KERNEL), nodes.count(WorkKind.GRAPH)) == (223, 0)
    assert (whole.count(WorkKind.KERNEL), whole.count(WorkKind.GRAPH)) == (0, 1)
    # All nodes come from one call.
    calls = {one.call for one in nodes.operations if one.kind is WorkKind.KERNEL}
    assert [nodes.calls[call].name for call in calls] == ["cudaGraphLaunch_v10000"]


def test_a_foreign_trace_by_its_own_range() -> None:
    timeline = timeline_of(read_trace(EXAMPLES["eager.node"]), RangeSelector("forward", ""), "eager")
    assert timeline.requests == 20
    assert timeline.count(WorkKind.KERNEL) > 200


def test_what_each_lane_holds(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((1000, 2000))
    file.range("copy", 1000, 1100)
    file.range("inner", 1010, 1020)  # lies in copy
    file.range("elsewhere", 1200, 1300, domain=7)
    file.call("cudaStreamSynchronize_v3020", 900, 1050)  # began before the request
    file.call("cudaMalloc_v3020", 910, 1000)  # ended as it began
    file.launch("first", (1100, 1150), (1200, 1300))
    file.launch("second", (1310, 1350), (1400, 1500))
    file.memcpy(1450, 1600, file.call("cudaMemcpyAsync_v3020", 1360, 1380), streamId=9)
    file.memset(1650, 1700, file.call("cudaMemsetAsync_v3020", 1390, 1395))
    timeline = made(file)
    assert timeline.ranges == (SubRange("copy", 0, 100),)
    assert [(call.name, call.start_ns, call.depth) for call in timeline.calls][:2] == [
        ("cudaStreamSynchronize_v3020", -100, 0),
        ("cudaLaunchKernel_v7000", 100, 0),
    ]
    assert timeline.rows == (Row(0, 7), Row(0, 9))
    assert [(one.name, one.row, one.call, one.start_ns) for one in timeline.operations] == [
        ("first", 0, 1, 200),
        ("second", 0, 2, 400),
        ("copy host to device", 1, 3, 450),
        ("fill", 0, 4, 650),
    ]
    assert [one.shape for one in timeline.operations][2:] == ["400 bytes", "16 bytes"]
    assert timeline.gaps == (Gap(GapKind.LAUNCH_BOUND, 300, 100), Gap(GapKind.DEVICE, 600, 50))
    assert (timeline.head_ns, timeline.busy_ns, timeline.tail_ns) == (200, 350, 300)


def test_nested_calls_and_overlapping_kernels_of_a_stream(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.call("cuLaunchKernel", 10, 20)
    file.call("cudaLaunchKernel_v7000", 10, 30)
    file.launch("a", (40, 41), (50, 80))
    file.launch("b", (42, 43), (60, 70))
    file.launch("c", (44, 45), (80, 90))
    timeline = made(file)
    assert [(call.name, call.depth) for call in timeline.calls[:2]] == [
        ("cudaLaunchKernel_v7000", 0),
        ("cuLaunchKernel", 1),
    ]
    assert timeline.rows == (Row(0, 7), Row(0, 7))
    assert [one.row for one in timeline.operations] == [0, 1, 0]


def test_work_without_a_time_is_counted_and_not_drawn(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("never", (10, 20), (0, 0))
    file.launch("host", (20, 30), (40, 50), deviceId=2**31 - 1)
    timeline = made(file)
    assert (timeline.undrawn, timeline.operations, timeline.head_ns) == (2, (), 100)


def test_work_that_outlasts_the_request_is_drawn_whole(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    file.launch("long", (10, 20), (50, 150))
    file.memcpy(210, 220, None)  # nobody launched it
    first = made(file)
    assert [(one.start_ns, one.duration_ns) for one in first.operations] == [(50, 100)]
    assert (first.busy_ns, first.outside_ns, first.tail_ns) == (50, 50, 0)
    second = timeline_of(read_trace(file.path), RangeSelector(), "eager", request=1)
    assert (second.operations, second.range_ns, second.calls) == ((), 100, ())


def test_a_range_or_a_request_that_is_not_there(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    path = file.save()
    with pytest.raises(LaunchgapError, match="no range named 'nothing'"):
        timeline_of(read_trace(path), RangeSelector("nothing"), "eager")
    for request in (-1, 1):
        with pytest.raises(LaunchgapError, match=f"has no request {request} to draw; name one from 0 to 0"):
            timeline_of(read_trace(path), RangeSelector(), "eager", request=request)


spans = st.tuples(
    st.integers(0, 90), st.integers(0, 30), st.integers(0, 120), st.integers(0, 25), st.integers(0, 2)
)


@settings(max_examples=15, deadline=None)
@given(work=st.lists(spans, max_size=9), shared=st.booleans())
def test_it_adds_up_whatever_ran(work: list[tuple[int, int, int, int, int]], shared: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = TraceFile(Path(folder) / "t.sqlite")
        file.requests((0, 100))
        calls = [file.call("cudaGraphLaunch", start, start + length) for start, length, *_ in work]
        for place, (_, _, start, length, stream) in enumerate(work):
            correlation = calls[0] if shared else calls[place]
            file.kernel("k", start + 1, start + 1 + length, correlation, streamId=stream)
        trace = read_trace(file.save())
    attributed = attribute(trace, RangeSelector())
    timeline = timeline_of(trace, RangeSelector(), "graph", attributed=attributed)
    row = gpu_ledger(attributed).iloc[0]
    assert gap_ns(timeline, GapKind.LAUNCH_BOUND) == row["launch_bound_gaps_ns"]
    assert gap_ns(timeline, GapKind.DEVICE) == row["device_gaps_ns"]
    assert len(timeline.gaps) == row["launch_bound_gaps"] + row["device_gaps"]
    covered = {
        ns for one in timeline.operations for ns in range(one.start_ns, one.start_ns + one.duration_ns)
    }
    for gap in timeline.gaps:
        assert not covered & set(range(gap.start_ns, gap.start_ns + gap.duration_ns))
