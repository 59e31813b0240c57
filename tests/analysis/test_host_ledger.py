"""The host's ledger: exact on every trace, each call once, by what it is for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.attribute import RangeSelector, attribute
from analysis.host_ledger import HOST_COLUMNS, HOST_PARTS, host_ledger, host_part
from analysis.host_parts import HostPart
from analysis.ledger import mean_ledger
from analysis.trace import Trace, read_trace
from tests.analysis.trace_file import EXAMPLES, THREAD, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"
NAMES = (
    "cudaLaunchKernel_v7000",
    "cuLaunchKernel",
    "cudaStreamSynchronize_v3020",
    "cudaMemcpy_v3020",
    "cudaMalloc_v3020",
    "cudaEventQuery_v3020",
)


def ledger_of(file: TraceFile) -> pd.DataFrame:
    ledger = host_ledger(read_trace(file.save()), RangeSelector())
    assert_exact(ledger)
    return ledger


def assert_exact(ledger: pd.DataFrame) -> None:
    assert list(ledger.columns) == list(HOST_COLUMNS)
    assert (ledger[list(HOST_PARTS)].sum(axis=1) == ledger["range_ns"]).all()
    assert (ledger.dtypes == np.int64).all()
    assert (ledger >= 0).all().all()


def parts(ledger: pd.DataFrame) -> list[list[int]]:
    """Launches, synchronising, copies, allocations, other API and rest of each request."""
    return [[int(value) for value in row] for row in ledger[list(HOST_PARTS)].to_numpy()]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cudaLaunchKernel_v7000", HostPart.LAUNCHES),
        ("cudaLaunchKernelExC_v11060", HostPart.LAUNCHES),
        ("cuLaunchKernelEx_ptsz", HostPart.LAUNCHES),
        ("cudaGraphLaunch_v10000", HostPart.LAUNCHES),
        ("cudaMemcpyAsync_v3020", HostPart.LAUNCHES),
        ("cuMemcpyHtoDAsync_v2", HostPart.LAUNCHES),
        ("cudaMemcpy3DPeerAsync_ptsz", HostPart.LAUNCHES),
        ("cudaMemsetAsync_v3020", HostPart.LAUNCHES),
        ("cudaMemset_v3020", HostPart.LAUNCHES),
        ("cudaMemcpy_v3020", HostPart.COPIES),
        ("cuMemcpyDtoH_v2", HostPart.COPIES),
        ("cudaMemcpyToSymbol_ptds", HostPart.COPIES),
        ("cudaMemcpy2D_ptds", HostPart.COPIES),
        ("cudaDeviceSynchronize_v3020", HostPart.SYNCHRONISING),
        ("cudaStreamSynchronize_ptsz_v7000", HostPart.SYNCHRONISING),
        ("cudaEventSynchronize_v3020", HostPart.SYNCHRONISING),
        ("cuCtxSynchronize", HostPart.SYNCHRONISING),
        ("cuStreamSynchronize", HostPart.SYNCHRONISING),
        ("cudaMalloc_v3020", HostPart.ALLOCATIONS),
        ("cudaMallocAsync_v11020", HostPart.ALLOCATIONS),
        ("cudaMallocHost_v3020", HostPart.ALLOCATIONS),
        ("cudaHostAlloc_v3020", HostPart.ALLOCATIONS),
        ("cudaFree_v3020", HostPart.ALLOCATIONS),
        ("cudaFreeHost_v3020", HostPart.ALLOCATIONS),
        ("cuMemCreate", HostPart.ALLOCATIONS),
        ("cuMemAddressReserve", HostPart.ALLOCATIONS),
        ("cuMemAlloc_v2", HostPart.ALLOCATIONS),
        ("cuMemGetInfo_v2", HostPart.OTHER_API),
        ("cudaMemGetInfo_v3020", HostPart.OTHER_API),
        ("cudaEventQuery_v3020", HostPart.OTHER_API),
        ("cudaStreamWaitEvent_v3020", HostPart.OTHER_API),
        ("cudaLaunchHostFunc_v10000", HostPart.OTHER_API),
        ("cudaStreamIsCapturing_v10000", HostPart.OTHER_API),
        ("cuKernelGetName", HostPart.OTHER_API),
        ("", HostPart.OTHER_API),
    ],
)
def test_what_a_call_is_for(name: str, part: HostPart) -> None:
    assert host_part(name) is part


def test_every_part_of_a_request(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    for place, name in enumerate(NAMES):
        file.call(name, 10 * place, 10 * place + place + 1)
    ledger = ledger_of(file)
    assert parts(ledger) == [[3, 3, 4, 5, 6, 79]]
    assert ledger[[f"{part}_calls" for part in HostPart]].to_numpy().tolist() == [[2, 1, 1, 1, 1]]


def test_nested_calls_count_once_under_the_outermost(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.call("cudaLaunchKernel_v7000", 10, 50)
    file.call("cuMemAlloc_v2", 15, 25)  # a kernel that is loaded at its first launch
    file.call("cuLaunchKernel", 30, 50)
    file.call("cuStreamSynchronize", 31, 49)
    ledger = ledger_of(file)
    assert parts(ledger) == [[40, 0, 0, 0, 0, 60]]
    assert ledger["launches_calls"].tolist() == [1]


def test_a_nested_call_that_starts_with_the_outer_one_is_still_nested(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.call("cuMemAlloc_v2", 10, 30)
    file.call("cudaLaunchKernel_v7000", 10, 50)
    assert parts(ledger_of(file)) == [[40, 0, 0, 0, 0, 60]]


def test_calls_that_touch_the_range_are_not_in_it(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((100, 200))
    file.call("cudaMalloc_v3020", 50, 100)
    file.call("cudaMalloc_v3020", 120, 130)
    file.call("cudaMalloc_v3020", 200, 260)
    ledger = ledger_of(file)
    assert parts(ledger) == [[0, 0, 0, 10, 0, 90]]
    assert ledger["allocations_calls"].tolist() == [1]


def test_calls_across_the_ends_count_inside_only(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((100, 200), (300, 310))
    file.call("cudaMalloc_v3020", 50, 110)
    file.call("cudaStreamSynchronize_v3020", 190, 260)
    file.call("cudaMemcpy_v3020", 290, 400)
    ledger = ledger_of(file)
    assert parts(ledger) == [[0, 10, 0, 10, 0, 80], [0, 0, 10, 0, 0, 0]]
    assert ledger[[f"{part}_calls" for part in HostPart]].to_numpy().sum() == 0


def test_other_threads_calls_do_not_count(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((-50, 50))
    file.call("cudaLaunchKernel_v7000", -10, 10, thread=THREAD + 1)
    file.call("cudaLaunchKernel_v7000", -10, -3)
    assert parts(ledger_of(file)) == [[7, 0, 0, 0, 0, 93]]


def test_nested_requests_each_have_their_own(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (20, 40))
    file.call("cudaLaunchKernel_v7000", 10, 30)
    assert parts(ledger_of(file)) == [[20, 0, 0, 0, 0, 80], [10, 0, 0, 0, 0, 10]]


def test_without_requests_or_calls(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "none.sqlite")
    file.call("cudaLaunchKernel_v7000", 10, 30)
    assert ledger_of(file).empty
    file = TraceFile(tmp_path / "quiet.sqlite")
    file.requests((0, 7))
    assert parts(ledger_of(file)) == [[0, 0, 0, 0, 0, 7]]


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*/*.sqlite.gz")), ids=lambda path: path.parent.name)
def test_exact_on_reference_traces(path: Path) -> None:
    trace = read_trace(path)
    ledger = host_ledger(trace, RangeSelector())
    assert_exact(ledger)
    launches = attribute(trace, RangeSelector()).launches
    # No launch of these traces lies in another call, so their time is the launch API time of the tables.
    spent = (launches["end_ns"] - launches["start_ns"]).groupby(launches["request"]).sum()
    assert ledger["launches_ns"].tolist() == spent.tolist()
    assert ledger["launches_calls"].tolist() == launches["request"].value_counts(sort=False).tolist()


def test_eager_is_rest_and_a_graph_waits() -> None:
    shares = {}
    for name in ("eager.node", "graph.graph"):
        ledger = host_ledger(read_trace(EXAMPLES[name]), RangeSelector("forward", ""))
        assert_exact(ledger)
        shares[name] = mean_ledger(ledger, HOST_PARTS).set_index("part")["share_percent"]
    assert shares["eager.node"].idxmax() == "rest"
    assert shares["graph.graph"].idxmax() == "synchronising"


Call = tuple[str, int, int, int]

times = st.integers(-200, 200)
calls = st.lists(st.tuples(st.sampled_from(NAMES), times, st.integers(0, 60), st.integers(0, 1)), max_size=12)
ranges = st.lists(st.tuples(times, st.integers(0, 150), st.integers(0, 1)), max_size=4)


def read(requests: list[tuple[int, int, int]], made: list[Call]) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        file = TraceFile(Path(folder) / "t.sqlite")
        file.domain("launchgap", 1)
        for start, length, thread in requests:
            file.range("request", start, start + length, thread=THREAD + thread)
        for name, start, length, thread in made:
            file.call(name, start, start + length, thread=THREAD + thread)
        return read_trace(file.save())


@settings(max_examples=40, deadline=None)
@given(requests=ranges, made=calls)
def test_exact_and_nothing_but_what_calls_cover(
    requests: list[tuple[int, int, int]], made: list[Call]
) -> None:
    trace = read(requests, made)
    ledger = host_ledger(trace, RangeSelector())
    assert_exact(ledger)
    ordered = sorted(requests, key=lambda one: (one[0], one[2]))
    for row, (start, length, thread) in enumerate(ordered):
        own = [(begin, begin + ns) for _, begin, ns, place in made if place == thread]
        covered = sum(any(low <= t < high for low, high in own) for t in range(start, start + length))
        assert ledger["rest_ns"].tolist()[row] == length - covered
        for part in HostPart:
            mine = [c for c in made if c[3] == thread and host_part(c[0]) is part]
            longest = sum(max(min(b + ns, start + length) - max(b, start), 0) for _, b, ns, _ in mine)
            assert ledger[f"{part}_ns"].tolist()[row] <= longest


@settings(max_examples=25, deadline=None)
@given(requests=ranges, made=calls, data=st.data())
def test_order_of_calls_does_not_matter(
    requests: list[tuple[int, int, int]], made: list[Call], data: st.DataObject
) -> None:
    other = read(requests, data.draw(st.permutations(made)))
    pd.testing.assert_frame_equal(
        host_ledger(other, RangeSelector()), host_ledger(read(requests, made), RangeSelector())
    )
