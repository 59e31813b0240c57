"""The workflow where torch.profiler records the traces: by choice here, because this host has no GPU."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from analysis.chrome_trace import read_chrome_trace
from tests.pipeline.conftest import CASE, GRAPH, NO_NSYS, SMALL, Project, run_real

TORCH = (*SMALL, "profiler=torch")
TRACES = [f"{name}.node.{suffix}" for name in ("eager", "graph") for suffix in ("json", "json.gz")]


def _traces(project: Project) -> list[str]:
    folder = project.path(f"profiles/torch/{CASE}")
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_everything_is_made_without_nsys(fresh: Project) -> None:
    done = fresh.run(config=TORCH, LAUNCHGAP_NSYS=NO_NSYS)
    assert done.returncode == 0, done.stderr
    report = fresh.report()
    assert report["tables"] == {CASE: {"case": CASE, "traces": ["eager.node", "graph.node"]}}
    preflight = report["preflight"]
    assert isinstance(preflight, dict)
    assert (preflight["tracer"], preflight["can_trace"], preflight["nsys_path"]) == ("torch", True, None)
    assert _traces(fresh) == TRACES
    assert list(fresh.path("profiles/nsys").iterdir()) == []
    assert fresh.path(f"logs/capture_torch/{CASE}/graph.node.log").exists()
    assert fresh.rules_to_run(config=TORCH, LAUNCHGAP_NSYS=NO_NSYS) == set()
    assert "capture_torch" in fresh.rules_to_run(config=(*TORCH, "traced_requests=7"), LAUNCHGAP_NSYS=NO_NSYS)


def test_auto_traces_nothing_on_a_host_with_neither(without_nsys_master: Project) -> None:
    preflight = without_nsys_master.report()["preflight"]
    assert isinstance(preflight, dict)
    assert (preflight["tracer"], preflight["can_trace"]) == (None, False)
    assert _traces(without_nsys_master) == []


@pytest.mark.nsys
def test_nsys_takes_over_when_it_is_asked_for(finished: Project) -> None:
    by_nsys = finished.trace_files()
    done = finished.run(config=TORCH)
    assert done.returncode == 0, done.stderr
    assert _traces(finished) == TRACES
    assert finished.trace_files() == by_nsys
    done = finished.run()
    assert done.returncode == 0, done.stderr
    report = finished.report()
    assert report["tables"] == {CASE: {"case": CASE, "traces": ["eager.node", "graph.node"]}}
    preflight = report["preflight"]
    assert isinstance(preflight, dict)
    assert preflight["tracer"] == "nsys"


def test_a_program_that_fails_leaves_nothing(fresh: Project) -> None:
    fresh.path("misbehave").write_text("fail")
    done = fresh.run(config=TORCH)
    assert done.returncode == 1
    assert "the device ran out of patience" in done.stdout + done.stderr
    assert "mend what is named above" in done.stderr
    assert _traces(fresh) == []


def test_a_program_that_hangs_is_ended(fresh: Project) -> None:
    fresh.path("misbehave").write_text("hang")
    done = fresh.run(config=(*TORCH, "capture_timeout_s=2"))
    assert done.returncode == 1
    assert "timeout: sending signal TERM to command" in done.stdout + done.stderr
    assert _traces(fresh) == []
    assert not Path("/proc", fresh.path("running").read_text()).exists()


@pytest.mark.nsys
def test_config_to_report_for_real(real: Path, tmp_path: Path) -> None:
    """Begins with what was measured for the test of nsys: measuring knows nothing of tracers."""
    for name in ("results/latency", ".snakemake"):
        shutil.copytree(real / name, tmp_path / name)
    shutil.copy2(real / "results/preflight.json", tmp_path / "results")
    config = (*GRAPH, "profiler=torch")
    done = run_real(tmp_path, config=config, LAUNCHGAP_NSYS=NO_NSYS)
    assert done.returncode == 0, done.stderr
    assert "measure" not in done.stderr.partition("Job stats:")[2].partition("total")[0]
    with (tmp_path / f"results/tables/{CASE}/requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["strategy"], row["trace_mode"]) for row in rows] == [("graph", "node")] * 2
    assert all(float(row["range_us"]) > 0 for row in rows)
    assert all(row["kernels"] == row["launches"] == "" for row in rows)
    traces = json.loads((tmp_path / "results/report.json").read_text())["cases"][0]["traces"]
    assert {(one["tracer"], one["status"], one["nsys_version"]) for one in traces} == {
        ("torch", "no gpu", None)
    }
    markdown = (tmp_path / "results/report.md").read_text()
    assert "recorded by torch.profiler, not by nsys" in markdown
    assert "no launches and no GPU work to count" in markdown
    trace = read_chrome_trace(tmp_path / f"profiles/torch/{CASE}/graph.node.json.gz")
    assert (trace.ranges["name"] == "request").sum() == 2
