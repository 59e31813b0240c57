"""Folders, locales and homes as users have them: the pipeline runs, or says in one line what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.normalised import normalised
from tests.in_process import ROOT
from tests.pipeline.conftest import SMALL, Project, make_project, wait_for

TRACE = ROOT / "tests/data/traces/h200-gpt2-fp32-graph-trace-node.sqlite.gz"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale without UTF-8, and a Python that takes it at its word."""

QUICK = ("--device=cpu", "--runs=1", "--warmup-s=0", "--prompt-length=8", "--max-length=16")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """In the block nothing in the folder can be written, by root neither; else by nobody but root."""
    bound = (
        subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode == 0
    )
    if bound:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    paths = [] if bound else [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in paths:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(0o755)
        if bound:
            subprocess.run(["umount", "--lazy", folder], check=True)


def _pipeline(checkout: Path, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(checkout / "Snakefile"), "--cores", "1"]
    return subprocess.run(
        [*command, "--config", *SMALL],
        cwd=folder,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.mark.nsys
def test_everything_odd_at_once(finished_master: Project, tmp_path: Path) -> None:
    """A read-only checkout, results elsewhere, names of many letters, a locale of few, and no home."""
    checkout = make_project(tmp_path / "a 'checkout' & \"½\" é").folder
    folder = tmp_path / 'résults "here"; $(touch pwned)'
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if name not in ("HOME", "LANG")}
    with read_only(checkout):
        done = _pipeline(checkout, folder, environ | ASCII | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr
    assert normalised(folder / "results") == normalised(finished_master.path("results"))
    assert list(tmp_path.rglob("pwned")) == []


def test_a_folder_that_is_read_only_is_one_line(fresh: Project) -> None:
    (fresh.folder / ".snakemake").mkdir()
    with read_only(fresh.folder):
        done = fresh.run()
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "error: results: cannot be written (no permission); give a writable folder" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "analysis", str(TRACE), "--range", "forward"),
        (
            "scripts/cuda_graph_benchmark.py",
            "--model=bert-tiny",
            "--weights=random",
            "--strategies=eager",
            *QUICK,
        ),
    ],
    ids=["analysis", "benchmark"],
)
def test_commands_in_a_locale_without_utf8_and_without_a_home(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    output = [f"--output-dir={tmp_path / 'é'}"] if command[0].endswith("benchmark.py") else []
    environ = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", **ASCII}
    done = subprocess.run(
        [sys.executable, *command, *output],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "é/latency.json").exists() or not output


@pytest.mark.parametrize("locale", [ASCII, {"LC_ALL": "C.UTF-8"}], ids=["ascii", "utf-8"])
def test_letters_that_cannot_be_printed(locale: dict[str, str]) -> None:
    """A letter that the locale has not, and the name of a file in no encoding at all."""
    program = r"""
import os, sys
from commandline import run_command
from contract import LaunchgapError
print_all = lambda: print("11 \u00b5s", os.fsdecode(b"f\xffile \xc3\xa9"))
def refuse():
    raise LaunchgapError("11 \u00b5s \udcff; mend it")
sys.exit(run_command(print_all) or run_command(refuse))
"""
    environ = {"PATH": os.environ["PATH"], **locale}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 2, done.stderr
    micro = b"?" if locale is ASCII else "µ".encode()
    assert done.stdout == b"11 " + micro + b"s f\xffile \xc3\xa9\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"error: 11 ")
    assert line.endswith(b"; mend it")


@pytest.mark.nsys
def test_two_pipelines_in_one_folder(finished: Project, finished_master: Project) -> None:
    for path in finished.traces().glob("graph.node.*"):
        path.unlink()
    finished.rest()
    finished.path("misbehave").write_text("hang")
    first = finished.start()
    running = finished.path("running")
    wait_for(lambda: running.exists() and bool(running.read_text()), "the first to be in the middle")
    second = finished.run()
    assert second.returncode != 0
    assert "Directory cannot be locked" in second.stderr
    assert "make sure that no other Snakemake process" in second.stderr
    assert "It can be removed with the --unlock argument" in second.stderr
    os.killpg(first.pid, signal.SIGTERM)
    first.communicate(timeout=60)
    finished.rest()
    assert finished.run().returncode == 0  # a SIGTERM leaves no lock
    assert normalised(finished.path("results")) == normalised(finished_master.path("results"))


def test_what_is_compared_would_be_seen(tmp_path: Path) -> None:
    """The comparison leaves out times, not work: another count, case or file is another result."""
    path = tmp_path / "results/requests.csv"
    path.parent.mkdir()
    seen = []
    for text in ("strategy,kernels,range_us\neager,231,5.5\n", "strategy,kernels,range_us\neager,231,6.0\n"):
        path.write_text(text)
        seen.append(normalised(tmp_path))
    path.write_text("strategy,kernels,range_us\neager,230,5.5\n")
    assert seen[0] == seen[1] != normalised(tmp_path)
    (tmp_path / "results/more.csv").write_text("")
    assert len(normalised(tmp_path)) == 2
