import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.attribute import RangeSelector
from analysis.case import AnalysedCase, analyse_case
from analysis.case_explained import TABLE_COLUMNS
from contract import LaunchgapError
from tests.analysis.chrome_file import eager_and_graph
from tests.analysis.trace_file import EXAMPLES, TraceFile

CASE = "gpt2-float32-p50-m1024"
FORWARD = RangeSelector("forward", "")


def write_record(folder: Path, label: str, **changes: Any) -> None:  # noqa: ANN401
    strategy, mode = label.split(".")
    record: dict[str, Any] = {
        **{"schema_version": 1, "kind": "trace", "case": {"name": CASE}, "strategy": strategy},
        **{"trace_mode": mode, "device": "cuda", "simulated": False, "requests": 20},
        **{"event_ms": [3.0, 1.0, 2.0], "wall_ms": [3.0, 1.0, 2.0]},
    } | changes
    (folder / f"{label}.json").write_text(json.dumps(record))


def example_case(folder: Path) -> Path:
    for label, path in EXAMPLES.items():
        shutil.copy(path, folder / f"{label}.sqlite.gz")
        write_record(folder, label)
    return folder


def eager_case(folder: Path) -> Path:
    shutil.copy(EXAMPLES["eager.node"], folder / "eager.node.sqlite.gz")
    write_record(folder, "eager.node")
    return folder


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> AnalysedCase:
    return analyse_case(CASE, example_case(tmp_path_factory.mktemp("example")), selector=FORWARD)


def simulated_trace(folder: Path, label: str, *, ranges: bool = True) -> None:
    file = TraceFile(folder / f"{label}.sqlite", "3.0.0", mode=None)
    if ranges:
        file.requests((0, 100), (200, 300))
    file.save()
    write_record(folder, label, simulated=True, device="cpu", requests=2)


def statuses(analysed: AnalysedCase) -> dict[str, str]:
    return {f"{entry.strategy}.{entry.trace_mode}": entry.status for entry in analysed.entries}


def reason(analysed: AnalysedCase, label: str) -> str:
    found = {f"{entry.strategy}.{entry.trace_mode}": entry.reason for entry in analysed.entries}
    return found[label] or ""


def test_example_case(example: AnalysedCase) -> None:
    assert statuses(example) == {"eager.node": "ok", "graph.node": "ok", "graph.graph": "ok"}
    assert example.failures == ()
    files = example.files()
    counted = {f"{name}.csv" for name in ("comparison", "kernels", "launches", "requests")}
    assert set(files) == counted | {f"{name}.csv" for name in TABLE_COLUMNS} | {
        "traces.json",
        "explained.json",
        "timeline.json",
    }
    assert len(files["requests.csv"].splitlines()) == 61
    record = json.loads(files["traces.json"])
    assert (record["schema_version"], record["kind"], record["case"]) == (1, "traces", CASE)
    assert record["traces"][0] == {
        **{"strategy": "eager", "trace_mode": "node", "status": "ok", "reason": None, "requests": 20},
        **{"nsys_version": "2025.3.2.0", "export_schema": "3.20.3", "findings": []},
        "profiled_event_ms_median": 2.0,
        "export_version": "2025.3.2.0",
        "tracer": "nsys",
        "command": None,
    }


def test_traces_of_torch(tmp_path: Path) -> None:
    for label in ("eager.node", "graph.node"):
        eager_and_graph().save(tmp_path / f"{label}.json.gz")
        write_record(tmp_path, label, requests=2, tracer="torch")
    preflight = {"can_trace": True, "device": "cuda", "tracer": "torch"}
    analysed = analyse_case(CASE, tmp_path, preflight=preflight, strategies=["eager", "graph"])
    # There is no graph mode to miss.
    assert statuses(analysed) == {"eager.node": "ok", "graph.node": "ok"}
    entry = analysed.entries[0]
    assert (entry.tracer, entry.nsys_version, entry.export_schema, entry.requests) == ("torch", None, None, 2)
    assert "recorded by torch.profiler, not by nsys" in entry.findings[0]
    assert analysed.requests["kernels"].tolist() == [2, 3] * 2
    assert analysed.requests["graph_launches"].tolist() == [0, 1] * 2
    (tmp_path / "eager.node.json.gz").write_bytes(b"{")
    assert reason(analyse_case(CASE, tmp_path), "eager.node").endswith("let it end by itself")


def test_a_trace_of_nsys_comes_before_one_of_torch(tmp_path: Path) -> None:
    folder = eager_case(tmp_path)
    eager_and_graph().save(folder / "eager.node.json.gz")
    assert {entry.tracer for entry in analyse_case(CASE, folder, selector=FORWARD).entries} == {"nsys"}


def test_nsys_is_the_one_of_the_record(tmp_path: Path) -> None:
    folder = eager_case(tmp_path)
    write_record(folder, "eager.node", nsys_version="2025.3.1.0")
    first = analyse_case(CASE, folder, selector=FORWARD).entries[0]
    assert (first.nsys_version, first.export_version) == ("2025.3.1.0", "2025.3.2.0")


@pytest.mark.parametrize(
    ("told", "command"),
    [
        ({"command": ["run_baseline.py"]}, ("run_baseline.py",)),
        ({"command": ["run_baseline.py"], "nsys_command": ["nsys", "profile"]}, ("nsys", "profile")),
        ({"command": "rm -rf /"}, None),
    ],
)
def test_the_command_is_the_one_of_the_record(
    tmp_path: Path, told: dict[str, Any], command: tuple[str, ...] | None
) -> None:
    folder = eager_case(tmp_path)
    write_record(folder, "eager.node", **told)
    assert analyse_case(CASE, folder, selector=FORWARD).entries[0].command == command


def test_a_trace_of_an_nsys_that_saw_other_processes_says_so(tmp_path: Path) -> None:
    folder = eager_case(tmp_path)
    write_record(folder, "eager.node", unconfined_because="the trace shows no GPU work")
    (found,) = analyse_case(CASE, folder, selector=FORWARD).entries[0].findings
    assert "environments of other processes in its sight" in found
    assert "since without: the trace shows no GPU work; share this trace only after" in found


def test_same_traces_give_the_same_files(example: AnalysedCase, tmp_path: Path) -> None:
    again = analyse_case(CASE, example_case(tmp_path), selector=FORWARD)
    assert again.files() == example.files()


def test_foreign_traces_need_their_range_named(tmp_path: Path) -> None:
    analysed = analyse_case(CASE, example_case(tmp_path))
    assert set(statuses(analysed).values()) == {"failed"}
    assert "no launchgap ranges" in reason(analysed, "eager.node")
    assert len(analysed.failures) == 3
    assert analysed.requests.empty


def test_order_and_unknown_strategies(tmp_path: Path) -> None:
    for label in ("zz_own.node", "graph_padded.graph", "graph_padded.node", "eager.node"):
        simulated_trace(tmp_path, label)
    (tmp_path / "notes.sqlite").write_text("no trace of ours")
    (tmp_path / "eager.node.sqlite.part").write_text("half")
    (tmp_path / "eager.other.sqlite").write_text("no mode")
    expected = ["eager.node", "graph_padded.node", "graph_padded.graph", "zz_own.node"]
    assert list(statuses(analyse_case(CASE, tmp_path))) == expected


def test_unpacked_trace_comes_before_its_gzip(tmp_path: Path) -> None:
    simulated_trace(tmp_path, "eager.node")
    (tmp_path / "eager.node.sqlite.gz").write_bytes(b"broken")
    assert statuses(analyse_case(CASE, tmp_path)) == {"eager.node": "no gpu"}


def test_simulation_has_ranges_and_no_counts(tmp_path: Path) -> None:
    simulated_trace(tmp_path, "eager.node")
    simulated_trace(tmp_path, "graph.node")
    analysed = analyse_case(CASE, tmp_path)
    assert statuses(analysed) == {"eager.node": "no gpu", "graph.node": "no gpu"}
    assert "CPU simulation" in reason(analysed, "eager.node")
    assert [entry.requests for entry in analysed.entries] == [2, 2]
    lines = analysed.files()["requests.csv"].splitlines()
    assert lines[1] == "eager,node,0,,,,,,,,,0.1"
    assert len(lines) == 5
    assert analysed.launches.empty
    assert analysed.kernels.empty


def test_simulation_without_ranges_is_a_failure(tmp_path: Path) -> None:
    simulated_trace(tmp_path, "eager.node", ranges=False)
    analysed = analyse_case(CASE, tmp_path)
    assert statuses(analysed) == {"eager.node": "failed"}
    assert "nvtx<0.2.12" in reason(analysed, "eager.node")


def test_one_broken_trace_does_not_take_the_others_along(tmp_path: Path) -> None:
    folder = example_case(tmp_path)
    whole = (folder / "graph.graph.sqlite.gz").read_bytes()
    (folder / "graph.graph.sqlite.gz").write_bytes(whole[: len(whole) // 2])
    analysed = analyse_case(CASE, folder, selector=FORWARD)
    assert statuses(analysed) == {"eager.node": "ok", "graph.node": "ok", "graph.graph": "failed"}
    assert "no complete gzip file" in analysed.failures[0]
    assert len(analysed.requests) == 40
    assert not analysed.comparison.empty


def test_trace_of_the_wrong_mode_stays_out_of_the_tables(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES["graph.graph"], tmp_path / "graph.node.sqlite.gz")
    analysed = analyse_case(CASE, tmp_path, selector=FORWARD)
    assert statuses(analysed) == {"graph.node": "failed"}
    assert analysed.requests.empty


def test_trace_without_a_record_is_used_and_says_so(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES["eager.node"], tmp_path / "eager.node.sqlite.gz")
    (entry,) = analyse_case(CASE, tmp_path, selector=FORWARD).entries
    assert (entry.status, entry.profiled_event_ms_median) == ("ok", None)
    assert "no record beside the trace" in entry.findings[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"case": {"name": "bert-tiny-float32-p50-m512"}},
            "of bert-tiny-float32-p50-m512 eager node, not of gpt2",
        ),
        ({"strategy": "graph"}, "graph node, not of"),
        ({"trace_mode": "graph"}, "eager graph, not of"),
        ({"requests": "many"}, "half-written (requests)"),
        ({"simulated": None, "event_ms": 3}, "half-written (simulated, event_ms)"),
        ({"event_ms": ["soon"]}, "half-written (event_ms)"),
        ({"kind": "latency"}, "not a trace record"),
        ({"schema_version": 2}, "record schema 2"),
    ],
)
def test_record_that_does_not_fit(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    shutil.copy(EXAMPLES["eager.node"], tmp_path / "eager.node.sqlite.gz")
    write_record(tmp_path, "eager.node", **changes)
    analysed = analyse_case(CASE, tmp_path, selector=FORWARD)
    assert statuses(analysed) == {"eager.node": "failed"}
    assert words in reason(analysed, "eager.node")


def test_record_that_is_no_json(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES["eager.node"], tmp_path / "eager.node.sqlite.gz")
    (tmp_path / "eager.node.json").write_text('{"kind": "tra')
    assert "not valid JSON" in reason(analyse_case(CASE, tmp_path, selector=FORWARD), "eager.node")


def test_fewer_requests_than_recorded(tmp_path: Path) -> None:
    folder = eager_case(tmp_path)
    write_record(folder, "eager.node", requests=25)
    first = analyse_case(CASE, folder, selector=FORWARD).entries[0]
    assert first.status == "ok"
    assert "20 of 25 requests" in first.findings[0]


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_to_analyse(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path if exists else tmp_path / "none"
    for preflight in (None, {"can_trace": True, "findings": []}):
        with pytest.raises(LaunchgapError, match=r"holds no STRATEGY\.MODE\.sqlite"):
            analyse_case(CASE, folder, preflight=preflight)


def test_host_that_cannot_trace(tmp_path: Path) -> None:
    preflight = {"can_trace": False, "findings": ["nsys: not found; install it", "no GPU; get one"]}
    analysed = analyse_case(CASE, tmp_path / "none", preflight=preflight)
    assert statuses(analysed) == dict.fromkeys(
        ("eager.node", "graph.node", "graph.graph", "graph_padded.node", "graph_padded.graph"), "missing"
    )
    assert reason(analysed, "eager.node") == "nsys: not found; install it; no GPU; get one"
    assert all(text.count("\n") == 1 for name, text in analysed.files().items() if name.endswith(".csv"))


def test_wanted_strategies_that_are_not_there(tmp_path: Path) -> None:
    simulated_trace(tmp_path, "eager.node")
    analysed = analyse_case(CASE, tmp_path, strategies=["eager", "graph"])
    assert statuses(analysed) == {"eager.node": "no gpu", "graph.node": "missing"}
    assert "snakemake" in reason(analysed, "graph.node")


def test_wanted_traces_of_a_gpu_that_are_not_there(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES["eager.node"], tmp_path / "eager.node.sqlite.gz")
    analysed = analyse_case(CASE, tmp_path, strategies=["eager", "graph"], selector=FORWARD)
    assert statuses(analysed) == {"eager.node": "ok", "graph.node": "missing", "graph.graph": "missing"}


@pytest.mark.parametrize("can_trace", [True, False])
def test_graph_mode_is_not_missed_on_a_host_without_a_gpu(tmp_path: Path, can_trace: bool) -> None:
    preflight = {"device": "cpu", "can_trace": can_trace, "findings": ["no GPU; get one"]}
    if can_trace:
        simulated_trace(tmp_path, "eager.node", ranges=False)
    analysed = analyse_case(CASE, tmp_path, preflight=preflight, strategies=["eager", "graph"])
    assert list(statuses(analysed)) == ["eager.node", "graph.node"]


def test_record_of_graph_mode_lets_no_count_be_zero(example: AnalysedCase) -> None:
    text = example.files()["requests.csv"]
    rows = [line.split(",") for line in text.splitlines()[1:]]
    graph = [row for row in rows if row[:2] == ["graph", "graph"]]
    assert len(graph) == 20
    assert all(row[3:6] == ["", "", ""] for row in graph)
