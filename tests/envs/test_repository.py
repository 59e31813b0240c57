"""What is committed stands alone: no generated files, no path that exists on one machine only."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE_PATH = re.compile(
    rb"(?<![\w.])/(?:root|(?:home|Users|mnt|data|work|scratch)/(?!user\b|some(?:one|body)\b)\w+)/[\w.-]+"
)
GENERATED = {".venv", ".git", ".snakemake", ".mypy_cache", "results", "logs", "nsys"}


def git(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def committed_files() -> list[Path]:
    """Files that are committed or would be by `git add .`; without git, all not generated."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not GENERATED & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_path_of_one_machine() -> None:
    found = {
        str(path.relative_to(ROOT)): match.group().decode()
        for path in committed_files()
        if (match := MACHINE_PATH.search(path.read_bytes()))
    }
    assert not found


@pytest.mark.parametrize("home", ["home/anna", "root", "work/anna", "Users/anna"])
def test_a_path_of_one_machine_is_recognised(home: str) -> None:
    assert MACHINE_PATH.search(f"see '/{home}/launchgap/x.py'".encode())


@pytest.mark.parametrize(
    "line", [b"/home/user/project/x", b"docs/work/anna/x", b"/opt/nvidia/x", b"/tmp/x/y"]
)
def test_other_paths_pass(line: bytes) -> None:
    assert not MACHINE_PATH.search(line)


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("results/report.html", True),
        ("logs/report.log", True),
        ("profiles/nsys/case/eager.node.sqlite", True),
        ("profiles/nsys/.gitkeep", False),
        ("eager.nsys-rep", True),
        (".venv/bin/python", True),
        (".snakemake/log", True),
        ("profiles/reference/case/graph.node.sqlite.gz", False),
        ("profiles/reference/case/graph.node.json", False),
        ("docs/example-report/results.png", False),
    ],
)
def test_generated_files_are_ignored_and_reference_traces_are_not(
    path: str, ignored: bool, tmp_path: Path
) -> None:
    assert git("init", "--quiet", folder=tmp_path).returncode == 0
    shutil.copy(ROOT / ".gitignore", tmp_path)
    answer = git("check-ignore", "--quiet", path, folder=tmp_path)
    assert answer.returncode == (0 if ignored else 1), answer.stderr
