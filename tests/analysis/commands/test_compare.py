"""`python -m analysis compare`: what it shows, when it fails a build, what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.__main__ import COMMANDS
from analysis.commands.compare import _parse
from analysis.compare_gate import parse_gate
from contract import LatencyRecord
from tests.analysis.commands.run_command import ROOT, Ran, analysis
from tests.analysis.report_samples import (
    HOSTILE,
    failed,
    latency_record,
    request_rows,
    write_record,
    write_tables,
)
from tests.analysis.trace_file import EXAMPLES, TraceFile

EXAMPLE_REPORT = ROOT / "docs" / "example-report" / "report.json"
REFERENCE = ROOT / "profiles" / "reference"
CASE = "gpt2-float32-p50-m1024"
ALL = ("regression=5%", "launches=0", "kernels=0", "missing", "output")


def compare(*words: str | Path) -> Ran:
    return analysis("compare", *words)


def told(*words: str | Path, code: int = 0) -> dict[str, Any]:
    ran = compare(*words, "--format", "json")
    assert ran.code == code, ran
    content = json.loads(ran.out)
    assert isinstance(content, dict)
    return content


def results(root: Path, record: LatencyRecord | None = None, **tables: Any) -> Path:  # noqa: ANN401
    record = record or latency_record()
    write_record(root, record)
    write_tables(root, record["case"]["name"], **tables)
    return root


def gates(*asked: str) -> list[str]:
    return [word for one in asked for word in ("--fail-on", one)]


def trace(path: Path, us: dict[str, float], spans: int = 4) -> Path:
    """Requests that run each of these kernels once, for so many microseconds, more or less."""
    file = TraceFile(path)
    file.requests(*((10**6 * i, 10**6 * i + 900_000) for i in range(spans)))
    for i in range(spans):
        at = 10**6 * i
        for number, (name, duration) in enumerate(us.items()):
            start, jitter = at + 50_000 * (number + 1), 10 * (i % 2)
            file.launch(
                name, (start, start + 100), (start + 200, start + 200 + int(1000 * duration) + jitter)
            )
    return file.save()


def test_it_is_a_command() -> None:
    assert COMMANDS["compare"] == "analysis.commands.compare"


def test_results_compared_with_themselves_pass_every_gate(tmp_path: Path) -> None:
    folder = results(tmp_path)
    content = told(folder, folder, *gates(*ALL))
    assert content["kind"] == "comparison"
    assert content["trace"]["gate"] == "passed"
    assert [row["verdict"] for row in content["tables"]["latency"]] == ["same"] * 3
    assert content["tables"]["counts"][1] == {
        **{"case": CASE, "strategy": "graph", "old_launches": 2.0, "new_launches": 2.0},
        **{"old_kernels": 306.0, "new_kernels": 306.0},
    }
    assert "kernels" not in content["tables"]
    assert len(content["tables"]["same_kernels"]) == 60


def test_each_reason_is_a_line_on_stderr_and_the_exit_code_is_1(tmp_path: Path) -> None:
    old = results(tmp_path / "old")
    new_record = latency_record(medians_ms={"eager": 9.0, "graph": 2.4, "graph_padded": 9.6})
    new_record["strategies"]["graph_padded"] = failed("out of memory")
    rows = [
        [*row[:3], row[3] + 5 if row[3] else row[3], *row[4:7], row[7] + 1, *row[8:]]
        for row in request_rows()
    ]
    new = results(tmp_path / "new", new_record, requests=rows, kernels=[f"kernel_{i}" for i in range(1, 22)])
    ran = compare(old, new, *gates(*ALL))
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "regression",
        *["launches"] * 3,
        *["kernels"] * 3,
        "missing",
    ]
    assert "graph went from" in lines[0]
    assert lines[-1] == f"missing: {CASE}: graph_padded: now failed: out of memory"
    # One more launch is allowed, and kernels of eager and graph alone are looked at.
    allowed = compare(old, new, *gates("launches=1", "kernels=4"), "--strategies", "graph")
    assert [line.split(":")[0] for line in allowed.err.splitlines()] == ["kernels"]
    content = told(old, new)
    whats = {row["kernel"]: row["what"] for row in content["tables"]["kernels"] if row["strategy"] == "graph"}
    assert (whats["kernel_0"], whats["kernel_20"]) == ("went", "came")


def test_the_bundled_report_and_the_records_it_was_made_of_agree() -> None:
    content = told(EXAMPLE_REPORT, REFERENCE, *gates("regression=1%", "missing"))
    assert len(content["tables"]["latency"]) == 9
    assert {row["change_percent"] for row in content["tables"]["latency"]} == {0.0}
    verdicts = {(row["strategy"], row["verdict"]) for row in content["tables"]["latency"]}
    # Eager of a host that did not hold still is not even sure to be like itself.
    assert verdicts - {("eager", "unsure")} == {(name, "same") for name in ("eager", "graph", "graph_padded")}
    assert content["findings"] == []


def test_a_report_without_its_records_has_no_intervals_and_says_so(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE_REPORT, tmp_path)
    content = told(EXAMPLE_REPORT, tmp_path, *gates("launches=0", "kernels=0", "missing"))
    assert {row["verdict"] for row in content["tables"]["latency"]} == {"unsure"}
    assert all("no interval" in finding["effect"] for finding in content["findings"])
    assert len(content["findings"]) == 3
    complaint = compare(EXAMPLE_REPORT, tmp_path, *gates("regression=5%")).complaint
    assert "has no interval" in complaint


def test_a_record_of_another_run_than_the_report_is_not_taken_for_its_own(tmp_path: Path) -> None:
    report = json.loads(EXAMPLE_REPORT.read_text())
    report["cases"] = [case for case in report["cases"] if case["name"] == CASE]
    report["cases"][0]["sources"]["latency"] = "latency.json"
    (tmp_path / "report.json").write_text(json.dumps(report))
    shutil.copy(ROOT / "docs" / "measurements" / "gpt2-float32.host-b.json", tmp_path / "latency.json")
    (finding,) = told(tmp_path / "report.json", EXAMPLE_REPORT)["findings"]
    assert "latency.json is of another run than the report" in finding["what"]


def test_two_traces_give_kernels_with_intervals(tmp_path: Path) -> None:
    old = trace(tmp_path / "old.sqlite", {"gemm": 20.0, "softmax": 5.0, "gone": 1.0})
    new = trace(tmp_path / "new.sqlite", {"gemm": 22.0, "softmax": 5.0, "come": 1.0, "too": 1.0})
    content = told(old, new)
    rows = {row["kernel"]: row for row in content["tables"]["kernels"]}
    assert {name: row["what"] for name, row in rows.items()} == {
        **{"gemm": "slower", "gone": "went", "come": "came", "too": "came"}
    }
    assert 9.5 < rows["gemm"]["low_percent"] <= rows["gemm"]["high_percent"] < 10.5
    assert "latency" not in content["tables"]
    ran = compare(old, new, *gates("kernels=0"))
    assert (ran.code, ran.err) == (1, "kernels: trace: trace has 4 kernels per request, 1 more than 3\n")
    assert compare(old, new, *gates("kernels=1")).code == 0
    assert "no latency of a strategy" in compare(old, new, *gates("regression=5")).complaint


def test_a_bundled_trace_against_itself_and_against_the_graph() -> None:
    same = told(
        EXAMPLES["graph.node"],
        EXAMPLES["graph.node"],
        "--range",
        "forward",
        *gates("launches=0", "kernels=0"),
    )
    assert same["tables"]["kernels"] == same["tables"]["launches"] == []
    assert len(same["tables"]["same_kernels"]) > 10
    graph = told(EXAMPLES["eager.node"], EXAMPLES["graph.node"], "--range", "forward")
    apis = {row["api"]: row["what"] for row in graph["tables"]["launches"]}
    assert (apis["cudaGraphLaunch"], apis["cudaLaunchKernel"]) == ("came", "fewer calls")


def test_of_two_traces_the_one_without_the_range_is_named(tmp_path: Path) -> None:
    lacks = tmp_path / "lacks.sqlite"
    file = TraceFile(lacks)
    file.requests((0, 1_000))
    file.launch("matmul", (100, 200), (300, 400))
    file.save()
    for sides in ((EXAMPLES["graph.node"], lacks), (lacks, EXAMPLES["graph.node"])):
        complaint = compare(*sides, "--range", "forward").complaint
        assert f"{lacks}: --range 'forward': not in the trace" in complaint
        assert str(EXAMPLES["graph.node"]) not in complaint


def test_replays_recorded_whole_show_no_kernels() -> None:
    words = (EXAMPLES["graph.node"], EXAMPLES["graph.graph"], "--range", "forward")
    content = told(*words)
    assert any("shows replays whole" in finding["what"] for finding in content["findings"])
    assert [row["field"] for row in content["tables"]["environment"]] == ["trace_mode"]
    assert "no count of kernels in NEW" in compare(*words, *gates("kernels=0")).complaint


def test_measured_runs_and_traces_do_not_mix(tmp_path: Path) -> None:
    latency = REFERENCE / CASE / "latency.json"
    assert "give two of one kind" in compare(latency, EXAMPLES["eager.node"]).complaint
    assert "give two of one kind" in compare(EXAMPLES["eager.node"], REFERENCE).complaint
    neither = tmp_path / "list.json"
    neither.write_text("[]")
    for other in (neither, ROOT / "README.md"):
        assert f"{other} is neither a record nor a trace" in compare(latency, other).complaint
    assert "are for traces" in compare(latency, latency, "--range", "forward").complaint


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "is empty"),
        ('{"schema_version": 1, "kind": "latency", "case": {"na', "not valid JSON"),
        ('{"schema_version": 2, "kind": "latency"}', "record schema 2, this launchgap reads 1"),
        ('{"schema_version": 9, "kind": "report", "cases": []}', "record schema 9, this launchgap reads 1"),
        ('{"schema_version": 1, "kind": "latency"}', "half-written or edited, case is missing"),
        ('{"schema_version": 1, "kind": "report"}', "half-written or edited .*cases"),
        ('{"schema_version": 1, "kind": "report", "cases": [{"name": "x"}]}', "half-written or edited"),
        ('{"schema_version": 1, "kind": "report", "cases": [7]}', "half-written or edited"),
        ('{"schema_version": 1, "kind": "report", "cases": []}', "no case in common"),
        ('{"schema_version": 1, "kind": "generation"}', "is a generation record, which is not compared"),
    ],
)
def test_records_that_cannot_be_used_are_told_in_a_sentence(tmp_path: Path, content: str, match: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    latency = REFERENCE / CASE / "latency.json"
    for words in ((tmp_path / "bad.json", latency), (latency, tmp_path / "bad.json")):
        assert re.search(match, compare(*words).complaint), compare(*words).complaint


def test_samples_that_are_no_times_are_refused(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph"]["event_ms"][3] = -1.0
    path = write_record(tmp_path, record)
    complaint = compare(path, path).complaint
    assert str(path) in complaint
    assert "no positive time" in complaint


@pytest.mark.parametrize("clock", ["event_ms", "wall_ms"])
def test_rounds_that_do_not_belong_to_eagers_are_refused_as_in_the_report(tmp_path: Path, clock: str) -> None:
    record: Any = latency_record()
    record["strategies"]["graph"][clock].pop()
    path = write_record(tmp_path, record)
    complaint = compare(path, path).complaint
    assert str(path) in complaint
    assert "compared in pairs" in complaint


def test_tables_that_disagree_with_the_record_are_refused(tmp_path: Path) -> None:
    good = results(tmp_path / "good")
    other = results(tmp_path / "case")
    shutil.rmtree(other / "tables" / CASE)
    write_tables(other, "other-case").rename(other / "tables" / CASE)
    assert "about case 'other-case', not" in compare(good, other).complaint
    stranger = results(tmp_path / "stranger", latency_record(medians_ms={"eager": 4.6, "graph": 1.8}))
    assert (
        "tells of graph_padded, which the latency record does not have" in compare(good, stranger).complaint
    )
    cut = results(tmp_path / "cut")
    kernels = cut / "tables" / CASE / "kernels.csv"
    kernels.write_text(kernels.read_text()[:-30])
    assert "kernels.csv, line 61: cut short" in compare(good, cut).complaint


def test_runs_without_a_success_are_told_and_pass_no_gate(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"] = {name: failed("out of memory") for name in record["strategies"]}
    record["aa_event_ms"] = []
    path, good = write_record(tmp_path / "bad", record), write_record(tmp_path / "good", latency_record())
    content = told(good, path)
    assert content["tables"]["latency"] == []
    assert "NEW: no strategy of gpt2-float32-p50-m1024 has a successful run" in content["findings"][0]["what"]
    assert "no latency of a strategy that counts" in compare(good, path, *gates("regression=5")).complaint
    assert len(compare(good, path, *gates("missing")).err.splitlines()) == 3


def test_names_with_markup_stay_names(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph_padded"] = failed(HOSTILE)
    record["strategies"][HOSTILE + "\x1b[31m"] = record["strategies"]["graph"]
    record["environment"]["torch"] = HOSTILE
    old = results(tmp_path / "old")
    new = results(tmp_path / "new", record, kernels=[HOSTILE])
    ran = compare(old, new, "--format", "md", "--top", "0", *gates("missing"))
    assert ran.code == 1
    assert "<script>" not in ran.out
    assert "@someone" not in ran.out
    assert "\x1b" not in ran.out + ran.err
    for table in re.findall(r"(?:^\|.*\n)+", ran.out, re.MULTILINE):
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert len(ran.err.splitlines()) == 1


def test_the_same_inputs_give_the_same_bytes_in_every_format(tmp_path: Path) -> None:
    old = results(tmp_path / "old")
    new = results(
        tmp_path / "new", latency_record(medians_ms={"eager": 4.0, "graph": 2.0, "graph_padded": 9.6})
    )
    for suffix in ("md", "csv", "json"):
        texts = []
        for number in range(2):
            output = tmp_path / f"{number}.{suffix}"
            assert compare(old, new, "-o", output, *gates("regression=5%")).code == 1
            texts.append(output.read_bytes())
        assert texts[0] == texts[1]
        assert b"graph" in texts[0]


def test_an_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path, latency_record())
    (tmp_path / "nothing").mkdir()
    assert "is one of the inputs" in compare(path, path, "-o", path).complaint
    assert "give --fail-on as well" in compare(path, path, "--strategies", "graph").complaint
    assert "is not there" in compare(path, tmp_path / "nix").complaint
    assert "holds neither" in compare(path, tmp_path / "nothing").complaint


def test_another_run_of_the_old_code_raises_the_floor(tmp_path: Path) -> None:
    old, new, again = (
        write_record(
            tmp_path / name, latency_record(medians_ms={"eager": 4.6, "graph": median, "graph_padded": 9.6})
        )
        for name, median in (("old", 1.8), ("new", 2.0), ("again", 2.05))
    )
    assert compare(old, new, *gates("regression=5%")).code == 1
    assert compare(old, new, *gates("regression=5%"), "--again", again).code == 0


def workflow() -> dict[Any, Any]:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "compare.md").read_text(), re.DOTALL)
    content = yaml.safe_load(block)
    assert isinstance(content, dict)
    return content


def test_the_documented_workflow_is_one_and_its_command_is_understood() -> None:
    content = workflow()
    # YAML 1.1 reads the key `on` as true.
    assert set(content[True]) == {"push", "pull_request"}
    (job,) = content["jobs"].values()
    assert "self-hosted" in job["runs-on"]
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert "snakemake --cores 1" in runs
    (line,) = [run.replace("\\\n", " ") for run in runs if "analysis compare" in run]
    command = shlex.split(line)
    assert command[:4] == ["python", "-m", "analysis", "compare"]
    arguments = _parse(command[4:])
    assert parse_gate(arguments.fail_on) == parse_gate(ALL)
    assert any(f"cat {arguments.output}" in run and "GITHUB_STEP_SUMMARY" in run for run in runs)
    fetched = next(run for run in runs if "gh run download" in run)
    assert f"--dir {arguments.old}" in fetched
    kept = next(step["with"] for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
    assert f"--name {kept['name']}" in fetched
    assert {"results/latency/", "results/tables/"} <= set(kept["path"].split())


def test_every_documented_criterion_is_one() -> None:
    text = (ROOT / "docs" / "compare.md").read_text()
    rows = re.findall(r"^\| `(?:regression|launches|missing|output)[^|]*\|", text, re.MULTILINE)
    words = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    assert sorted(words) == sorted(ALL)
    for word in words:
        parse_gate([word])
