"""Jobs on several GPUs by real Snakemake. nvidia-smi and the benchmark are stand-ins: no GPU is needed."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from nsight.lease import LOCKS_VARIABLE
from tests.pipeline.conftest import Project, make_project

GPUS = ("GPU-aaaa", "GPU-bbbb")
CONFIG = ("strategies=[eager]", "traced_strategies=[]", "profiler=off", "device=cuda")

PREFLIGHT = '''"""Stands in for the preflight: says that there is a GPU and no tracer."""
import json, sys
record = {"schema_version": 1, "kind": "preflight", "device": "cuda", "can_trace": False, "tracer": None,
          "nsys_path": None, "nsys_version": None, "nvtx_version": None, "findings": []}
open(sys.argv[sys.argv.index("--output") + 1], "w").write(json.dumps(record))
'''


@pytest.fixture
def host(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A host with two GPUs, by a stand-in for nvidia-smi: its folder and the environment of its programs."""
    smi = tmp_path / "bin/nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(GPUS) + "\n")
    smi.chmod(0o755)
    path = f"{smi.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return tmp_path, {"PATH": path, LOCKS_VARIABLE: str(tmp_path / "locks")}


def _project(folder: Path, lengths: list[int]) -> Project:
    project = make_project(folder)
    project.path("scripts/preflight.py").write_text(PREFLIGHT)
    sweep = {"models": ["bert-tiny"], "dtypes": ["float32"], "prompt_lengths": lengths, "max_lengths": [64]}
    project.path("mine.yaml").write_text(yaml.safe_dump({"cases": [], "sweep": sweep}))
    return project


def _clock(*projects: Project) -> list[tuple[float, float, str]]:
    """Begin, end and GPU of each run of the benchmark, in the order of their begin."""
    lines = [line.split() for project in projects for line in project.path("clock").read_text().splitlines()]
    return sorted((float(begin), float(end), gpu) for begin, end, gpu in lines)


def _assert_never_shared(clock: list[tuple[float, float, str]]) -> None:
    for index, (_, end, gpu) in enumerate(clock):
        assert all(other != gpu or begin >= end for begin, _, other in clock[index + 1 :])


def test_two_pipelines_on_two_gpus_never_share_one(host: tuple[Path, dict[str, str]]) -> None:
    folder, environ = host
    projects = [
        _project(folder / name, lengths) for name, lengths in (("one", [8, 16, 24]), ("two", [32, 40]))
    ]
    arguments = ("--cores", "2", "--resources", "gpu=2", "--configfile", "mine.yaml")
    started = [
        # A variable that is not there cannot be given: an empty one would hide all GPUs.
        project.start(*arguments, config=CONFIG, CUDA_VISIBLE_DEVICES="0,1", **environ)
        for project in projects
    ]
    for process in started:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    clock = _clock(*projects)
    assert len(clock) == 5
    assert {gpu for _, _, gpu in clock} == {"0", "1"}
    _assert_never_shared(clock)
    overlaps = [(a, b) for a, b in pairwise(clock) if b[0] < a[1]]
    assert overlaps, "no two GPUs were ever used side by side"


def test_a_gpu_that_was_given_is_the_only_one_used(host: tuple[Path, dict[str, str]]) -> None:
    folder, environ = host
    project = _project(folder / "one", [8, 16])
    arguments = ("--cores", "2", "--resources", "gpu=2", "--configfile", "mine.yaml")
    done = project.run(*arguments, config=CONFIG, CUDA_VISIBLE_DEVICES=GPUS[1], **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launchgap: --resources gpu=2: 1 can be used here, so jobs wait for each other" in done.stderr
    assert [gpu for _, _, gpu in _clock(project)] == [GPUS[1]] * 2
    _assert_never_shared(_clock(project))
    assert "waiting: other programs of launchgap use all GPUs (GPU-bbbb)" in _logs(project)


def _logs(project: Project) -> str:
    return "".join(path.read_text() for path in project.path("logs/measure").iterdir())
