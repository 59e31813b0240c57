"""The Makefile's promises that can be checked without installing anything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = ROOT / "Makefile"
PROMISED = {"help", "report", "test", "lint", "format", "open", "reference", "gpu-test", "benchmark", "clean"}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def described_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):[^\n]*## ", MAKEFILE.read_text(encoding="utf-8"), flags=re.MULTILINE))


def test_help_is_the_default_and_lists_every_described_target() -> None:
    result = make()
    assert result.returncode == 0, result.stderr
    listed = set(re.findall(r"^  make ([\w-]+)  +\S", result.stdout, flags=re.MULTILINE))
    assert listed == described_targets()
    assert listed >= PROMISED


def test_every_task_is_phony_so_that_a_file_of_its_name_cannot_hide_it() -> None:
    phony = set(re.findall(r"^\.PHONY: ([\w-]+)$", MAKEFILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert phony >= described_targets()


@pytest.mark.parametrize("python", ["/nowhere/python3", "/bin/false"])
def test_unsuitable_python_is_refused_in_one_line(python: str, tmp_path: Path) -> None:
    result = make("install", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
    assert result.returncode == 2
    assert f"make: PYTHON={python}: not Python 3.11 to 3.13" in result.stderr.splitlines()[0]
    assert not (tmp_path / "venv").exists()


def test_python_without_venv_is_told_the_package(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/bash\n[[ $2 != *venv* ]]\n", encoding="utf-8")
    python.chmod(0o755)
    result = make("install", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
    assert result.returncode == 2
    assert "python3-venv" in result.stderr.splitlines()[0]


def test_installing_always_uses_the_constraints(tmp_path: Path) -> None:
    plan = make("--dry-run", "report", "test", f"VENV={tmp_path / 'venv'}").stdout
    installs = [line for line in plan.splitlines() if " pip " in line]
    assert installs
    assert all("-c envs/constraints.txt" in line for line in installs)


def opened(folder: Path, opener: str | None) -> subprocess.CompletedProcess[str]:
    """`make open` in a folder, where a program of that name is all that could open a page."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bash", "test", "make"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    if opener:
        (programs / opener).write_text('#!/usr/bin/bash\necho "opened $*"\n', encoding="utf-8")
        (programs / opener).chmod(0o755)
    return subprocess.run(
        ["make", "--no-print-directory", "-f", str(MAKEFILE), "SHELL=/bin/bash", "open"],
        cwd=folder,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("opener", ["xdg-open", "open", "wslview"])
def test_the_report_opens_in_the_browser(tmp_path: Path, opener: str) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/report.html").touch()
    done = opened(tmp_path, opener)
    assert (done.returncode, done.stdout) == (0, "opened results/report.html\n")


def test_without_a_browser_the_path_is_said(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/report.html").touch()
    done = opened(tmp_path, None)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{tmp_path}/results/report.html: open it in a browser")


def test_without_a_report_one_line_says_what_makes_it(tmp_path: Path) -> None:
    done = opened(tmp_path, "xdg-open")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "make: results/report.html: not there yet; run make report first"
