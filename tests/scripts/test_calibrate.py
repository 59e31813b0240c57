"""`python -m scripts.calibrate` where there is no GPU: one line, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from commandline import run_command
from scripts.calibrate import main
from tests.scripts.as_main import as_main


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


def test_no_gpu_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran = as_main("scripts/calibrate.py", "-o", tmp_path / "folder" / "calibration.json")
    assert (ran.code, ran.out) == (2, "")
    check_line(ran.err, "sees no GPU", tmp_path)


def check_line(told: str, complaint: str, tmp_path: Path) -> None:
    (line,) = told.splitlines()
    assert line.startswith("error: ")
    assert complaint in line
    assert list(tmp_path.iterdir()) == []
