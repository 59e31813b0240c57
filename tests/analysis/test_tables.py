import io
from pathlib import Path

import pandas as pd
import pytest

from analysis.attribute import RangeSelector, attribute
from analysis.tables import (
    COMPARISON_COLUMNS,
    KERNEL_COLUMNS,
    LAUNCH_COLUMNS,
    REQUEST_COLUMNS,
    CountedTrace,
    TraceLabel,
    comparison_table,
    csv_text,
    kernels_table,
    launches_table,
    requests_table,
)
from analysis.trace import read_trace
from contract import TraceMode
from tests.analysis.trace_file import EXAMPLES, TraceFile


def counted(path: Path, label: str, selector: RangeSelector | None = None) -> CountedTrace:
    strategy, mode = label.split(".")
    trace = read_trace(path)
    found = attribute(trace, selector or RangeSelector())
    return CountedTrace(TraceLabel(strategy, TraceMode(mode)), found, trace.has_gpu_work)


def examples() -> list[CountedTrace]:
    return [counted(path, label, RangeSelector("forward", "")) for label, path in EXAMPLES.items()]


def eager(folder: Path) -> CountedTrace:
    """Two requests; times in nanoseconds are chosen so that every number can be reckoned by hand."""
    file = TraceFile(folder / "eager.sqlite")
    file.requests((0, 10_000), (20_000, 32_000))
    file.memcpy(2_500, 3_000, file.call("cudaMemcpyAsync_v3020", 1_000, 2_000))
    file.launch("void a<int>()", (2_000, 2_400), (3_000, 4_000))
    file.launch("void a<int>()", (2_500, 3_100), (3_500, 5_000))
    file.kernel("b", 6_000, 6_500, file.call("cuLaunchKernel", 3_200, 3_300))
    file.memset(6_500, 6_600, file.call("cudaMemsetAsync_v3020", 3_400, 3_500))
    file.launch("void a<int>()", (21_000, 21_200), (22_000, 24_000))
    return counted(file.save(), "eager.node")


def graph(folder: Path) -> CountedTrace:
    file = TraceFile(folder / "graph.sqlite")
    file.requests((0, 8_000))
    replay = file.call("cudaGraphLaunch_v10000", 1_000, 3_000)
    file.kernel("void a<int>()", 2_000, 3_000, replay, graphNodeId=1)
    file.kernel("c", 3_000, 3_250, replay, graphNodeId=2)
    file.memset(3_250, 3_300, replay, graphNodeId=3)
    return counted(file.save(), "graph.node")


def graph_mode(folder: Path) -> CountedTrace:
    file = TraceFile(folder / "graph_mode.sqlite", mode="graph")
    file.requests((0, 5_000), (6_000, 9_000))
    file.launch("fill", (500, 600), (700, 900))
    file.replay(2_000, 4_000, file.call("cudaGraphLaunch_v10000", 1_000, 1_500))
    file.launch("fill", (6_500, 6_600), (6_700, 6_900))
    return counted(file.save(), "graph.graph")


def test_requests_by_hand(tmp_path: Path) -> None:
    table = requests_table([eager(tmp_path)])
    assert tuple(table.columns) == REQUEST_COLUMNS
    first, second = table.to_dict("records")
    assert first == {
        **{"strategy": "eager", "trace_mode": "node", "request": 0},
        **{"kernels": 3, "memcpys": 1, "memsets": 1, "graph_launches": 0, "launches": 5},
        "launch_api_us": pytest.approx(1.0 + 0.4 + 0.6 + 0.1 + 0.1),
        "gpu_busy_us": pytest.approx(0.5 + 2.0 + 0.6),
        "gpu_span_us": pytest.approx(4.1),
        "range_us": 10.0,
    }
    assert (second["kernels"], second["launches"]) == (1, 1)
    assert (second["gpu_busy_us"], second["gpu_span_us"], second["range_us"]) == (2.0, 2.0, 12.0)


def test_graph_launch_is_charged_once(tmp_path: Path) -> None:
    table = requests_table([graph(tmp_path)])
    (row,) = table.to_dict("records")
    assert (row["kernels"], row["memcpys"], row["memsets"]) == (2, 0, 1)
    assert (row["graph_launches"], row["launches"]) == (1, 1)
    assert row["launch_api_us"] == 2.0
    assert row["gpu_busy_us"] == pytest.approx(1.3)


def test_graph_mode_never_shows_the_nodes_as_zero(tmp_path: Path) -> None:
    table = requests_table([graph_mode(tmp_path)])
    for column in ("kernels", "memcpys", "memsets"):
        assert pd.isna(table[column][0])
    assert table["kernels"][1] == 1
    assert table["graph_launches"].tolist() == [1, 0]
    assert table["launches"].tolist() == [2, 1]
    assert table["gpu_busy_us"].tolist() == [pytest.approx(2.2), pytest.approx(0.2)]
    lines = csv_text(table).splitlines()
    assert lines[1].startswith("graph,graph,0,,,,1,2,")


def test_times_of_a_replay_that_is_not_shown_stay_empty(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 100), (200, 300))
    file.launch("fill", (5, 6), (7, 9))
    file.call("cudaGraphLaunch", 10, 20)
    file.replay(0, 0, file.call("cudaGraphLaunch", 210, 220))
    table = requests_table([counted(file.save(), "graph.graph")])
    assert table[["gpu_busy_us", "gpu_span_us"]].isna().all(axis=None)
    assert table["launch_api_us"].tolist() == [0.011, 0.01]


def test_trace_without_gpu_has_only_range_times(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode=None)
    file.requests((0, 1_500), (2_000, 4_000))
    one = counted(file.save(), "eager.node")
    table = requests_table([one])
    assert table["range_us"].tolist() == [1.5, 2.0]
    assert table.drop(columns=["strategy", "trace_mode", "request", "range_us"]).isna().all(axis=None)
    assert launches_table([one]).empty
    assert kernels_table([one]).empty


def test_request_without_work_on_a_gpu_trace(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    file.launch("k", (10, 20), (30, 40))
    table = requests_table([counted(file.save(), "eager.node")])
    assert table["kernels"].tolist() == [1, 0]
    assert table["gpu_busy_us"].tolist() == [0.01, 0.0]
    assert pd.isna(table["gpu_span_us"][1])


def test_busy_time_of_two_devices_is_the_sum(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 1_000))
    file.launch("k", (10, 20), (100, 600))
    file.launch("k", (30, 40), (100, 700), deviceId=1)
    table = requests_table([counted(file.save(), "eager.node")])
    assert table["gpu_busy_us"].tolist() == [1.1]
    assert table["gpu_span_us"].tolist() == [0.6]


def test_negative_times(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((-10_000, -2_000))
    file.launch("k", (-9_000, -8_000), (-7_000, -6_500))
    (row,) = requests_table([counted(file.save(), "eager.node")]).to_dict("records")
    assert (row["range_us"], row["launch_api_us"], row["gpu_busy_us"], row["gpu_span_us"]) == (
        8.0,
        1.0,
        0.5,
        0.5,
    )


def test_launches_by_hand(tmp_path: Path) -> None:
    table = launches_table([eager(tmp_path), graph(tmp_path)])
    assert tuple(table.columns) == LAUNCH_COLUMNS
    assert table["api"].tolist() == [
        *("cudaLaunchKernel", "cudaMemcpyAsync", "cuLaunchKernel", "cudaMemsetAsync"),
        "cudaGraphLaunch",
    ]
    kernel = table.iloc[0].to_dict()
    assert kernel == {
        **{"strategy": "eager", "trace_mode": "node", "api": "cudaLaunchKernel", "kind": "kernel"},
        "calls_per_request": 1.5,
        "launch_api_us_per_request": pytest.approx(0.6),
        "mean_us": pytest.approx(0.4),
        "p50_us": pytest.approx(0.4),
        "max_us": pytest.approx(0.6),
    }
    assert table["kind"].tolist() == ["kernel", "memcpy", "kernel", "memset", "graph"]


def test_kernels_by_hand(tmp_path: Path) -> None:
    table = kernels_table([eager(tmp_path), graph(tmp_path), graph_mode(tmp_path)])
    assert tuple(table.columns) == KERNEL_COLUMNS
    assert table[["strategy", "kernel", "full_name"]].to_numpy().tolist() == [
        ["eager", "a<int>", "void a<int>()"],
        ["eager", "b", "b"],
        ["graph", "a<int>", "void a<int>()"],
        ["graph", "c", "c"],
    ]
    assert table.iloc[0].drop(["strategy", "kernel", "full_name"]).to_dict() == {
        "calls_per_request": 1.5,
        "total_us_per_request": 2.25,
        "mean_us": 1.5,
        "min_us": 1.0,
        "max_us": 2.0,
        "share_percent": pytest.approx(90.0),
    }
    assert table.groupby("strategy")["share_percent"].sum().tolist() == [
        pytest.approx(100),
        pytest.approx(100),
    ]


def test_short_names_of_a_case_do_not_clash(tmp_path: Path) -> None:
    traces = []
    for strategy, name in (("eager", "x::f<true>()"), ("graph", "y::f<false>()")):
        file = TraceFile(tmp_path / f"{strategy}.sqlite")
        file.requests((0, 100))
        file.launch(name, (10, 20), (30, 40))
        traces.append(counted(file.save(), f"{strategy}.node"))
    assert kernels_table(traces)["kernel"].tolist() == ["f", "f #2"]


def test_kernels_beside_a_hidden_graph_are_not_passed_off_as_all(tmp_path: Path) -> None:
    hidden = graph_mode(tmp_path)
    filed_as_node = CountedTrace(TraceLabel("graph", TraceMode.NODE), hidden.attributed, has_gpu=True)
    assert kernels_table([filed_as_node]).empty


def test_comparison_by_hand(tmp_path: Path) -> None:
    table = comparison_table(kernels_table([eager(tmp_path), graph(tmp_path)]))
    assert tuple(table.columns) == COMPARISON_COLUMNS
    assert table.drop(columns=["strategy", "full_name"]).to_numpy().tolist() == [
        ["a<int>", 1.5, 1.0, 2.25, 1.0, pytest.approx(-1.25)],
        ["b", 0.5, 0.0, 0.25, 0.0, pytest.approx(-0.25)],
        ["c", 0.0, 1.0, 0.0, 0.25, pytest.approx(0.25)],
    ]
    assert set(table["strategy"]) == {"graph"}


def test_comparison_needs_both_sides(tmp_path: Path) -> None:
    assert comparison_table(kernels_table([graph(tmp_path)])).empty
    assert comparison_table(kernels_table([eager(tmp_path)])).empty


def test_tables_without_rows_keep_their_headers() -> None:
    kernels = kernels_table([])
    for table, columns in (
        (requests_table([]), REQUEST_COLUMNS),
        (launches_table([]), LAUNCH_COLUMNS),
        (kernels, KERNEL_COLUMNS),
        (comparison_table(kernels), COMPARISON_COLUMNS),
    ):
        assert csv_text(table) == ",".join(columns) + "\n"


def test_csv_holds_any_name(tmp_path: Path) -> None:
    name = 'f<"a", b>|\n<script>'
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch(name, (10, 20), (30, 40))
    text = csv_text(kernels_table([counted(file.save(), "eager.node")]))
    assert pd.read_csv(io.StringIO(text))["full_name"].tolist() == [name]


def test_example_traces_show_what_a_graph_changes() -> None:
    traces = examples()
    requests = requests_table(traces)
    label = requests["strategy"] + "." + requests["trace_mode"]
    assert len(requests) == 60
    assert set(requests["kernels"][label == "eager.node"]) == {232}
    assert set(requests["launches"][label == "eager.node"]) == {271}
    assert set(requests["kernels"][label == "graph.node"]) == {306}
    assert set(requests["launches"][label == "graph.node"]) == {3}
    assert requests["kernels"][label == "graph.graph"].isna().all()
    launches = launches_table(traces)
    keys = launches["strategy"] + "." + launches["trace_mode"] + "." + launches["api"]
    calls = dict(zip(keys, launches["calls_per_request"], strict=True))
    assert calls["eager.node.cudaLaunchKernel"] == 171
    assert calls["eager.node.cudaLaunchKernelExC"] == 25
    assert calls["graph.graph.cudaGraphLaunch"] == 1
    kernels = kernels_table(traces)
    assert kernels.groupby("strategy")["calls_per_request"].sum().to_dict() == {"eager": 232, "graph": 306}
    comparison = comparison_table(kernels)
    assert comparison["eager_calls_per_request"].sum() == 232
    assert comparison["graph_calls_per_request"].sum() == 306
    assert comparison["difference_us"].sum() == pytest.approx(
        comparison["graph_us_per_request"].sum() - comparison["eager_us_per_request"].sum()
    )


def test_busy_time_lies_between_kernel_time_and_span() -> None:
    traces = examples()
    requests, kernels = requests_table(traces), kernels_table(traces)
    assert (requests["gpu_busy_us"] <= requests["gpu_span_us"]).all()
    assert (requests["gpu_span_us"] <= requests["range_us"]).all()
    busy_us = requests[requests["trace_mode"] == "node"].groupby("strategy")["gpu_busy_us"].mean()
    assert (busy_us >= kernels.groupby("strategy")["total_us_per_request"].sum()).all()
