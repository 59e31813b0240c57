"""`python -m analysis TRACE` as its user sees it."""

import csv
import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.commands.run_command import ROOT, analysis, busy_trace
from tests.analysis.trace_file import EXAMPLES, SCHEMAS, TraceFile

EAGER, GRAPH, NODES = (EXAMPLES[name] for name in ("eager.node", "graph.graph", "graph.node"))


def shown(*words: str | Path) -> dict[str, Any]:
    """What a run tells as JSON."""
    ran = analysis(*words, "--format", "json")
    assert ran.code == 0, ran
    content = json.loads(ran.out)
    assert isinstance(content, dict)
    return content


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)


def test_overview_of_a_trace_with_two_processes(tmp_path: Path) -> None:
    content = shown(busy_trace(tmp_path))
    facts, tables = content["trace"], content["tables"]
    assert facts["nsys_version"] == "2025.3.2.0"
    assert facts["export_schema"] == "3.20.3"
    assert facts["gpus_of_host"] == ["GPU zero", "GPU one"]
    assert facts["capture_flags"] == ["CUDA_GRAPH_TRACE_OPTIONS:MODE=Node", "COLLECT_CUDA_TRACE=true"]
    assert (facts["kernels"], facts["memcpys"], facts["launches"]) == (13, 3, 13)
    assert (facts["graph_launches"], facts["graph_launches_as_nodes"]) == (3, 3)
    assert (facts["first_event_s"], facts["last_event_s"]) == (-900e-9, 5e-6)
    assert [(row["process"], row["device"], row["gpu"], row["kernels"]) for row in tables["devices"]] == [
        (4321, 0, "GPU zero", 12),
        (4322, 1, "GPU one", 1),
    ]
    # Kernels 130-180 and 170-220 overlap, the copy is 230-240, the nodes are 750-790 and 800-840: 180 a step.
    assert [row["gpu_busy_us"] for row in tables["devices"]] == [0.54, 0.06]
    assert [(row["process"], row["name"], row["launches"]) for row in tables["processes"]] == [
        (4321, "serve", 12),
        (4322, None, 1),
    ]
    (graph,) = tables["graphs"]
    assert (graph["shown_as"], graph["replays"]) == ("nodes", 3)
    assert (graph["kernels"], graph["mean_us"]) == (2.0, 0.08)
    domains = [(row["domain"], row["ranges"], row["unfinished"]) for row in tables["domains"]]
    assert domains == [("", 1, 0), ("engine", 7, 1)]


def test_the_environment_in_a_trace_is_not_shown(tmp_path: Path) -> None:
    assert "hunter2" not in analysis(busy_trace(tmp_path)).out


def test_whole_trace_tables_are_those_of_nsys_stats(tmp_path: Path) -> None:
    tables = shown(busy_trace(tmp_path))["tables"]
    calls = {row["call"]: (row["kind"], row["calls"], row["total_us"]) for row in tables["launches"]}
    assert calls == {
        "cudaLaunchKernel_v7000": ("kernel", 7, 0.07),
        "cudaMemcpyAsync_v3020": ("memcpy", 3, 0.03),
        "cudaGraphLaunch_v10000": ("graph", 3, 0.06),
    }
    kernels = {row["full_name"]: (row["calls"], row["total_us"]) for row in tables["kernels"]}
    assert kernels == {"gemm<float>": (6, 0.3), "node": (6, 0.24), "other": (1, 0.06)}


def test_proposed_is_what_repeats_around_the_launches_outer_range_first(tmp_path: Path) -> None:
    tables = shown(busy_trace(tmp_path))["tables"]
    proposed = [(row["rank"], row["domain"], row["name"]) for row in tables["proposals"]]
    assert proposed == [(1, "engine", "step"), (2, "engine", "forward")]
    by_name = {row["name"]: row for row in tables["ranges"]}
    assert by_name["step"]["launches"] == 12
    assert by_name["step"]["operations"] == 15
    assert by_name["step"]["launch_share_percent"] == pytest.approx(12 / 13 * 100, abs=1e-3)
    assert (by_name["forward"]["instances"], by_name["forward"]["unfinished"]) == (3, 1)
    assert by_name["load"]["rank"] is None


def test_the_command_that_is_proposed_runs(tmp_path: Path) -> None:
    path = busy_trace(tmp_path).rename(tmp_path / "it's busy.sqlite")
    (first, *_) = shown(path)["tables"]["proposals"]
    command = first["command"].replace("python", sys.executable, 1)
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "3 instances of step" in done.stdout
    assert analysis(path).out.rstrip().endswith(first["command"])


def test_one_range_instance_by_instance(tmp_path: Path) -> None:
    content = shown(busy_trace(tmp_path), "--range", "step")
    assert content["trace"]["range"] == "step"
    instances = content["tables"]["instances"]
    assert [row["start_s"] for row in instances] == [0.0, 2e-6, 4e-6]
    for row in instances:
        assert (row["process"], row["thread"]) == (4321, 4321)
        assert (row["kernels"], row["memcpys"], row["graph_launches"], row["launches"]) == (4, 1, 1, 4)
        assert (row["launch_api_us"], row["gpu_busy_us"]) == (0.05, 0.18)
        assert (row["gpu_span_us"], row["range_us"]) == (0.71, 1.0)
    launches = {row["api"]: row["calls"] for row in content["tables"]["instance_launches"][:3]}
    assert launches == {"cudaGraphLaunch": 1, "cudaLaunchKernel": 2, "cudaMemcpyAsync": 1}
    (busy,) = [row for row in content["tables"]["summary"] if row["quantity"] == "gpu_busy_us"]
    assert (busy["instances"], busy["median"], busy["total"]) == (3, 0.18, pytest.approx(0.54))


@pytest.mark.parametrize(("words", "kernels", "launches"), [
    (("--process", "4322"), 1, 1),
    (("--process", "4321"), 12, 12),
    (("--device", "1"), 1, 1),
    (("--device", "0"), 12, 12),
    (("--between", "-1us", "1us"), 5, 5),
    (("--between", "0.000002", "1"), 8, 8),
    (("--between", "100ns", "0.000000150"), 1, 1),
    (("--process", "4321", "--between", "0", "3us", "--device", "0"), 8, 8),
])  # fmt: skip
def test_a_part_of_a_trace(tmp_path: Path, words: tuple[str, ...], kernels: int, launches: int) -> None:
    facts = shown(busy_trace(tmp_path), *words)["trace"]
    assert (facts["kernels"], facts["launches"]) == (kernels, launches)


def test_a_span_of_time_keeps_whole_instances_and_all_that_they_launched(tmp_path: Path) -> None:
    # The second step ends at 3000, its last kernel at 2840.
    words = ("--range", "step", "--between", "1us", "3us")
    (only,) = shown(busy_trace(tmp_path), *words)["tables"]["instances"]
    assert (only["start_s"], only["kernels"], only["gpu_busy_us"]) == (2e-6, 4, 0.18)


def test_bundled_traces_agree_with_what_is_known_of_them() -> None:
    eager = shown(EAGER, "--range", "forward")["tables"]["instances"]
    nodes = shown(NODES, "--range", "forward")["tables"]["instances"]
    whole = shown(GRAPH, "--range", "forward")["tables"]["instances"]
    assert len(eager) == len(nodes) == len(whole) == 20
    assert {row["kernels"] for row in eager} == {232}
    assert {row["launches"] for row in eager} == {271}
    assert {row["kernels"] for row in nodes} == {306}
    assert {row["kernels"] for row in whole} == {None}
    assert {(row["graph_launches"], row["launches"]) for row in (*nodes, *whole)} == {(1, 3)}


def test_graph_mode_says_why_it_has_no_kernels() -> None:
    ran = analysis(GRAPH, "--range", "forward")
    assert "20 of 20 instances replayed a graph that the trace shows as a whole" in ran.out
    (graph,) = shown(GRAPH)["tables"]["graphs"]
    assert (graph["shown_as"], graph["replays"], graph["kernels"]) == ("whole", 20, None)


EVERY_FORMAT = """
import sys
from analysis.__main__ import main
trace, folder = sys.argv[1:]
for part in ("", "forward"):
    for form in ("table", "csv", "json", "md"):
        words = ["--range", part] if part else []
        if main([trace, *words, "--format", form, "-o", f"{folder}/{part}.{form}"]):
            sys.exit(f"{part} {form}")
"""


def test_the_same_trace_is_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    command = [sys.executable, "-c", EVERY_FORMAT, str(EAGER), str(theirs)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "1"}, check=True)
    for part in ("", "forward"):
        for form in ("table", "csv", "json", "md"):
            words = ["--range", part] if part else []
            assert analysis(EAGER, *words, "--format", form, "-o", ours / f"{part}.{form}").code == 0
    told = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (theirs, ours)]
    assert told[0] == told[1]
    assert len(told[0]) == 8
    assert all(told[0].values())


def test_the_order_of_rows_in_the_file_does_not_matter(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    before = analysis(path).out
    with sqlite3.connect(path) as connection:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            connection.execute(f"CREATE TABLE turned AS SELECT * FROM {table} ORDER BY rowid DESC")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE turned RENAME TO {table}")
    assert analysis(path).out == before


def test_csv_of_one_table_and_of_all(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    rows = list(csv.DictReader(io.StringIO(analysis(path, "--table", "kernels", "--format", "csv").out)))
    assert [row["full_name"] for row in rows] == ["gemm<float>", "node", "other"]
    blocks = analysis(path, "--format", "csv").out.split("\n\n")
    names = [next(csv.DictReader(io.StringIO(block)), {"table": ""})["table"] for block in blocks]
    assert names[0] == "trace"
    assert {"devices", "launches", "kernels", "ranges", "proposals"} <= set(names)


def test_format_follows_the_ending_of_the_output(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    for name, start in (("a.json", "{"), ("a.csv", "call,kind"), ("a.md", "# "), ("a.txt", str(path))):
        ran = analysis(path, "--table", "launches", "-o", tmp_path / "new" / name)
        assert (ran.code, ran.out) == (0, "")
        assert (tmp_path / "new" / name).read_text().startswith(start)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.csv", "a.json", "a.md", "a.txt"]


def test_top_cuts_tables_and_says_so(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    assert "... and 2 more; --top 0 shows all" in analysis(path, "--table", "kernels", "--top", "1").out
    assert len(shown(path, "--table", "kernels", "--top", "1")["tables"]["kernels"]) == 1
    assert "more" not in analysis(EAGER, "--table", "kernels", "--top", "0").out


@pytest.mark.parametrize("schema", sorted(SCHEMAS))
def test_every_known_schema(tmp_path: Path, schema: str) -> None:
    file = TraceFile(tmp_path / "old.sqlite", schema)
    file.domain("engine", 1)
    for start in (0, 1000):
        file.range("step", start, start + 500)
        file.launch("gemm", (start + 10, start + 20), (start + 30, start + 90))
    content = shown(file.save(), "--range", "step")
    assert content["trace"]["export_schema"] == schema
    assert [row["kernels"] for row in content["tables"]["instances"]] == [1, 1]


def test_a_packed_trace_is_read_as_the_plain_one(tmp_path: Path) -> None:
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(gzip.decompress(EAGER.read_bytes()))
    first, second = (analysis(path, "--format", "csv", "--table", "kernels") for path in (plain, EAGER))
    assert first == second


def test_help_is_quick_and_names_everything() -> None:
    told = analysis("--help")
    assert told.code == 0
    for word in ("--range", "--between", "--top", ".nsys-rep", "docs/any-trace.md", "scrub", "perfetto"):
        assert word in told.out
    code = "import sys; import analysis.commands.show; print(*sys.modules)"
    assert not {"pandas", "numpy"} & set(python(code).stdout.split())


def test_looking_at_a_trace_loads_no_plotting() -> None:
    code = (
        "import sys; from pathlib import Path; from analysis.__main__ import main; "
        f"main([{str(EAGER)!r}]); "
        "sys.stdout.flush(); print(*sys.modules, file=sys.stderr)"
    )
    loaded = set(python(code).stderr.split())
    assert "pandas" in loaded
    assert not {"matplotlib", "jinja2", "torch", "nsight"} & loaded


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m analysis {EAGER} --top 0 --format csv | head -n 1; echo $PIPESTATUS"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in {"0", "141"}
