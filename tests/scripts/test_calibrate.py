"""`python -m scripts.calibrate` where there is no GPU: one line, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        ([], "sees no GPU"),
        (["--rounds", "3"], "3 is below 10"),
        (["--warmup-s", "-1"], "is not a time"),
        (["gpt2"], "unrecognized arguments: gpt2"),
    ],
)
def test_it_is_refused_in_one_line(words: list[str], complaint: str, tmp_path: Path) -> None:
    ran = calibrate("-o", str(tmp_path / "folder" / "calibration.json"), *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")
    assert complaint in line
    assert list(tmp_path.iterdir()) == []
