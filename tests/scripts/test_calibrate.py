"""`python -m scripts.calibrate` where there is no GPU: one line, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commandline import run_command
from scripts.calibrate import main

ROOT = Path(__file__).parents[2]


def calibrate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.calibrate", *words]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rounds", "3"], "3 is below 10"),
        (["--warmup-s", "-1"], "is not a time"),
        (["gpt2"], "unrecognized arguments: gpt2"),
    ],
)
def test_a_mistake_is_refused_in_one_line(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["-o", str(tmp_path / "folder" / "calibration.json"), *words]
    assert run_command(lambda: main(argv)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    check_line(told.err, complaint, tmp_path)


def test_no_gpu_is_one_line(tmp_path: Path) -> None:
    ran = calibrate("-o", str(tmp_path / "folder" / "calibration.json"))
    assert (ran.returncode, ran.stdout) == (2, "")
    check_line(ran.stderr, "sees no GPU", tmp_path)


def check_line(told: str, complaint: str, tmp_path: Path) -> None:
    (line,) = told.splitlines()
    assert line.startswith("error: ")
    assert complaint in line
    assert list(tmp_path.iterdir()) == []
