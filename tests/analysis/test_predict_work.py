"""Which of eager's work would be in a graph, on traces made for the purpose and on real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.predict_work import LEFT_OUT_COLUMNS, REQUEST_COLUMNS, Role, eager_work
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"
FORWARD = RangeSelector("forward", "")
SCAN = "at_cuda_detail::cub::DeviceScanKernel<long>"
IS_ZERO = "unrolled_elementwise_kernel<AUnaryFunctor<long, long, bool, CompareEqFunctor<long>>>"


def load(file: TraceFile) -> Attributed:
    return attribute(read_trace(file.save()), RangeSelector())


def requests(file: TraceFile, *starts: int, kernels: tuple[str, ...] = ("a", "b")) -> None:
    """Requests of 10,000 ns: a copy in, a fill, these kernels of 100 ns each, 50 ns apart."""
    file.requests(*((start, start + 10_000) for start in starts))
    for start in starts:
        file.memcpy(start + 20, start + 60, file.call("cudaMemcpyAsync_v3020", start, start + 10))
        file.memset(start + 100, start + 130, file.call("cudaMemsetAsync_v3020", start + 11, start + 12))
        for number, name in enumerate(kernels):
            at = start + 200 + 150 * number
            file.launch(name, (start + 20 + number, start + 21 + number), (at, at + 100))


def test_copies_from_the_host_are_no_nodes(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    requests(file, 0, 20_000)
    work = eager_work(load(file))
    assert tuple(work.requests.columns) == REQUEST_COLUMNS
    (first, second) = work.requests.to_dict("records")
    assert first | {"request": 1} == second
    assert first == {
        **{"request": 0, "kernels": 2, "memsets": 1, "memcpys": 0, "launches": 4},
        **{"work_us": 0.23, "busy_us": 0.27, "eager_us": pytest.approx((450 - 60) / 1e3)},
    }
    assert tuple(work.left_out.columns) == LEFT_OUT_COLUMNS
    assert work.left_out[["role", "operations_per_request", "us_per_request"]].to_numpy().tolist() == [
        ["input-copy", 1.0, 0.04]
    ]
    kept = eager_work(load(again(tmp_path)), [Role.INPUT_COPY])
    assert kept.requests["memcpys"].tolist() == [1, 1]
    assert kept.requests["work_us"].tolist() == kept.requests["busy_us"].tolist()
    assert kept.left_out.empty


def again(folder: Path) -> TraceFile:
    file = TraceFile(folder / "again.sqlite")
    requests(file, 0, 20_000)
    return file


def test_the_question_for_packed_sequences_goes_with_its_copy_to_the_host(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    # The last addition of int64 is no part of the question: something else runs between.
    requests(file, 0, 20_000, kernels=("add<long>", "layer_norm", "add<long>", SCAN, IS_ZERO))
    for start in (0, 20_000):
        call = file.call("cudaMemcpyAsync_v3020", start + 40, start + 41)
        file.memcpy(start + 2_000, start + 2_010, call, copyKind=2, bytes=1)
        file.launch("tail", (start + 50, start + 51), (start + 3_000, start + 3_100))
    work = eager_work(load(file))
    assert work.requests["kernels"].tolist() == [3, 3]
    assert dict(zip(work.left_out["role"], work.left_out["operations_per_request"], strict=True)) == {
        "input-copy": 1.0,
        "read-back": 1.0,
        "packed-question": 3.0,
    }


def test_kernels_before_another_copy_to_the_host_are_nodes(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    requests(file, 0, 20_000, kernels=("a", "add<long>"))
    for start in (0, 20_000):
        call = file.call("cudaMemcpyAsync_v3020", start + 40, start + 41)
        file.memcpy(start + 2_000, start + 2_010, call, copyKind=2, bytes=1)
    assert eager_work(load(file)).requests["kernels"].tolist() == [2, 2]


def test_work_at_the_same_time_counts_once_and_streams_are_counted(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    requests(file, 0, 20_000)
    for start in (0, 20_000):
        file.launch("beside", (start + 50, start + 51), (start + 210, start + 290), streamId=8)
    work = eager_work(load(file))
    assert work.requests["work_us"].tolist() == [0.23, 0.23]
    assert work.streams == 2


def test_a_request_without_work_is_left_out(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    requests(file, 0, 20_000)
    file.range("request", 40_000, 41_000)
    assert eager_work(load(file)).requests["request"].tolist() == [0, 1]


def test_a_trace_of_replays_is_no_baseline() -> None:
    for name in ("graph.node", "graph.graph"):
        found = attribute(read_trace(EXAMPLES[name]), FORWARD)
        with pytest.raises(LaunchgapError, match=r"replay CUDA graphs already, .*; give the trace"):
            eager_work(found)


@pytest.mark.parametrize(
    ("starts", "extra", "sentence"),
    [
        ((0,), None, "is there 1 times, .*; capture several requests"),
        ((0, 5_000), None, "1 of its 2 ranges begin before an earlier one has ended, .*; name a range"),
        ((0, 20_000), "device", "work on 2 GPUs, .*; choose it with --device"),
    ],
)
def test_what_is_no_baseline_is_told_in_a_sentence(
    starts: tuple[int, ...], extra: str | None, sentence: str, tmp_path: Path
) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    requests(file, *starts)
    if extra is not None:
        file.launch("there", (60, 61), (500, 510), deviceId=1)
    with pytest.raises(LaunchgapError, match=sentence):
        eager_work(load(file))


def test_ranges_around_nothing_are_refused(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    file.launch("outside", (400, 410), (420, 430))
    with pytest.raises(LaunchgapError, match="none of its 2 ranges started GPU work"):
        eager_work(load(file))


def test_a_request_that_only_copies_has_nothing_for_a_graph(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    for start in (0, 200):
        file.memcpy(start + 20, start + 60, file.call("cudaMemcpyAsync_v3020", start, start + 10))
    with pytest.raises(LaunchgapError, match="nothing that its requests ran could be in a graph"):
        eager_work(load(file))


@pytest.mark.parametrize("case", sorted(path.name for path in REFERENCE.iterdir() if path.is_dir()))
def test_the_nodes_are_those_of_the_real_graph(case: str) -> None:
    """Captured without a mask, so the graph runs what eager runs, but for what it cannot do."""
    found = {
        name: attribute(read_trace(REFERENCE / case / f"{name}.node.sqlite.gz"), RangeSelector())
        for name in ("eager", "graph")
    }
    nodes = eager_work(found["eager"]).requests
    graph = found["graph"]
    for column, rows in (("kernels", graph.kernels), ("memsets", graph.memsets)):
        assert set(nodes[column]) == set(rows[rows["graph_node"] >= 0].groupby("request").size())
