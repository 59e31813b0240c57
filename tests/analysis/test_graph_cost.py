"""What a graph costs, from traces and records with known answers."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.graph_cost import COST_COLUMNS, RECORD_COLUMNS, Step, graph_cost, node_counts, record_cost
from analysis.trace import read_trace
from tests.analysis.report_samples import latency_record
from tests.analysis.trace_file import PROCESS, THREAD, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"


def cost_of(file: TraceFile) -> pd.DataFrame:
    table = graph_cost(read_trace(file.save()))
    assert list(table.columns) == list(COST_COLUMNS)
    assert table["step"].tolist() == list(Step)
    return table.set_index("step")


def test_every_step_of_a_graphs_life(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.domain("launchgap", 1)
    file.range("capture", 0, 9_000)
    file.call("cudaStreamBeginCapture_v10000", 1_000, 1_100)
    file.call("cudaLaunchKernel_v7000", 1_200, 1_300)
    file.call("cudaStreamEndCapture_v10000", 1_400, 2_000)
    file.call("cudaGraphInstantiateWithFlags_v11040", 2_000, 5_000)
    file.call("cuGraphInstantiateWithFlags", 2_100, 4_900)  # the runtime's call holds it
    file.call("cudaGraphUpload_v11010", 5_000, 5_500)
    for start, length in ((6_000, 700), (7_000, 100), (8_000, 300)):
        file.replay(start + 50, start + 900, file.call("cudaGraphLaunch_v10000", start, start + length))
    file.call("cudaGraphExecUpdate_v10020", 9_000, 9_050)
    file.call("cudaGraphExecDestroy_v10000", 9_100, 9_200)
    file.call("cudaGraphDestroy_v10000", 9_300, 9_400)
    table = cost_of(file)
    assert table["calls"].tolist() == [1, 1, 1, 1, 1, 1, 2, 2]
    assert table["total_us"].tolist() == pytest.approx([9, 1, 3, 0.05, 0.5, 0.7, 0.4, 0.2])
    assert table[["mean_us", "median_us", "max_us"]].to_numpy()[6].tolist() == pytest.approx([0.2, 0.2, 0.3])


def test_captures_of_two_threads_are_kept_apart(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    for thread, start in ((THREAD, 0), (THREAD + 1, 50)):
        file.call("cudaStreamBeginCapture_v10000", start, start + 10, thread=thread)
        file.call("cudaStreamEndCapture_v10000", start + 200, start + 300, thread=thread)
    file.call("cudaStreamBeginCapture_v10000", 900, 910)  # never ended
    file.call("cudaStreamEndCapture_v10000", -20, -10, thread=THREAD + 1)  # never begun
    table = cost_of(file)
    assert table["calls"].to_dict()["stream capture"] == 2
    assert table["total_us"].to_dict()["stream capture"] == pytest.approx(0.6)


def test_each_graph_has_a_first_launch(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    for place, graph in enumerate((1, 2, 1, 2, 2)):
        replay = file.call("cudaGraphLaunch_v10000", 100 * place, 100 * place + 10)
        for node in (0, 1):
            at = 100 * place + 20 * node
            file.kernel("k", at, at + 5, replay, graphNodeId=(graph << 32) + node)
    table = cost_of(file)
    assert (table["calls"].to_dict()["first launch"], table["calls"].to_dict()["replay launch"]) == (2, 3)


def test_graphs_of_two_processes_are_kept_apart(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    for process in (PROCESS, PROCESS + (1 << 24)):
        for start in (0, 100):
            replay = file.call("cudaGraphLaunch_v10000", start, start + 10, thread=process | 1)
            file.replay(start + 20, start + 90, replay, globalPid=process)
    calls = cost_of(file)["calls"].to_dict()
    assert (calls["first launch"], calls["replay launch"]) == (2, 2)


def test_graphs_that_cannot_be_told_apart_have_one_first_launch(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode=None)
    for start in (0, 100, 200):
        file.call("cudaGraphLaunch_v10000", start, start + 10)
    table = cost_of(file)
    assert (table["calls"].to_dict()["first launch"], table["calls"].to_dict()["replay launch"]) == (1, 2)


def test_graphs_made_before_the_recording_have_an_unknown_cost(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.replay(20, 90, file.call("cudaGraphLaunch_v10000", 11, 19))
    table = cost_of(file)
    unseen = {"stream capture", "instantiate", "upload"}
    assert set(table.index[table["calls"].isna()]) == unseen
    assert table["calls"].to_dict()["destroy"] == 0


def test_a_trace_without_graphs_has_none(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("k", (1, 2), (3, 4))
    table = cost_of(file)
    assert (table["calls"] == 0).all()
    assert table[list(COST_COLUMNS[2:])].isna().all().all()


def test_nodes_and_their_clones(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.execute(
        "CREATE TABLE CUDA_GRAPH_NODE_EVENTS "
        "(start INT, end INT, globalTid INT, graphNodeId INT, originalGraphNodeId INT)"
    )
    for node in range(3):
        made, cloned = (1 << 32) + node, (2 << 32) + node
        for at, rest in ((1_000 * node, f"{made}, NULL"), (9_000 + 10 * node, f"{cloned}, {made}")):
            file.execute(f"INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES ({at}, {at}, {THREAD}, {rest})")
    table = node_counts(read_trace(file.save()))
    assert table.to_numpy().tolist() == [[1, 3, 0, 2.0], [2, 3, 3, 0.02]]


def test_no_nodes_where_none_were_recorded(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 10))
    table = node_counts(read_trace(file.save()))
    assert table.empty
    assert list(table.columns) == ["graph", "nodes", "clones", "span_us"]


@pytest.mark.parametrize(
    "path", sorted(REFERENCE.glob("*/graph*.node.sqlite.gz")), ids=lambda p: p.parent.name
)
def test_reference_traces(path: Path) -> None:
    trace = read_trace(path)
    table = graph_cost(trace).set_index("step")
    assert table["calls"].to_dict()[Step.FIRST_LAUNCH] == 1
    assert table["calls"].to_dict()[Step.REPLAY_LAUNCH] == 19
    assert table["total_us"].to_dict()["capture range"] > table["total_us"].to_dict()["first launch"]
    nodes = node_counts(trace)
    made, instantiated = nodes["nodes"].tolist()[0], nodes["clones"].tolist()[1]
    assert instantiated == made
    replayed = (trace.kernels["graph_node"] >= 0).sum() + (trace.memsets["graph_node"] >= 0).sum()
    assert made == replayed / 20


def test_costs_of_a_record() -> None:
    record = latency_record(medians_ms={"eager": 5.0, "graph": 2.0})
    record["strategies"]["eager"]["wall_ms"] = [5.0, 6.0, 7.0]
    record["strategies"]["graph"] |= {"wall_ms": [2.0] * 3, "capture_s": 1.0, "graph_pool_bytes": 77}
    table = record_cost(record)
    assert list(table.columns) == list(RECORD_COLUMNS)
    row = table[table["strategy"] == "graph"].to_dict("records")[0]
    assert (row["capture_s"], row["set_up_s"], row["graph_pool_bytes"]) == (1.0, 1.0, 77)
    assert (row["saved_ms_per_request"], row["pays_after_requests"]) == (4.0, 250)
    assert "eager" not in set(table["strategy"])


def test_a_simulation_saves_nothing() -> None:
    table = record_cost(latency_record(simulated=True))
    assert table["saved_ms_per_request"].isna().all()
    assert table["pays_after_requests"].isna().all()


def test_a_slower_graph_never_pays() -> None:
    record = json.loads((REFERENCE / "gpt2-float32-p50-m1024" / "latency.json").read_text())
    table = record_cost(record).set_index("strategy")
    assert table["saved_ms_per_request"].gt(0).to_dict() == {"graph": True, "graph_padded": False}
    pays = table["pays_after_requests"].to_dict()
    assert pays["graph_padded"] == "never"
    assert isinstance(pays["graph"], int)
