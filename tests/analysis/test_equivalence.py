"""Kernels of eager against those of a graph: every one is told once, with its time and, where known, why."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.equivalence import MATCH_COLUMNS, Match, match_kernels, match_totals
from analysis.equivalence_reasons import (
    BESIDE,
    COPIED,
    FUSED,
    MASK,
    MASKED_ATTENTION,
    MATRIX,
    PACKED,
    READ_BACK,
    SIZES,
)
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"
FORWARD = RangeSelector("forward", "")

Kernel = tuple[str, int]  # name and number of blocks

STRIDE = 100_000
ARANGE = "elementwise_kernel_with_index<int, arange_cuda_out()::[lambda(long) (instance 1)]>"
BOTH = "elementwise_kernel<BinaryFunctor<bool, bool, bool, BitwiseAndFunctor<bool>>>"
IS_ZERO = "unrolled_elementwise_kernel<AUnaryFunctor<long, long, bool, CompareEqFunctor<long>>>"
SCAN = "DeviceScanKernel<policy_hub<long>>"


def request_of(
    folder: Path,
    name: str,
    requests: list[list[Kernel]],
    *,
    graph: bool = False,
    beside: tuple[Kernel, ...] = (),
    copies: tuple[int, ...] = (),
) -> Attributed:
    """A trace of requests that run these kernels of 10 ns each, one by one or as the nodes of a replay."""
    file = TraceFile(folder / f"{name}.sqlite")
    file.requests(*((STRIDE * place, STRIDE * place + 90_000) for place in range(len(requests))))
    for place, kernels in enumerate(requests):
        at = STRIDE * place
        for kind in copies:
            file.memcpy(at + 5, at + 6, file.call("cudaMemcpyAsync_v3020", at, at + 1), copyKind=kind)
        for number, (title, grid) in enumerate(beside):
            file.launch(title, (at + 10 + number, at + 11 + number), (at + 50, at + 60), gridX=grid)
        replay = file.call("cudaGraphLaunch_v10000", at + 100, at + 110) if graph else None
        for number, (title, grid) in enumerate(kernels):
            start = at + 200 + 20 * number
            call = replay or file.call("cudaLaunchKernel_v7000", start - 30, start - 29)
            node = number + 1 if graph else None
            file.kernel(title, start, start + 10, call, gridX=grid, graphNodeId=node)
    return attribute(read_trace(file.save()), RangeSelector())


def matched(eager: list[Kernel], graph: list[Kernel], folder: Path) -> pd.DataFrame:
    sides = request_of(folder, "eager", [eager]), request_of(folder, "graph", [graph], graph=True)
    table = match_kernels(*sides)
    assert list(table.columns) == list(MATCH_COLUMNS)
    return table


def told(table: pd.DataFrame) -> list[tuple[str, str, float, float]]:
    columns = ["match", "full_name", "eager_calls_per_request", "graph_calls_per_request"]
    return [tuple(row) for row in table[columns].to_numpy().tolist()]


def test_the_same_work_in_another_order_is_the_same(tmp_path: Path) -> None:
    table = matched([("a", 1), ("b", 2), ("a", 1)], [("b", 2), ("a", 1), ("a", 1)], tmp_path)
    assert told(table) == [("same", "a", 2, 2), ("same", "b", 1, 1)]
    assert table["difference_us"].tolist() == pytest.approx([0, 0])
    assert (table["reason"] == "").all()


def test_every_kind_of_match(tmp_path: Path) -> None:
    table = matched(
        [("a", 1), ("a", 1), ("a", 2), ("b", 1), ("gone", 1)],
        [("a", 1), ("a", 3), ("b", 1), ("b", 1), ("new", 1)],
        tmp_path,
    )
    assert told(table) == [
        ("same", "a", 1, 1),
        ("same", "b", 1, 1),
        ("changed", "a", 1, 1),
        ("missing", "a", 1, 0),
        ("missing", "gone", 1, 0),
        ("extra", "b", 0, 1),
        ("extra", "new", 0, 1),
    ]
    changed = table.loc[2]
    assert (changed["eager_shape"], changed["graph_shape"]) == (
        "grid 1x0x0 block 0x0x0",
        "grid 3x0x0 block 0x0x0",
    )
    assert changed["reason"] == SIZES
    assert table["eager_us_per_request"].sum() == pytest.approx(0.05)
    assert table["graph_us_per_request"].sum() == pytest.approx(0.05)


def test_counts_are_means_over_requests(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1)], [("a", 1), ("a", 1), ("b", 1)]])
    graph = request_of(tmp_path, "graph", [[("a", 1)]], graph=True)
    table = match_kernels(eager, graph)
    assert told(table) == [("same", "a", 1, 1), ("missing", "a", 0.5, 0), ("missing", "b", 0.5, 0)]
    assert table["eager_us_per_request"].tolist() == pytest.approx([0.01, 0.005, 0.005])


def test_what_runs_at_the_same_place_is_named(tmp_path: Path) -> None:
    table = matched(
        [("first", 1), ("old_norm", 1), ("middle", 1), ("tail", 1), ("gone", 1)],
        [("first", 7), ("new_norm", 1), ("middle", 7), ("tail", 7)],
        tmp_path,
    )
    instead = dict(zip(table["full_name"], table["instead"], strict=True))
    assert instead == {
        "first": "",
        "middle": "",
        "tail": "",
        "old_norm": "new_norm",
        "new_norm": "old_norm",
        "gone": "",
    }


def test_long_lists_of_what_runs_instead_are_cut(tmp_path: Path) -> None:
    table = matched([("old", 1)], [(f"new{number}", 1) for number in range(5)], tmp_path)
    assert table.loc[0, "instead"] == "new0, new1, new2 and 2 more"


def test_requests_that_are_too_long_are_not_aligned(tmp_path: Path) -> None:
    table = matched([("old", 1)] + [("k", 1)] * 4_001, [("new", 1)] + [("k", 1)] * 4_001, tmp_path)
    assert told(table) == [("same", "k", 4001, 4001), ("missing", "old", 1, 0), ("extra", "new", 0, 1)]
    assert (table["instead"] == "").all()


def test_work_beside_the_replay_is_told_and_counted_once(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1), ("b", 1)]], copies=(1,))
    graph = request_of(
        tmp_path, "graph", [[("a", 1)]], graph=True, beside=(("b", 1), ("own", 1)), copies=(1,)
    )
    table = match_kernels(eager, graph).set_index("full_name")
    assert table["match"].to_dict() == {
        "copy host to device": "same",
        "a": "same",
        "b": "same",
        "own": "extra",
    }
    outside = {"copy host to device": 1, "a": 0, "b": 1, "own": 1}
    assert table["outside_calls_per_request"].to_dict() == outside
    assert table.loc["own", "reason"] == BESIDE
    assert table.loc["copy host to device", "eager_shape"] == "400 bytes"


def test_work_beside_the_replay_is_shared_out_over_the_rows_of_its_kernel(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1)]])
    graph = request_of(tmp_path, "graph", [[("a", 1)]], graph=True, beside=(("a", 1), ("a", 1)))
    table = match_kernels(eager, graph)
    assert told(table) == [("same", "a", 1, 1), ("extra", "a", 0, 2)]
    assert table["outside_calls_per_request"].tolist() == pytest.approx([2 / 3, 4 / 3])


def test_copies_differ_by_direction_and_size(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1)]], copies=(1, 2, 77))
    graph = request_of(tmp_path, "graph", [[("a", 1)]], graph=True, copies=(1, 8))
    table = match_kernels(eager, graph)
    found = dict(zip(table["full_name"], table["match"], strict=True))
    assert found == {
        "copy host to device": "same",
        "a": "same",
        "copy device to host": "missing",
        "copy of kind 77": "missing",
        "copy device to device": "extra",
    }
    assert table.set_index("full_name").loc["copy device to host", "reason"] == READ_BACK
    assert table["kernel"].tolist() == table["full_name"].tolist()


def reasons(table: pd.DataFrame) -> dict[str, str]:
    rows = table[table["match"] != Match.SAME]
    return dict(zip(rows["full_name"], rows["reason"], strict=True))


def test_the_question_for_packed_sequences(tmp_path: Path) -> None:
    asked = [("gemm", 1), (SCAN, 1), (IS_ZERO, 1), ("layer_norm", 1)]
    eager = request_of(tmp_path, "eager", [asked], copies=(2,))
    graph = request_of(tmp_path, "graph", [[("gemm", 1)]], graph=True)
    assert reasons(match_kernels(eager, graph)) == {
        "copy device to host": PACKED,
        SCAN: PACKED,
        IS_ZERO: PACKED,
        "layer_norm": "",  # another kernel that is missing is not explained away
    }


def test_a_scan_alone_is_not_that_question(tmp_path: Path) -> None:
    assert reasons(matched([("gemm", 1), (SCAN, 1)], [("gemm", 1)], tmp_path)) == {SCAN: ""}


def test_a_mask_and_what_attention_makes_of_it(tmp_path: Path) -> None:
    table = matched(
        [("gemm", 1), ("flash_fwd_kernel", 1), ("tail", 1)],
        [
            (ARANGE, 1),
            (BOTH, 1),
            ("gemm", 1),
            ("elementwise<where_kernel_impl>", 1),
            ("fmha_cutlassF", 1),
            ("tail", 1),
        ],
        tmp_path,
    )
    assert reasons(table) == {
        ARANGE: MASK,
        BOTH: MASK,
        "elementwise<where_kernel_impl>": MASKED_ATTENTION,
        "fmha_cutlassF": MASKED_ATTENTION,
        "flash_fwd_kernel": MASKED_ATTENTION,
    }


def test_positions_alone_are_no_mask(tmp_path: Path) -> None:
    assert reasons(matched([("gemm", 1)], [("gemm", 1), (ARANGE, 1)], tmp_path)) == {ARANGE: ""}


def test_another_matrix_kernel_at_the_same_place(tmp_path: Path) -> None:
    table = matched(
        [("a", 1), ("sgemm_64x64", 1), ("b", 1), ("old", 1)],
        [("a", 1), ("nvjet_tst_64x8", 1), ("b", 1), ("new", 1)],
        tmp_path,
    )
    assert reasons(table) == {"sgemm_64x64": MATRIX, "nvjet_tst_64x8": MATRIX, "old": "", "new": ""}


def test_a_copy_that_the_graph_makes_by_a_kernel(tmp_path: Path) -> None:
    # Copies come first in a request of `request_of`.
    eager = request_of(tmp_path, "eager", [[("a", 1)]], copies=(8,))
    graph = request_of(tmp_path, "graph", [[("memcpy32_post", 1), ("a", 1)]], graph=True)
    table = match_kernels(eager, graph)
    assert reasons(table) == {"copy device to device": COPIED, "memcpy32_post": COPIED}
    # A copy with nothing of the kind at its place stays without a reason.
    other = request_of(tmp_path, "other", [[("a", 1)]], graph=True)
    assert reasons(match_kernels(eager, other)) == {"copy device to device": ""}


def test_a_compilers_kernels(tmp_path: Path) -> None:
    table = matched(
        [("sgemm", 1), ("gelu", 1), ("add", 1)], [("sgemm", 1), ("triton_poi_fused_add_gelu_0", 1)], tmp_path
    )
    assert reasons(table) == {"gelu": FUSED, "add": FUSED, "triton_poi_fused_add_gelu_0": FUSED}


def test_totals_by_kind_of_match_are_of_kernels(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1), ("gone", 1)]], copies=(1,))
    graph = request_of(tmp_path, "graph", [[("a", 1)]], graph=True)
    totals = match_totals(match_kernels(eager, graph)).set_index("match")
    assert totals["eager_calls_per_request"].to_dict() == {"same": 1, "changed": 0, "missing": 1, "extra": 0}
    assert totals["difference_us"].sum() == pytest.approx(-0.01)


def test_a_graph_as_baseline_is_refused(tmp_path: Path) -> None:
    graph = request_of(tmp_path, "graph", [[("a", 1)]], graph=True)
    with pytest.raises(LaunchgapError, match="baseline: it replays graphs"):
        match_kernels(graph, graph)


def test_a_trace_of_whole_replays_is_refused(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1)]])
    whole = attribute(read_trace(EXAMPLES["graph.graph"]), FORWARD)
    with pytest.raises(LaunchgapError, match="--cuda-graph-trace=node"):
        match_kernels(eager, whole)


def test_a_trace_without_requests_is_refused(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1)]])
    with pytest.raises(LaunchgapError, match="graph's trace: no requests"):
        match_kernels(eager, request_of(tmp_path, "none", []))


kernels = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(eager=kernels, graph=kernels)
def test_every_kernel_is_told_once(eager: list[Kernel], graph: list[Kernel]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = matched(eager, graph, Path(folder))
    assert table["eager_calls_per_request"].sum() == len(eager)
    assert table["graph_calls_per_request"].sum() == len(graph)
    same = table[table["match"] == Match.SAME]
    assert same["eager_calls_per_request"].sum() == (Counter(eager) & Counter(graph)).total()
    assert same["eager_calls_per_request"].tolist() == same["graph_calls_per_request"].tolist()
    by_name = Counter(name for name, _ in eager) & Counter(name for name, _ in graph)
    kept = table[table["match"].isin((Match.SAME, Match.CHANGED))]
    assert kept["eager_calls_per_request"].sum() == by_name.total()
    assert (table["difference_us"].sum() - 0.01 * (len(graph) - len(eager))) == pytest.approx(0)


@pytest.mark.parametrize("case", sorted(path.name for path in REFERENCE.iterdir() if path.is_dir()))
def test_captured_at_the_prompts_length_all_differences_are_known(case: str) -> None:
    eager, graph = (
        attribute(read_trace(REFERENCE / case / f"{name}.node.sqlite.gz"), RangeSelector())
        for name in ("eager", "graph")
    )
    table = match_kernels(eager, graph)
    counts = match_totals(table).set_index("match")
    for side, found in (("eager", eager), ("graph", graph)):
        assert counts[f"{side}_calls_per_request"].sum() == len(found.kernels) / len(found.requests)
    assert counts.loc["same", "graph_calls_per_request"] == counts["graph_calls_per_request"].sum()
    differing = table[table["match"] != Match.SAME]
    assert set(differing["reason"]) <= {PACKED}
    if case.startswith("gpt2"):
        assert counts.loc["missing", "eager_calls_per_request"] == 8


@pytest.mark.parametrize("case", sorted(path.name for path in REFERENCE.iterdir() if path.is_dir()))
def test_padding_and_its_mask_explain_nearly_all_time(case: str) -> None:
    eager, graph = (
        attribute(read_trace(REFERENCE / case / f"{name}.node.sqlite.gz"), RangeSelector())
        for name in ("eager", "graph_padded")
    )
    table = match_kernels(eager, graph)
    assert {SIZES, MASK, MASKED_ATTENTION, MATRIX, BESIDE} <= set(table["reason"])
    kernels = table[(table["kind"] == "kernel") & (table["match"] != Match.SAME)]
    unknown = kernels[kernels["reason"] == ""]
    columns = ["eager_us_per_request", "graph_us_per_request"]
    assert unknown[columns].to_numpy().sum() < 0.05 * kernels[columns].to_numpy().sum()


def test_a_mask_under_capture_is_found_in_a_foreign_trace() -> None:
    eager, graph = (attribute(read_trace(EXAMPLES[name]), FORWARD) for name in ("eager.node", "graph.node"))
    table = match_kernels(eager, graph)
    differing = table[table["match"] != Match.SAME]
    in_graph = differing.groupby("reason")["graph_calls_per_request"].sum().to_dict()
    assert set(in_graph) == {PACKED, MASK, MASKED_ATTENTION}
    assert in_graph[MASKED_ATTENTION] % 12 == 0  # once for each layer
    assert in_graph[PACKED] == 0
