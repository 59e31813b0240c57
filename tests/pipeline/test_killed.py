"""A capture that was killed half-way is redone and never taken for done. Real Snakemake, real nsys."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.conftest import CASE, Project, wait_for
from tests.pipeline.loaded import Snakemake

pytestmark = pytest.mark.nsys

Left = Callable[[Project], list[str]]
TARGETS = [f"profiles/nsys/{CASE}/{name}.node.json" for name in ("eager", "graph")]
OTHERS = ["eager.node.json", "eager.node.nsys-rep", "eager.node.sqlite"]
BOTH = [*OTHERS, "graph.node.json", "graph.node.nsys-rep", "graph.node.sqlite"]


@pytest.fixture
def hanging(finished: Project) -> Snakemake:
    """Snakemake in the middle of a capture that would take ten minutes."""
    for path in finished.traces().glob("graph.node.*"):
        path.unlink()
    return _start_hanging(finished)


def _start_hanging(project: Project) -> Snakemake:
    project.rest()
    project.path("misbehave").write_text("hang")
    process = project.start(*TARGETS, "--cores", "1")
    _wait_for_program(project)
    return process


def _wait_for_program(project: Project) -> int:
    """Process id of the traced program, once it runs."""
    running = project.path("running")
    wait_for(lambda: running.exists() and bool(running.read_text()), "the traced program to run")
    return int(running.read_text())


def _end(process: Snakemake) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0
    return out + err


def _assert_redone(project: Project, left: Left) -> None:
    wait_for(lambda: not left(project), "all processes of the capture to end")
    project.rest()
    done = project.run(*TARGETS, "--cores", "1", "--nolock")  # that a folder is unlocked is tested once
    assert done.returncode == 0, done.stderr
    assert project.trace_files() == BOTH


def _nsys_of(project: Project) -> int:
    """Process id of the `nsys profile` of this project's capture."""
    folder = os.fsencode(str(project.folder).replace("%", "%%"))
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if words[1:2] == [b"profile"] and any(folder in word for word in words):
            return int(entry.name)
    raise AssertionError("no nsys runs")


def test_snakemake_killed(finished: Project, hanging: Snakemake, nothing_left: Left) -> None:
    os.kill(hanging.pid, signal.SIGKILL)
    wait_for(lambda: not nothing_left(finished), "the orphaned capture to end by itself")
    wait_for(lambda: finished.trace_files() == OTHERS, "the capture's folder to be removed")
    hanging.communicate(timeout=60)
    _assert_redone(finished, nothing_left)


def test_group_terminated(finished: Project, hanging: Snakemake, nothing_left: Left) -> None:
    os.killpg(hanging.pid, signal.SIGTERM)
    _end(hanging)
    wait_for(lambda: finished.trace_files() == OTHERS, "the capture's folder to be removed")
    _assert_redone(finished, nothing_left)


def test_whole_group_killed(finished: Project, hanging: Snakemake, nothing_left: Left) -> None:
    os.killpg(hanging.pid, signal.SIGKILL)
    hanging.communicate(timeout=60)
    # Nobody was left to clean up: nsys, in a session of its own, still runs, and its folder is there.
    assert nothing_left(finished)
    assert [name for name in finished.trace_files() if name.startswith(".graph.node.capture-")]
    assert finished.run("--unlock").returncode == 0
    finished.rest()
    done = finished.run(*TARGETS, "--cores", "1")
    assert done.returncode == 0, done.stderr
    assert nothing_left(finished) == []
    assert finished.trace_files() == BOTH


def test_nsys_killed_then_program_killed(finished: Project, nothing_left: Left) -> None:
    for path in finished.traces().iterdir():
        path.unlink()
    process = _start_hanging(finished)
    first = _wait_for_program(finished)
    os.kill(_nsys_of(finished), signal.SIGKILL)
    wait_for(
        lambda: finished.path("running").read_text() not in ("", str(first)), "the next capture's program"
    )
    os.kill(_wait_for_program(finished), signal.SIGKILL)
    told = _end(process)
    assert "error: nsys profile: exit code 137 (SIGKILL)" in told
    assert "error: traced program: exit code 137 (SIGKILL)" in told
    assert finished.trace_files() == []
    _assert_redone(finished, nothing_left)
