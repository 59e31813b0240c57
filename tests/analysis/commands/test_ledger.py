"""`python -m analysis ledger`: sums, formats, the figure, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from analysis.host_ledger import HOST_PARTS
from analysis.ledger import GPU_PARTS
from tests.analysis.commands.run_command import ROOT, Ran, analysis, analysis_process, busy_trace
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = ROOT / "profiles" / "reference"
GPT2 = REFERENCE / "gpt2-float32-p50-m1024"
CASE = REFERENCE / "bert-tiny-float32-p50-m512"
EAGER, GRAPH = CASE / "eager.node.sqlite.gz", CASE / "graph.graph.sqlite.gz"
TORCH = ROOT / "tests/data/chrome/h200-gpt2-fp32-eager.torch.json.gz"
ESCAPE = "\x1b[31m\x1b]0;title\x07"


def ledger(*words: str | Path) -> Ran:
    return analysis("ledger", *words)


def told(*words: str | Path) -> dict[str, Any]:
    ran = ledger(*words, "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    content = json.loads(ran.out)
    assert isinstance(content, dict)
    return content


def with_floor(folder: Path, floor_ms: float | None) -> Path:
    record = json.loads((CASE / "latency.json").read_text())
    record["floor"] = {"bandwidth_bytes_per_s": 4e12, "weight_bytes_read": 1, "floor_ms": floor_ms}
    path = folder / "latency.json"
    path.write_text(json.dumps(record))
    return path


@pytest.mark.parametrize(
    "words",
    [
        (GPT2 / EAGER.name,),
        (GPT2 / GRAPH.name,),
        (EXAMPLES["eager.node"], "--range", "forward"),
        (EXAMPLES["graph.node"], "--range", "forward", "--domain", ""),
        (TORCH,),
    ],
    ids=["own eager", "own graph", "foreign eager", "foreign graph", "torch.profiler"],
)
def test_parts_add_up_in_every_row_and_in_the_pooled_tables(words: tuple[str | Path, ...]) -> None:
    content = told(*words)
    n = content["trace"]["requests"]
    assert content["trace"]["adds_up"] == f"{2 * n} of {2 * n} ledgers, to the nanosecond"
    for side, parts in (("gpu", GPU_PARTS), ("host", HOST_PARTS)):
        requests, pooled = content["tables"][f"{side}_requests"], content["tables"][side]
        assert len(requests) == n > 1
        assert all(sum(row[part] for part in parts) == row["range_ns"] > 0 for row in requests)
        *rows, whole = pooled
        assert [row["part"] + "_ns" for row in rows] == list(parts)
        assert whole["total_ns"] == sum(row["total_ns"] for row in rows)
        assert whole["total_ns"] == sum(row["range_ns"] for row in requests)
        for column in ("mean_us", "median_request_us", "share_percent"):
            assert whole[column] == pytest.approx(sum(row[column] for row in rows), abs=0.01)
        median = requests[content["trace"]["median_request"]]
        assert whole["median_request_us"] * 1000 == pytest.approx(median["range_ns"], abs=0.1)
        shorter = [row for row in requests if row["range_ns"] < median["range_ns"]]
        assert len(shorter) == (n - 1) // 2


def test_eager_beside_its_graph_and_the_floor(tmp_path: Path) -> None:
    content = told(EAGER, "--graph", GRAPH, "--latency", with_floor(tmp_path, 0.125))
    compared = {row["part"]: row for row in content["tables"]["compared"]}
    assert compared["floor"] == {"part": "floor", "eager_us": None, "graph_us": 125.0, "difference_us": None}
    for side in ("eager", "graph"):
        parts = [row[f"{side}_us"] for name, row in compared.items() if name not in ("range", "floor")]
        assert sum(parts) == pytest.approx(compared["range"][f"{side}_us"], abs=0.01)
    assert compared["launch_bound_gaps"]["difference_us"] < 0
    assert len(content["tables"]["graph_gpu_requests"]) == content["trace"]["graph_requests"] == 20


def test_what_graph_mode_calls_busy_is_a_span_and_called_one() -> None:
    beside = ledger(EAGER, "--graph", GRAPH).out
    assert beside.count("busy of a graph is its replay span") == 2
    assert ledger(GRAPH).out.count("busy of a graph is its replay span") == 1
    assert "span" not in ledger(EAGER, "--graph", CASE / "graph.node.sqlite.gz").out


def test_a_graph_traced_node_by_node_is_a_warning() -> None:
    ran = ledger(EAGER, "--graph", CASE / "graph.node.sqlite.gz", "--format", "csv")
    assert ran.code == 0
    assert ran.err.startswith("warning: graph: graphs were traced node by node: ")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("table", "GPU ledger: 20 requests, range request"),
        ("md", "## Host ledger: 20 requests, range request"),
        ("csv", "\ngpu,launch_bound_gaps,"),
    ],
)
def test_every_format(form: str, words: str) -> None:
    ran = ledger(EAGER, "--format", form)
    assert ran.code == 0
    assert words in ran.out
    if form == "csv":  # all are written by the same lines
        assert ran == analysis_process("ledger", EAGER, "--format", form)


def test_rows_are_cut_for_reading_only_and_a_file_takes_its_format_from_its_name(tmp_path: Path) -> None:
    assert "... and 18 more" in ledger(EAGER, "--top", "2").out
    assert " more; --top 0" not in ledger(EAGER, "--top", "0").out
    out = tmp_path / "new" / "ledger.csv"
    assert ledger(EAGER, "-o", out) == Ran(0, "", "")
    rows = [row for row in csv.reader(io.StringIO(out.read_text())) if row[:1] == ["gpu_requests"]]
    assert len(rows) == 20
    assert [path.name for path in out.parent.iterdir()] == ["ledger.csv"]


@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_a_figure_is_the_same_in_any_process(suffix: str, start: bytes, tmp_path: Path) -> None:
    one, two = (tmp_path / f"{name}{suffix}" for name in ("one", "two"))
    words = (EAGER, "--graph", GRAPH, "--latency", with_floor(tmp_path, 0.125))
    # The process is one of its own for one of the formats: they are drawn from the same figure.
    other = analysis_process if suffix == ".svg" else analysis
    for run, figure in ((analysis, one), (other, two)):
        ran = run("ledger", *words, "--figure", figure)
        assert (ran.code, ran.err) == (0, "")
    assert one.read_bytes().startswith(start)
    assert one.read_bytes() == two.read_bytes()
    if suffix == ".png":
        assert min(Image.open(one).size) > 100


def test_matplotlib_is_loaded_for_a_figure_only() -> None:
    code = (
        "import sys; from analysis.commands.ledger import main; "
        f"main([{str(EAGER)!r}, '--format', 'json']); sys.exit('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ranges_are_proposed_where_launchgaps_own_are_absent(tmp_path: Path) -> None:
    complaint = ledger(EXAMPLES["eager.node"]).complaint
    assert "has no requests of launchgap; name the range of one with --range: 'forward'" in complaint
    complaint = ledger(busy_trace(tmp_path)).complaint
    assert "--range: 'step', 'forward'" in complaint
    assert (
        "these do, name one with --range: 'step'"
        in ledger(tmp_path / "busy.sqlite", "--range", "load").complaint
    )
    assert "did you mean 'step'" in ledger(tmp_path / "busy.sqlite", "--range", "stop").complaint


def test_several_devices_have_a_ledger_each(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "two.sqlite")
    file.requests((0, 100), (200, 300))
    for at in (0, 200):
        file.launch("a", (at + 1, at + 5), (at + 10, at + 20))
        file.launch("b", (at + 6, at + 9), (at + 15, at + 40), deviceId=1)
    tables = told(file.save())["tables"]
    assert [row["total_ns"] for row in tables["gpu"] if row["part"] == "busy"] == [60]
    busy = {row["device"]: row["total_ns"] for row in tables["gpu_devices"] if row["part"] == "busy"}
    assert busy == {0: 20, 1: 50}


@pytest.mark.parametrize(
    ("spans", "work", "words"),
    [
        (((0, 1000),), 0, "warning: the range is there once: "),
        (((0, 1000), (100, 900)), 0, "warning: 1 of 2 ranges begin before an earlier one of their "),
        (((0, 1000), (2000, 3000)), 5000, "warning: of 2 of 2 requests GPU work ran outside the range, "),
    ],
    ids=["once", "overlapping", "outside"],
)
def test_what_qualifies_a_ledger_is_a_sentence(
    spans: tuple[tuple[int, int], ...], work: int, words: str, tmp_path: Path
) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests(*spans)
    for start, _ in spans:
        file.launch("k", (start + 110, start + 120), (start + work + 130, start + work + 230))
    ran = ledger(file.save(), "--format", "csv")
    assert ran.code == 0
    assert words in ran.err


def test_torch_profiler_leaves_calls_out_and_that_is_told() -> None:
    found = told(TORCH)["findings"]
    assert any("leaves out some CUDA calls" in finding["what"] for finding in found)


def test_a_latency_record_without_a_floor_or_of_another_case(tmp_path: Path) -> None:
    ran = ledger(EAGER, "--latency", with_floor(tmp_path, None), "--format", "csv")
    assert ran.code == 0
    assert "tells no floor" in ran.err
    other = GPT2 / "latency.json"
    assert "give the latency record of the same case" in ledger(EAGER, "--latency", other).complaint
    assert "not a latency record" in ledger(EAGER, "--latency", CASE / "eager.node.json").complaint


def test_traces_in_the_wrong_place_or_of_other_models() -> None:
    assert "replay no graph" in ledger(EAGER, "--graph", EAGER).complaint
    assert "give the trace of the eager run" in ledger(GRAPH, "--graph", GRAPH).complaint
    assert "give two traces of one model" in ledger(EAGER, "--graph", GPT2 / GRAPH.name).complaint


def test_a_trace_without_gpu_work(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    file.call("cudaDeviceSynchronize_v3020", 10, 20)
    assert "shows no GPU work" in ledger(file.save()).complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--figure", "f.pdf"), "is neither .svg nor .png"),
        (("--graph-range", "forward"), "give --graph TRACE2 as well"),
        (("--top", "-1"), "is negative"),
        (("-o", "{tmp}"), "is a folder"),
        (("-o", "{tmp}/t.sqlite.gz"), "is one of the inputs"),
        (("-o", "{tmp}/f.svg", "--figure", "{tmp}/f.svg"), "is to hold two outputs"),
        (("--domain", "nowhere"), "not in the trace"),
    ],
)
def test_wrong_options_write_nothing(words: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.sqlite.gz"
    shutil.copy(EAGER, trace)
    assert complaint in ledger(trace, *(word.format(tmp=tmp_path) for word in words)).complaint
    assert [path.name for path in tmp_path.iterdir()] == [trace.name]


def test_hostile_names_are_shown_safely(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    for start in (0, 1000):
        file.range(ESCAPE, start, start + 500)
        file.launch(ESCAPE, (start + 10, start + 20), (start + 30, start + 40))
    path, figure = file.save(), tmp_path / "f.svg"
    for form in ("table", "md", "csv", "json"):
        ran = ledger(path, "--range", ESCAPE, "--format", form, "--figure", figure)
        assert ran.code == 0
        if form != "csv":
            assert "\x1b" not in ran.out
    assert b"\x1b" not in figure.read_bytes()
