"""A small project: the real Snakefile, rules, nsight library and nsys; stand-ins for the slow programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from nsight.processes import MARK_VARIABLE
from tests.pipeline.loaded import Snakemake
from tests.security.listening import ListeningWatch

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).with_name("standin")
CASE = "bert-tiny-float32-p50-m128"
NO_NSYS = "/absent/nsys"
SMALL = ("strategies=[eager, graph]", "traced_strategies=[eager, graph]")

GRAPH = ("traced_strategies=[graph]",)
REAL = ("runs=3", "warmup_s=0", "weights=random", "strategies=[eager, graph]", "traced_requests=2")


PLANTED = {
    name: f"planted-{name.lower()}-7f3c"
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "NVIDIA_API_KEY", "WANDB_API_KEY")
}
"""Secrets that the real pipeline runs with. The third has a prefix that programs on a GPU need."""

MIN_LOOKS = 30


def _finish(process: subprocess.Popen[str] | Snakemake, timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@dataclass(frozen=True)
class Project:
    """A project folder and how to run Snakemake in it."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name

    def traces(self) -> Path:
        return self.path(f"profiles/nsys/{CASE}")

    def trace_files(self) -> list[str]:
        return sorted(path.name for path in self.traces().iterdir() if not path.name.endswith(".lock"))

    def report(self) -> dict[str, object]:
        content = json.loads(self.path("results/report.json").read_text())
        assert isinstance(content, dict)
        return content

    def copy(self, folder: Path) -> Project:
        """The same project once more, for a test to change."""
        return Project(Path(shutil.copytree(self.folder, folder)))

    def set_sweep(self, lengths: Sequence[int], **more: object) -> None:
        """Have `mine.yaml` ask for bert-tiny at these prompt lengths, and for what else a sweep has."""
        lists = {
            "models": ["bert-tiny"],
            "dtypes": ["float32"],
            "prompt_lengths": [*lengths],
            "max_lengths": [64],
        }
        self.path("mine.yaml").write_text(yaml.safe_dump({"cases": [], "sweep": lists | more}))

    def start(self, *arguments: str, config: tuple[str, ...] = SMALL, **environ: str) -> Snakemake:
        words = [*(arguments or ("--cores", "1")), *(["--config", *config] if config else [])]
        return Snakemake(words, self.folder, {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environ})

    def run(
        self, *arguments: str, config: tuple[str, ...] = SMALL, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return _finish(self.start(*arguments, config=config, **environ), 120)

    def rules_to_run(self, *arguments: str, config: tuple[str, ...] = SMALL, **environ: str) -> set[str]:
        """Names of the rules that a run would run, itself and its targets left out."""
        done = self.run(*(arguments or ("all",)), "--cores", "1", "--dry-run", config=config, **environ)
        assert done.returncode == 0, done.stderr
        if "Nothing to be done" in done.stdout + done.stderr:
            return set()
        table = done.stdout.partition("Job stats:")[2].partition("total")[0]
        names = {line.split()[0] for line in table.splitlines()[3:] if line.strip()}
        return names - {"all", "reference"}

    def rest(self) -> None:
        """Forget the signs of life that the stand-ins leave, and how they were told to behave."""
        for name in ("misbehave", "running", "unmeasurable"):
            self.path(name).unlink(missing_ok=True)


def make_project(folder: Path) -> Project:
    ignored = shutil.ignore_patterns("__pycache__", "reference")
    for name in ("contract", "rules", "config", "envs", "profiles/default", "nsight"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("inference", "analysis", "scripts", "profiles/nsys"):
        (folder / name).mkdir()
    for name in ("Snakefile", "commandline.py"):
        shutil.copy2(ROOT / name, folder / name)
    for name in ("__init__.py", "_arguments.py", "_cli.py", "on_gpu.py", "preflight.py", "capture_trace.py"):
        shutil.copy2(ROOT / "scripts" / name, folder / "scripts" / name)
    for path in STAND_INS.glob("*.py"):
        shutil.copy2(path, folder / "scripts" / path.name)
    shutil.copy2(STAND_INS / "run_graph.py", folder / "scripts/run_baseline.py")
    return Project(folder)


@pytest.fixture(scope="session")
def finished_master(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose pipeline ran to the end once, in a folder whose name must be quoted everywhere.

    Made once a session, however many folders of tests ask for it.
    """
    folder = tmp_path_factory.getbasetemp() / "pipeline" / "it's 50% dönё; $HOME"
    if not folder.exists():
        done = make_project(folder).run()
        assert done.returncode == 0, done.stderr
    return Project(folder)


def start_real(
    folder: Path, *arguments: str, config: tuple[str, ...] = (), **environ: str
) -> subprocess.Popen[str]:
    """Start the project's own Snakefile and programs, with results in `folder`: nothing is a stand-in."""
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    return subprocess.Popen(
        [*snakemake, *arguments, "--config", *REAL, *config],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_real(
    folder: Path, *arguments: str, config: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run what `start_real` starts to its end."""
    return _finish(start_real(folder, *arguments, config=config, **environ), 280)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the real pipeline ran from configuration to report once, traced by nsys.

    It ran with secrets in its environment, and what it listened on stands beside the folder.
    """
    folder = tmp_path_factory.getbasetemp() / "real" / "run"
    if not folder.exists():
        folder.mkdir(parents=True)
        tokens = [f"{name}={value}" for name, value in PLANTED.items()]
        with ListeningWatch(*tokens, f"{MARK_VARIABLE}={folder}") as watch:
            done = run_real(folder, config=GRAPH, **PLANTED)
        assert done.returncode == 0, done.stderr
        assert watch.looks > MIN_LOOKS
        (folder.parent / "listening").write_text("\n".join(sorted(watch.found)))
    return folder


@pytest.fixture
def finished(finished_master: Project, tmp_path: Path) -> Project:
    """A copy of the finished project, for a test to change."""
    folder = tmp_path / finished_master.folder.name
    shutil.copytree(finished_master.folder, folder)
    return Project(folder)


@pytest.fixture(scope="session")
def without_nsys_master(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose pipeline ran to the end once on a host that has neither nsys nor a GPU."""
    project = make_project(tmp_path_factory.mktemp("without nsys") / "project")
    done = project.run(LAUNCHGAP_NSYS=NO_NSYS)
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def without_nsys(without_nsys_master: Project, tmp_path: Path) -> Project:
    """A copy of it, for a test to change."""
    return without_nsys_master.copy(tmp_path / "project")


@pytest.fixture
def fresh(tmp_path: Path) -> Project:
    """A project in which nothing ran yet."""
    return make_project(tmp_path / "project")


@pytest.fixture
def nothing_left() -> Callable[[Project], list[str]]:
    """Command lines of processes that a project's captures left running."""

    def left(project: Project) -> list[str]:
        mark = f"LAUNCHGAP_CAPTURE={project.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found

    return left


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"still waiting: {what}"
        time.sleep(0.05)
