"""A sweep by real Snakemake: its plan, a case that fails, one that is added. Stand-ins for slow programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pipeline.conftest import Project, make_project

LENGTHS = (16, 32, 64)
NAMES = [f"bert-tiny-float32-p{length}-m64" for length in LENGTHS]
ARGUMENTS = ("--cores", "2", "--configfile", "mine.yaml")
EAGER = ("strategies=[eager]", "traced_strategies=[eager]")
OFF = (*EAGER, "profiler=off")


def _plan(told: str) -> list[str]:
    return [line.removeprefix("launchgap: ") for line in told.splitlines() if line.startswith("launchgap: ")][
        1:
    ]


def _jobs(told: str) -> list[str]:
    """What a dry run would do, by the first two words of each job's message."""
    lines = [
        line.partition(": ")[2] for line in told.splitlines() if line.startswith("Job ") and ": " in line
    ]
    return sorted({" ".join(line.split()[:2]) for line in lines})


@pytest.fixture(scope="module")
def failed_master(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A sweep of three cases, traced, of which the first to be measured of all could not be."""
    project = make_project(tmp_path_factory.mktemp("sweep") / "project")
    project.set_sweep(LENGTHS)
    project.path("too-long").write_text("32")
    done = project.run(*ARGUMENTS, config=EAGER)
    assert done.returncode == 1
    project.path("told").write_text(done.stderr)
    return project


@pytest.fixture
def failed(failed_master: Project, tmp_path: Path) -> Project:
    """A copy of it, for a test to change."""
    return failed_master.copy(tmp_path / "project")


@pytest.mark.nsys
def test_a_case_that_cannot_be_measured_leaves_the_others_whole(failed_master: Project) -> None:
    told = failed_master.path("told").read_text()
    reason = "a prompt of 32 tokens is too long; shorten it"
    log = f"logs/measure/{NAMES[1]}.log"
    assert f"launchgap: failed: {NAMES[1]}: measuring: {reason} ({log})" in told
    assert "launchgap: 1 of 3 cases failed; results/report.html shows the others and says so" in told
    report = failed_master.report()
    assert report["latency"] == [NAMES[0], NAMES[2]]
    assert sorted(report["tables"]) == [NAMES[0], NAMES[2]]  # type: ignore[call-overload]
    assert report["failures"] == {NAMES[1]: {"step": "measuring", "reason": reason, "log": log}}
    assert not failed_master.path(f"results/latency/{NAMES[1]}/latency.json").exists()


@pytest.mark.nsys
def test_the_next_call_tries_only_what_failed(failed: Project) -> None:
    failed.rest()
    failed.path("too-long").unlink()
    told = failed.run(*ARGUMENTS, "--dry-run", config=EAGER)
    assert [line.split()[0] for line in _plan(told.stderr)] == ["plan:", NAMES[1], "times"]
    assert _jobs(told.stdout) == [f"Measuring {NAMES[1]}", "Writing results/report.html"]
    before = failed.path(f"results/latency/{NAMES[0]}/latency.json").stat().st_mtime_ns
    done = failed.run(*ARGUMENTS, config=EAGER)
    assert done.returncode == 0, done.stderr
    assert failed.report()["latency"] == NAMES
    assert failed.report()["failures"] == {}
    assert not failed.path("results/failures.json").exists()
    assert failed.path(f"results/latency/{NAMES[0]}/latency.json").stat().st_mtime_ns == before


@pytest.mark.nsys
def test_without_the_case_that_failed_the_report_is_made_again(failed: Project) -> None:
    failed.set_sweep((16, 64))
    assert failed.rules_to_run(*ARGUMENTS[2:], config=EAGER) == {"report"}


@pytest.mark.nsys
def test_a_trace_that_fails_is_said_of_its_case_alone(failed: Project) -> None:
    failed.set_sweep((16, 64))
    for name in ("eager.node.json", "eager.node.sqlite", "eager.node.nsys-rep"):
        failed.path(f"profiles/nsys/{NAMES[2]}/{name}").unlink()
    failed.path("misbehave").write_text("fail")
    done = failed.run(*ARGUMENTS, config=EAGER)
    assert done.returncode == 1
    (name, failure), *others = json.loads(failed.path("results/failures.json").read_text())["cases"].items()
    assert (name, others) == (NAMES[2], [])
    assert failure["step"] == "tracing eager (node mode)"
    assert failure["reason"].startswith("traced program: exit code 1, 'the device ran out of patience'")


@pytest.fixture(scope="module")
def whole_master(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A sweep of three cases, measured but not traced."""
    project = make_project(tmp_path_factory.mktemp("whole") / "project")
    project.set_sweep(LENGTHS)
    done = project.run(*ARGUMENTS, "--verbose", config=OFF)
    assert done.returncode == 0, done.stderr
    project.path("told").write_text(done.stdout + done.stderr)
    return project


@pytest.fixture
def whole(whole_master: Project, tmp_path: Path) -> Project:
    """A copy of it, for a test to change."""
    return whole_master.copy(tmp_path / "project")


def test_snakemake_does_nothing_while_a_case_is_measured(whole_master: Project) -> None:
    """It looks through its jobs once for each that ended, and not every second more often than the last."""
    told = whole_master.path("told").read_text()
    jobs = ["preflight", *NAMES, "report", "all"]
    assert 0 < told.count("Ready jobs: ") <= len(jobs) + 1


def test_a_case_that_is_added_runs_alone(whole: Project) -> None:
    measured = {name: whole.path(f"results/latency/{name}/latency.json") for name in NAMES}
    before = {name: path.stat().st_mtime_ns for name, path in measured.items()}
    whole.set_sweep((*LENGTHS, 48))
    added = "bert-tiny-float32-p48-m64"
    told = whole.run(*ARGUMENTS, "--dry-run", config=OFF)
    head, line, source = _plan(told.stderr)
    assert head.startswith("plan: 1 of 4 cases have something to run, 3 steps, about ")
    assert line.split()[:2] == [added, "measure"]
    assert (
        source == "times are of earlier runs in this folder: 1 of the same steps, the others of steps alike"
    )
    done = whole.run(*ARGUMENTS, config=OFF)
    assert done.returncode == 0, done.stderr
    assert {name: path.stat().st_mtime_ns for name, path in measured.items()} == before
    assert whole.report()["latency"] == sorted([*NAMES, added])


def test_settings_of_one_case_measure_it_alone_anew(whole: Project) -> None:
    whole.set_sweep(LENGTHS, overrides=[{"where": {"prompt_length": 32}, "runs": 7}])
    told = whole.run(*ARGUMENTS, "--dry-run", "--printshellcmds", config=OFF)
    assert _jobs(told.stdout) == [f"Measuring {NAMES[1]}", "Writing results/report.html"]
    assert " --runs 7 " in told.stdout


def test_a_bad_sweep_is_one_line(fresh: Project) -> None:
    fresh.set_sweep(LENGTHS, exclude=[{"model": "gpt2"}])
    done = fresh.run(*ARGUMENTS)
    assert done.returncode == 2
    errors = [
        line for line in done.stderr.splitlines() if not line.startswith(("Using workflow", "Config file"))
    ]
    assert [line for line in errors if not line.startswith("launchgap: no GPU")] == [
        "error: config: sweep.exclude[0]: no case has model: gpt2; mend it or remove it"
    ]
