"""Snakemake is killed while a stage runs: nothing goes on or stays half-made, a re-run gives the same."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.faults.normalised import normalised
from tests.pipeline.conftest import CASE, GRAPH, Project, run_real, start_real, wait_for

pytestmark = pytest.mark.nsys

MADE = {
    "preflight": ["results/preflight.json"],
    "cuda_graph_benchmark": [f"results/latency/{CASE}"],
    "analyse_traces": [f"results/tables/{CASE}"],
    "build_report": ["results/report.html", "results/report.md", "results/report.json"],
}


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _undo(project: Project, stage: str) -> None:
    for name in MADE[stage]:
        path = project.path(name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("stage", "number"),
    [*((stage, signal.SIGKILL) for stage in MADE), ("cuda_graph_benchmark", signal.SIGTERM)],
)
def test_killed_at_a_stage(
    finished: Project, finished_master: Project, stage: str, number: signal.Signals
) -> None:
    script = finished.path(f"scripts/{stage}.py")
    stamp = script.stat().st_mtime_ns
    script.rename(script.with_suffix(".real"))
    shutil.copy(Path(__file__).with_name("standin_killed.py"), script)
    os.utime(script, ns=(stamp, stamp))  # no edit that the run would have to follow
    finished.path("half").write_text(stage)
    finished.rest()
    _undo(finished, stage)
    process = finished.start()
    running = finished.path("running")
    wait_for(lambda: running.exists() and bool(running.read_text()), f"{stage} to run")
    child = int(running.read_text())
    if number is signal.SIGKILL:
        os.kill(process.pid, number)
    else:
        os.killpg(process.pid, number)
    process.communicate(timeout=60)
    wait_for(lambda: not _runs(child), f"{stage} to end with its Snakemake")
    finished.path("half").unlink()
    done = finished.run("--cores", "1", "--nolock")  # that a folder is unlocked is tested once
    assert done.returncode == 0, done.stderr
    assert normalised(finished.path("results")) == normalised(finished_master.path("results"))


def test_the_real_measurement_killed(real: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(real, tmp_path / "run"))
    shutil.rmtree(folder / "results/latency")
    process = start_real(folder, config=GRAPH)
    log = folder / f"logs/measure/{CASE}.log"
    log.unlink()
    wait_for(lambda: log.exists() and "random weights" in log.read_text(), "the measurement")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert not list(folder.glob("results/latency/*/latency.json"))
    done = run_real(folder, "--nolock", config=GRAPH)
    assert done.returncode == 0, done.stderr
    assert normalised(folder / "results") == normalised(real / "results")
