"""Work beside the replay, and what is said of a graph that does less than eager."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.equivalence import match_kernels
from analysis.equivalence_reasons import PACKED
from analysis.escaped import ESCAPED_COLUMNS, equivalence_findings, escaped_work
from analysis.finding import Finding
from analysis.trace import read_trace
from tests.analysis.test_equivalence import REFERENCE, Kernel, request_of
from tests.analysis.trace_file import EXAMPLES, TraceFile

FORWARD = RangeSelector("forward", "")


def judged(eager: Attributed, graph: Attributed) -> tuple[Finding, ...]:
    return equivalence_findings(match_kernels(eager, graph), escaped_work(graph))


def sentences(
    eager: list[Kernel], graph: list[Kernel], folder: Path, *, beside: tuple[Kernel, ...] = ()
) -> list[str]:
    sides = (
        request_of(folder, "eager", [eager]),
        request_of(folder, "graph", [graph], graph=True, beside=beside),
    )
    return [f"{finding.severity}: {finding.sentence}" for finding in judged(*sides)]


def work_of(file: TraceFile) -> pd.DataFrame:
    table = escaped_work(attribute(read_trace(file.save()), RangeSelector()))
    assert list(table.columns) == list(ESCAPED_COLUMNS)
    return table.set_index("full_name")


def test_place_of_work_beside_the_replays(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    file.launch("early", (1, 2), (3, 7))
    for start in (10, 30):
        file.kernel(
            "node", start + 5, start + 6, file.call("cudaGraphLaunch_v10000", start, start + 4), graphNodeId=1
        )
    file.launch("amid", (20, 21), (25, 26))
    file.launch("late", (50, 51), (55, 56), streamId=9)
    file.launch("alone", (210, 211), (220, 222))
    table = work_of(file)
    assert table["when"].to_dict() == {
        "early": "before",
        "amid": "between",
        "late": "after",
        "alone": "no replay",
    }
    assert table["other_stream"].to_dict() == {"early": False, "amid": False, "late": True, "alone": False}
    assert table["calls_per_request"].to_dict() == dict.fromkeys(table.index, 0.5)
    assert table["us_per_request"].to_dict() == pytest.approx(
        {"early": 0.002, "alone": 0.001, "amid": 0.0005, "late": 0.0005}
    )
    assert (table["expected"] == "").all()
    assert (table["api"] == "cudaLaunchKernel").all()


def test_input_output_and_fills_are_expected(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.memcpy(2, 3, file.call("cudaMemcpyAsync_v3020", 1, 2), copyKind=1)
    file.memset(4, 5, file.call("cudaMemsetAsync_v3020", 3, 4))
    file.launch("vectorized_elementwise_kernel<FillFunctor<long>>", (5, 6), (7, 8))
    file.replay(20, 60, file.call("cudaGraphLaunch_v10000", 10, 14))
    file.memcpy(62, 63, file.call("cudaMemcpyAsync_v3020", 15, 16), copyKind=2)
    file.launch("vectorized_elementwise_kernel<FillFunctor<float>>", (17, 18), (70, 80))
    expected = work_of(file)["expected"].to_dict()
    assert expected == {
        "copy host to device": "input",
        "fill": "padding or random seed",
        "vectorized_elementwise_kernel<FillFunctor<long>>": "padding or random seed",
        "copy device to host": "output",
        "vectorized_elementwise_kernel<FillFunctor<float>>": "",
    }


def test_a_read_back_before_the_replay_is_not_expected(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.memcpy(2, 3, file.call("cudaMemcpyAsync_v3020", 1, 2), copyKind=2)
    file.replay(20, 60, file.call("cudaGraphLaunch_v10000", 10, 14))
    assert work_of(file)["expected"].tolist() == [""]


def test_a_replay_alone_lets_nothing_escape(tmp_path: Path) -> None:
    graph = request_of(tmp_path, "graph", [[("a", 1)]], graph=True)
    table = escaped_work(graph)
    assert table.empty
    assert list(table.columns) == list(ESCAPED_COLUMNS)
    assert judged(request_of(tmp_path, "eager", [[("a", 1)]]), graph) == ()


def test_work_that_no_part_of_the_graphs_request_does_is_fatal(tmp_path: Path) -> None:
    first, *others = sentences([("a", 1), ("b", 1), ("half", 4)], [("a", 1), ("b", 1)], tmp_path)
    assert first.startswith(
        "fatal: 1 kernel of each eager request (0.0 us: half): missing in the graph's request"
    )
    assert not others


def test_other_work_at_its_place_is_a_warning(tmp_path: Path) -> None:
    found = sentences([("a", 1), ("old", 1), ("b", 1)], [("a", 1), ("new", 1), ("b", 1)], tmp_path)
    assert [sentence.split(":")[0] for sentence in found] == ["warning"]
    assert "(0.0 us: old): not in the graph's, which runs others at their place" in found[0]


def test_work_launched_beside_the_replay_is_a_warning(tmp_path: Path) -> None:
    found = sentences([("a", 1), ("b", 1)], [("a", 1)], tmp_path, beside=(("b", 1),))
    assert [sentence.split(":")[0] for sentence in found] == ["warning"]
    assert "1 operation per request (0.0 us: b) launched beside the replay" in found[0]


def test_requests_that_fell_back_to_eager_are_named(tmp_path: Path) -> None:
    eager = request_of(tmp_path, "eager", [[("a", 1)]])
    (finding,) = judged(eager, request_of(tmp_path, "fallback", [[("a", 1)]]))
    assert finding.severity == "warning"
    assert "launched in requests that replay no graph" in finding.what


def test_traces_of_different_models_are_named(tmp_path: Path) -> None:
    eager = [(f"kernel{number}", 1) for number in range(20)]
    found = sentences(eager, [("other", 1), *eager[:1]], tmp_path)
    assert any(
        "only 1 of 20 eager kernels run in the graph: the two may be of different models" in s for s in found
    )


def test_known_reasons_are_notes_with_their_cost() -> None:
    case = REFERENCE / "gpt2-float32-p50-m1024"
    eager, graph = (
        attribute(read_trace(case / f"{name}.node.sqlite.gz"), RangeSelector()) for name in ("eager", "graph")
    )
    (finding,) = judged(eager, graph)
    assert (finding.severity, finding.count) == ("note", 10)  # eight kernels and two copies
    assert PACKED in finding.remedy


@pytest.mark.parametrize("mode", ["node", "graph"])
def test_reference_traces_let_only_expected_work_escape(mode: str) -> None:
    for path in sorted(REFERENCE.glob(f"*/graph*.{mode}.sqlite.gz")):
        table = escaped_work(attribute(read_trace(path), RangeSelector()))
        assert set(table["expected"]) <= {"input", "padding or random seed"}, path
        assert table["calls_per_request"].sum() == (4 if "padded" in path.name else 1)


def test_random_tokens_beside_a_foreign_graph_are_called_out() -> None:
    table = escaped_work(attribute(read_trace(EXAMPLES["graph.node"]), FORWARD))
    unexpected = table[table["expected"] == ""]
    assert unexpected["calls_per_request"].tolist() == [1]
    assert "distribution" in unexpected["full_name"].iloc[0]
