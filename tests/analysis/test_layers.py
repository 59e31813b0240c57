"""Which module a launch or a graph node belongs to, and that layers add up to the requests on any trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.layers import (
    OUTSIDE,
    ModuleWork,
    compare_layers,
    layer_of,
    layer_sums,
    layers_table,
    module_work,
)
from analysis.layers_nodes import captured_nodes
from analysis.trace import Trace, read_trace
from contract import MODULE_DOMAIN, ROOT_MODULE, LaunchgapError
from tests.analysis.layers_file import (
    COPY_NS,
    KERNEL_NS,
    LEAVES,
    OWN_NS,
    begin,
    eager_trace,
    graph_trace,
    modules_of_pass,
)
from tests.analysis.trace_file import EXAMPLES, THREAD, TraceFile

REFERENCE = Path(__file__).resolve().parents[2] / "profiles" / "reference"
ANNOTATED = Path(__file__).resolve().parents[1] / "data" / "layers"
NODE_TRACES = sorted(REFERENCE.glob("*/*.node.sqlite.gz"))


def work_of(path: Path) -> ModuleWork:
    trace = read_trace(path)
    return module_work(trace, attribute(trace, RangeSelector()))


def gpu_ns(work: ModuleWork, depth: int | None = None) -> dict[str, int]:
    table = layer_sums(work, depth)
    return {str(layer): int(ns) for layer, ns in zip(table["layer"], table["gpu_ns"], strict=True)}


def test_eager_work_belongs_to_the_innermost_module(tmp_path: Path) -> None:
    work = work_of(eager_trace(tmp_path / "t.sqlite"))
    assert work.requests == 2
    assert work.unseen == 0
    found = layer_sums(work, depth=9).set_index("layer")
    expected = {name: 2 * length for name, length in KERNEL_NS.items()} | {"net": 2 * OWN_NS}
    assert found["gpu_ns"].to_dict() == expected | {OUTSIDE: 2 * COPY_NS, "head": 2 * (KERNEL_NS["head"] + 2)}
    assert set(found["launches"].drop("head")) == {2}
    assert found.loc[["head", OUTSIDE], ["kernels", "operations", "launches"]].to_numpy().tolist() == [
        [2, 4, 4],
        [0, 2, 2],
    ]
    assert found.index.tolist() == ["net", *LEAVES, OUTSIDE]


@pytest.mark.parametrize("clones", [0, 1, 2, 5])
def test_a_node_belongs_to_the_module_open_when_its_first_original_was_made(
    clones: int, tmp_path: Path
) -> None:
    work = work_of(graph_trace(tmp_path / "t.sqlite", clones=clones))
    found = layer_sums(work, depth=9).set_index("layer")
    expected = {name: 2 * (length - 1) for name, length in KERNEL_NS.items()}
    assert found["gpu_ns"].to_dict() == expected | {OUTSIDE: 2 * COPY_NS}
    # One replay and one copy per request, of no module.
    assert found["launches"].to_dict() == dict.fromkeys(LEAVES, 0) | {OUTSIDE: 4}


def test_old_exports_keep_nodes_in_another_table(tmp_path: Path) -> None:
    assert work_of(graph_trace(tmp_path / "t.sqlite", schema="3.7.2")).unseen == 0


def test_nodes_made_before_the_recording_are_outside_and_counted(tmp_path: Path) -> None:
    work = work_of(graph_trace(tmp_path / "t.sqlite", seen=False))
    assert work.unseen == 2 * len(LEAVES)
    assert set(gpu_ns(work)) == {OUTSIDE}


def test_modules_of_other_threads_do_not_count(tmp_path: Path) -> None:
    file = begin(tmp_path / "t.sqlite")
    file.range("request", 0, 1_000)
    modules_of_pass(file, 100, thread=THREAD + 1)
    file.launch("k", (120, 130), (140, 150))
    assert gpu_ns(work_of(file.save())) == {OUTSIDE: 10}


def test_a_call_on_the_edge_and_ranges_that_begin_at_once(tmp_path: Path) -> None:
    file = begin(tmp_path / "t.sqlite")
    file.range("request", 0, 1_000)
    for path, end in ((ROOT_MODULE, 90), ("a.0", 90), ("a.0.b", 80)):
        file.range(path, 10, end, domain=2)
    file.launch("inner", (10, 80), (140, 141))
    file.launch("outer", (80, 90), (150, 152))
    file.launch("late", (91, 92), (160, 164))
    assert gpu_ns(work_of(file.save()), depth=5) == {"a.0.b": 1, "a.0": 2, OUTSIDE: 4}


@pytest.mark.parametrize(
    ("module", "depth", "merge", "layer"),
    [
        ("transformer.h.3.attn.c_attn", None, False, "transformer.h.3"),
        ("transformer.h.3.attn.c_attn", None, True, "transformer.h.*"),
        ("transformer.h.3.attn.c_attn", 4, True, "transformer.h.*.attn"),
        ("transformer.h.3.attn.c_attn", 4, False, "transformer.h.3.attn"),
        ("transformer.h.3.attn.c_attn", 2, False, "transformer.h"),
        ("model.layers.1.mlp.experts.5", None, True, "model.layers.*"),
        ("model.layers.1.mlp.experts.5", 9, True, "model.layers.*.mlp.experts.*"),
        ("transformer.wte", None, False, "transformer.wte"),
        ("transformer.conv2.1", None, True, "transformer.conv2.*"),
        ("lm_head", 3, False, "lm_head"),
        (ROOT_MODULE, 1, True, ROOT_MODULE),
        (OUTSIDE, 1, True, OUTSIDE),
    ],
)
def test_layers_of_modules(module: str, depth: int | None, merge: bool, layer: str) -> None:
    assert layer_of(module, depth, merge) == layer


def test_the_table_of_both_sides(tmp_path: Path) -> None:
    eager, graph = work_of(eager_trace(tmp_path / "e.sqlite")), work_of(graph_trace(tmp_path / "g.sqlite"))
    table = compare_layers(eager, graph)
    assert table["layer"].tolist() == ["net", "net.embed", "net.h.0", "net.h.1", "head", OUTSIDE]
    row = table.set_index("layer").loc["net.h.1"]
    assert (row["eager_kernels"], row["graph_kernels"], row["eager_launches"], row["graph_launches"]) == (
        2,
        2,
        2,
        0,
    )
    assert row["gpu_us_difference"] == pytest.approx(-0.002)
    assert table.set_index("layer").loc["net", "graph_gpu_us"] == 0
    for side, work in (("eager", eager), ("graph", graph)):
        means = layers_table(work).set_index("layer")
        for name in means:
            assert table.set_index("layer")[f"{side}_{name}"].sum() == pytest.approx(means[name].sum())
    backwards = compare_layers(graph, eager)
    assert backwards["layer"].tolist() == ["net.embed", "net.h.0", "net.h.1", "head", "net", OUTSIDE]


def test_a_trace_without_modules_names_the_option() -> None:
    with pytest.raises(LaunchgapError, match=r"has no ranges of modules, .*; capture it with --annot"):
        work_of(NODE_TRACES[0])


def test_a_graph_whose_making_was_not_recorded_names_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"no CUDA_GRAPH_NODE_EVENTS.*; .*--cuda-graph-trace=node"):
        work_of(graph_trace(tmp_path / "t.sqlite", node_events=False))


def test_replays_shown_whole_are_refused(tmp_path: Path) -> None:
    file = begin(tmp_path / "t.sqlite")
    file.range("request", 0, 1_000)
    modules_of_pass(file, 1_100)
    file.replay(30, 60, file.call("cudaGraphLaunch_v10000", 10, 20))
    with pytest.raises(LaunchgapError, match=r"shows replays whole, .*; capture it with --cuda-graph-trace"):
        work_of(file.save())


def test_chains_of_nodes() -> None:
    rows = [
        (THREAD, 10, 1, -1),
        (THREAD, 20, 2, -1),  # made, and a copy of 1
        (THREAD, 20, 2, 1),
        (THREAD, 30, 3, 2),
        (THREAD, 40, 4, 99),  # of one that is not there
        (THREAD, 50, 5, 6),  # in a circle
        (THREAD, 60, 6, 5),
        (THREAD, 70, 7, 7),
        (THREAD + (1 << 24), 80, 1, -1),  # another process
        (THREAD, 90, 1, -1),  # told again
    ]
    nodes = pd.DataFrame(rows, columns=["thread", "start_ns", "graph_node", "original"])
    found = captured_nodes(nodes.sample(frac=1, random_state=0))
    ours = found[found["process"] == THREAD & ~0xFFFFFF].set_index("graph_node").sort_index()
    assert ours["seen"].to_dict() == {1: True, 2: True, 3: True, 4: False, 5: False, 6: False, 7: True}
    assert ours["captured_ns"].to_dict() == {1: 10, 2: 10, 3: 10, 4: 40, 5: 50, 6: 60, 7: 70}
    assert found[found["process"] != THREAD & ~0xFFFFFF]["captured_ns"].tolist() == [80]


def with_modules(trace: Trace, spans: list[tuple[float, float, str]]) -> Trace:
    """The trace with made-up ranges of modules, given in parts of the time that it recorded."""
    rows = pd.concat([trace.ranges[["start_ns", "end_ns"]], trace.graph_nodes[["start_ns", "end_ns"]]])
    first, last = int(rows["start_ns"].min()), int(rows["end_ns"].max())
    edges = [[first + int((last - first) * part) for part in span[:2]] for span in spans]
    made = pd.DataFrame(
        {
            "start_ns": [low for low, _ in edges],
            "end_ns": pd.array([high for _, high in edges], dtype="Int64"),
            "thread": trace.api_calls["thread"].iloc[0],
            "process": trace.api_calls["process"].iloc[0],
            "same_thread": True,
            "domain": MODULE_DOMAIN,
            "name": [name for *_, name in spans],
        }
    )
    return replace(trace, ranges=pd.concat([trace.ranges, made], ignore_index=True))


def assert_adds_up(work: ModuleWork, found: Attributed) -> None:
    tables = (found.kernels, found.memcpys, found.memsets)
    expected = {
        "kernels": len(found.kernels),
        "operations": sum(map(len, tables)),
        "launches": len(found.launches),
        "gpu_ns": sum(int((table["end_ns"] - table["start_ns"]).sum()) for table in tables),
    }
    for depth, merge in ((None, False), (None, True), (1, False), (2, True), (9, False)):
        sums = layer_sums(work, depth, merge)
        assert {name: int(sums[name].sum()) for name in expected} == expected
        assert sums["layer"].is_unique


@pytest.fixture(scope="module")
def real() -> list[tuple[Trace, Attributed]]:
    found = []
    for path in (*NODE_TRACES, EXAMPLES["eager.node"], EXAMPLES["graph.node"]):
        trace = read_trace(path)
        own = RangeSelector() if path in NODE_TRACES else RangeSelector("forward", "")
        found.append((trace, attribute(trace, own)))
    assert all(len(attributed.requests) for _, attributed in found)
    return found


PARTS = st.floats(0, 1)
NAMES = st.sampled_from([ROOT_MODULE, "net", "net.h.0", "net.h.1", "net.h.1.mlp", "head"])


@settings(max_examples=6, deadline=None)
@given(spans=st.lists(st.tuples(PARTS, PARTS, NAMES).filter(lambda one: one[0] < one[1]), min_size=1))
def test_layers_of_any_ranges_add_up_on_all_traces(
    real: list[tuple[Trace, Attributed]], spans: list[tuple[float, float, str]]
) -> None:
    for trace, found in real:
        assert_adds_up(module_work(with_modules(trace, spans), found), found)


def test_real_nodes_find_the_module_of_their_capture(real: list[tuple[Trace, Attributed]]) -> None:
    """Three modules that share out the moments at which the captured nodes were made."""
    graphs = [(trace, found) for trace, found in real if not trace.graph_nodes.empty]
    assert len(graphs) >= 5
    for trace, found in graphs:
        captured = captured_nodes(trace.graph_nodes)
        replayed = found.kernels["graph_node"].drop_duplicates()
        captured = captured[captured["graph_node"].isin(replayed)]
        assert captured["seen"].all()
        times = np.sort(captured["captured_ns"].to_numpy())
        edges = times[[0, len(times) // 3, 2 * len(times) // 3, -1]] + [0, 0, 0, 1]
        parts = [
            {"start_ns": low, "end_ns": high, "thread": captured["thread"].iloc[0], "name": f"h.{number}"}
            for number, (low, high) in enumerate(zip(edges[:-1], edges[1:] - 1, strict=True))
        ]
        more = pd.DataFrame(parts).assign(domain=MODULE_DOMAIN, same_thread=True)
        more["end_ns"] = more["end_ns"].astype("Int64")
        work = module_work(replace(trace, ranges=pd.concat([trace.ranges, more])), found)
        assert work.unseen == 0
        assert_adds_up(work, found)
        kernels = work.operations[
            (work.operations["kind"] == "kernel") & (work.operations["graph_node"] >= 0)
        ]
        share = kernels["module"].value_counts(normalize=True)
        assert set(share.index) == {"h.0", "h.1", "h.2"}
        assert share.between(0.25, 0.42).all()


def test_gpt2_on_an_h200_layer_by_layer() -> None:
    """Annotated runs of gpt2: twelve blocks of the same kernels, in the graph as in eager."""
    tables = {}
    for side in ("eager", "graph"):
        trace = read_trace(ANNOTATED / f"h200-gpt2-fp32-{side}.node.sqlite.gz")
        found = attribute(trace, RangeSelector())
        work = module_work(trace, found)
        assert_adds_up(work, found)
        assert work.unseen == 0
        tables[side] = layers_table(work).set_index("layer")
    for table in tables.values():
        blocks = table[table.index.str.fullmatch(r"transformer\.h\.\d+")]
        assert len(blocks) == 12
        assert blocks["kernels"].tolist() == [18.0] * 12
        assert table.loc["lm_head", "kernels"] == 1
        assert table.loc[OUTSIDE, "kernels"] == 0
    assert (tables["eager"]["launches"].sum(), tables["graph"]["launches"].sum()) == (270, 2)
    assert (tables["eager"]["kernels"].sum(), tables["graph"]["kernels"].sum()) == (231, 223)


def test_no_requests_no_rows(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.domain(MODULE_DOMAIN, 2)
    file.range("net", 0, 10, domain=2)
    file.launch("k", (1, 2), (3, 4))
    work = work_of(file.save())
    assert (work.requests, len(layers_table(work))) == (0, 0)
