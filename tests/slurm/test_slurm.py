"""The pipeline on a real Slurm of one node, from configuration to report; a time limit kills one job.

Real Slurm, Snakemake and nsys. The GPU is a stand-in, so the device is the simulation, and so are the slow
programs, which know nothing of Slurm.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pipeline.conftest import CASE, GRAPH, REAL, ROOT, make_project, wait_for
from tests.slurm.node import SlurmNode

pytestmark = [pytest.mark.slurm, pytest.mark.nsys, pytest.mark.timeout(900)]

TRACES = ["graph.node.json", "graph.node.nsys-rep", "graph.node.sqlite"]
ON_A_GPU = {"preflight", "measure", "capture"}
REQUESTS = {
    # rule: (time limit, memory, cores), as profiles/slurm says
    "preflight": ("00:30:00", "8000M", "2"),
    "measure": ("02:00:00", "32000M", "8"),
    "capture": ("01:00:00", "32000M", "8"),
    "analyse": ("00:30:00", "16000M", "1"),
    "report": ("00:30:00", "8000M", "2"),
}


@dataclass(frozen=True)
class History:
    """What happened: a run whose capture hung until its time limit killed it, and the run after it."""

    folder: Path
    first: subprocess.CompletedProcess[str]
    kept: dict[Path, int]
    traces_after_first: list[str]
    left_after_first: list[int]
    program_environ: dict[str, str]
    second: subprocess.CompletedProcess[str]
    jobs: list[dict[str, str]]


@pytest.fixture(scope="module")
def node() -> Iterator[SlurmNode]:
    with SlurmNode() as started:
        yield started


@pytest.fixture(scope="module")
def history(node: SlurmNode, tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = make_project(tmp_path_factory.mktemp("slurm") / "on a cluster").folder
    (folder / "misbehave").write_text("hang")
    process = start(node, folder)
    try:
        wait_for(
            lambda: bool(traced_programs(folder)) or process.poll() is not None, "the traced program", 300
        )
        assert process.poll() is None, finish(process).stdout
        (program,) = traced_programs(folder)
        environ = environ_of(program)
        (job,) = [each for each in node.jobs() if rule_of(each) == "capture"]
        # Slurm counts limits in whole minutes; so that nobody waits for one, this job's ends now.
        node.run("scontrol", "update", f"JobId={job['JobId']}", "EndTime=now")
        first = finish(process)
    finally:
        process.kill()
    (folder / "misbehave").unlink()
    traces = folder / f"profiles/nsys/{CASE}"
    kept = {path: path.stat().st_mtime_ns for path in (folder / "results/latency").rglob("*.*")}
    after_first = kept, trace_files(traces), captures(folder)
    second = finish(start(node, folder))
    return History(folder, first, *after_first, environ, second, node.jobs())


def start(node: SlurmNode, folder: Path) -> subprocess.Popen[str]:
    # Without accounting squeue is the one to ask; this one answers as soon as there is news.
    slurm = ["--slurm-status-command=squeue", "--slurm-init-seconds-before-status-checks=1"]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "snakemake"),
            *("--workflow-profile", str(ROOT / "profiles/slurm"), *slurm),
            *("--config", "device=cpu", *REAL, *GRAPH),
        ],
        cwd=folder,
        env={**node.environ, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, _ = process.communicate(timeout=400)
    return subprocess.CompletedProcess(process.args, process.returncode, out)


def captures(folder: Path) -> list[int]:
    """Process ids of what a folder's captures run."""
    mark = os.fsencode(f"LAUNCHGAP_CAPTURE={folder}")
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if mark in read(pid, "environ")]


def traced_programs(folder: Path) -> list[int]:
    wanted = [b"-m", b"scripts.run_graph"]
    return [pid for pid in captures(folder) if read(pid, "cmdline").split(b"\0")[1:3] == wanted]


def environ_of(pid: int) -> dict[str, str]:
    words = os.fsdecode(read(pid, "environ")).split("\0")
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def trace_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[!.]*") if not path.name.endswith(".lock"))


def rule_of(job: dict[str, str]) -> str:
    """Rule of a job; the plugin says it in the job's comment."""
    return job["Comment"].removeprefix("rule_").partition("_wildcards_")[0]


def test_a_time_limit_is_told_and_leaves_nothing_half_made(history: History) -> None:
    assert history.first.returncode == 1, history.first.stdout
    assert "SLURM status is: 'TIMEOUT'" in history.first.stdout
    assert history.traces_after_first == []
    assert history.left_after_first == []


def test_the_next_run_goes_on_to_the_report_and_measures_nothing_again(history: History) -> None:
    assert history.second.returncode == 0, history.second.stdout
    assert "stand-in report" in (history.folder / "results/report.html").read_text()
    assert trace_files(history.folder / f"profiles/nsys/{CASE}") == TRACES
    assert history.kept
    assert history.kept == {path: path.stat().st_mtime_ns for path in history.kept}
    states = [(rule_of(job), job["JobState"]) for job in history.jobs]
    assert states == [
        ("preflight", "COMPLETED"),
        ("measure", "COMPLETED"),
        ("capture", "TIMEOUT"),
        ("capture", "COMPLETED"),
        ("analyse", "COMPLETED"),
        ("report", "COMPLETED"),
    ]


def test_each_job_asks_for_what_the_profile_says(history: History) -> None:
    finished = {rule_of(job): job for job in history.jobs if job["JobState"] == "COMPLETED"}
    asked = {
        rule: (job["TimeLimit"], job["MinMemoryNode"], job["CPUs/Task"]) for rule, job in finished.items()
    }
    assert asked == REQUESTS
    assert {job["Partition"] for job in history.jobs} == {"gpu"}
    on_a_gpu = {rule for rule, job in finished.items() if job.get("TresPerJob") == "gres:gpu:1"}
    assert on_a_gpu == ON_A_GPU


def test_slurm_hands_the_gpu_to_the_traced_program(history: History) -> None:
    assert history.program_environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_what_slurm_said_of_the_killed_job_is_kept(history: History) -> None:
    (log,) = (history.folder / "logs/slurm").rglob("*.log")
    assert log.parent.parent.name == "rule_capture"
    assert "DUE TO TIME LIMIT" in log.read_text()


def test_the_gpu_is_one_jobs_at_a_time(node: SlurmNode) -> None:
    holder = submit(node, "--gpus=1", "--wrap=sleep 60")
    wait_for(lambda: shown(node, holder) == "RUNNING None", "the first job to run")
    beside = submit(node, "--wrap=true")
    wait_for(lambda: shown(node, beside) == "COMPLETED None", "a job without a GPU to run beside it")
    second = submit(node, "--gpus=1", "--wrap=true")
    wait_for(
        lambda: shown(node, second) == "PENDING Resources", "the next job to be made to wait for the GPU"
    )
    node.run("scancel", holder)
    wait_for(lambda: shown(node, second) == "COMPLETED None", "the next job to get the GPU")


def submit(node: SlurmNode, *options: str) -> str:
    return node.run("sbatch", "--parsable", "--mem=100", "--output=/dev/null", *options).strip()


def shown(node: SlurmNode, job: str) -> str:
    """State of a job and why it waits."""
    return node.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T %r").strip()


def test_a_stopped_node_leaves_no_process_and_no_file() -> None:
    with SlurmNode() as node:
        submit(node, "--wrap=sleep 300")
        wait_for(lambda: "RUNNING" in node.run("squeue", "--noheader", "--format=%T"), "the job to run")
    assert node.leftovers() == []
    assert not node.folder.exists()
