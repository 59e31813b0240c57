"""A sweep that is stopped half-way, by real Snakemake: what is whole, the report of it, how it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from rules.order import before_all, priority
from rules.unfinished import unfinished
from tests.pipeline.conftest import Project, make_project, wait_for

LENGTHS = (64, 16, 32)
NAMES = [f"bert-tiny-float32-p{length}-m64" for length in LENGTHS]
ARGUMENTS = ("--cores", "2", "--configfile", "mine.yaml")
EAGER = ("strategies=[eager]", "traced_strategies=[eager]")
STEPS = ("Measuring", "Tracing", "Counting")


def _order(told: str) -> list[tuple[str, str]]:
    """What was begun of which case, in that order."""
    lines = re.findall(r"^Job \d+: (\w+)\b.*?(bert-tiny[\w.-]+)", told, re.MULTILINE)
    return [(step, case) for step, case in lines if step in STEPS]


@pytest.fixture(scope="module")
def stopped_master(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A sweep of three cases, stopped by Ctrl-C while the second was traced."""
    project = make_project(tmp_path_factory.mktemp("stopped") / "project")
    project.set_sweep(LENGTHS)
    project.path("misbehave").write_text(f"hang {LENGTHS[1]}")
    process = project.start(*ARGUMENTS, config=EAGER)
    measured, running = project.path(f"results/latency/{NAMES[1]}/latency.json"), project.path("running")

    def hangs() -> bool:
        there = measured.exists() and running.exists()
        return there and running.stat().st_mtime_ns > measured.stat().st_mtime_ns

    try:
        wait_for(hangs, "the second case to be traced")
    finally:
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    project.path("told").write_text(out + err)
    project.rest()
    return project


@pytest.fixture
def stopped(stopped_master: Project, tmp_path: Path) -> Project:
    """A copy of it, for a test to change."""
    return stopped_master.copy(tmp_path / "project")


@pytest.mark.nsys
def test_a_case_is_finished_before_the_next_one_begins(stopped_master: Project) -> None:
    told = stopped_master.path("told").read_text()
    first, second = [(step, NAMES[0]) for step in STEPS], [(step, NAMES[1]) for step in STEPS[:2]]
    assert _order(told) == [*first, *second], told
    assert "launchgap: 1 of 3 cases are whole; for their report: snakemake so_far" in told
    assert not stopped_master.path("results/report.json").exists()


@pytest.mark.nsys
def test_the_report_so_far_runs_nothing_and_the_rest_is_then_done_as_promised(stopped: Project) -> None:
    before = sorted(map(str, stopped.path("results").rglob("*.json")))
    done = stopped.run("so_far", *ARGUMENTS, config=EAGER)
    assert done.returncode == 0, done.stderr
    report = stopped.report()
    assert report["latency"] == sorted(NAMES[:2])
    assert report["not_run"] == NAMES[1:]
    assert sorted(map(str, stopped.path("results").rglob("*.json"))) == sorted(
        [*before, str(stopped.path("results/report.json"))]
    )
    plan = stopped.run(*ARGUMENTS, "--dry-run", config=EAGER).stderr
    (promised,) = re.findall(r"cases have something to run, (\d+) steps", plan)
    done = stopped.run(*ARGUMENTS, config=EAGER)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert f"\n{promised} of {promised} steps (100%) done" in told
    assert _order(told) == [
        *((step, NAMES[1]) for step in STEPS[1:]),
        *((step, NAMES[2]) for step in STEPS),
    ]
    assert stopped.report()["not_run"] == []


def test_priorities_are_of_the_case_first_then_of_the_trace() -> None:
    traced = ["graph", "eager"]
    jobs = [
        before_all(NAMES),
        *(priority(NAMES, case, traced, trace) for case in NAMES for trace in traced),
        priority(NAMES, "asked-for-by-name"),
    ]
    assert jobs == sorted(set(jobs), reverse=True)
    assert priority(NAMES, NAMES[0], traced, "eager") > priority(NAMES, NAMES[1])


def test_what_makes_a_case_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    preflight, latency = tmp_path / "preflight.json", tmp_path / "latency.json"
    record = tmp_path / "traces.json"

    def still_to_run() -> bool:
        return unfinished("a", ["eager"], preflight, latency, record)

    def write(path: Path, **content: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schema_version": 1, "kind": path.stem, **content}))

    host = {"device": "cpu", "nsys_version": "2025.3.1"}
    write(preflight, can_trace=True, tracer="nsys", **host)
    assert still_to_run()  # not measured
    write(latency, strategies={"eager": {"status": "ok"}})
    assert still_to_run()  # not traced
    for suffix in (".sqlite", ".json"):
        write(Path(f"profiles/nsys/a/eager.node{suffix}"))
    assert still_to_run()  # not analysed
    write(record)
    assert not still_to_run()
    os.utime(record, (1, 1))
    assert still_to_run()  # analysed before it was traced
    write(preflight, can_trace=False, tracer=None, **host)
    assert not still_to_run()
    latency.write_text("{")
    assert still_to_run()
