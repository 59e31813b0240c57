"""Who else is on the GPU, by what nvidia-smi prints: a stand-in that prints lines as the real one does."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from inference.latency import _warn_of
from inference.neighbours import neighbours

OURS, OTHER = "GPU-11111111-2222", "GPU-33333333-4444"


def _smi(folder: Path, *lines: str, exit_code: int = 0) -> dict[str, str]:
    path = folder / "nvidia-smi"
    printed = "".join(f"echo '{line}'\n" for line in lines)
    path.write_text(
        f'#!/bin/sh\ncase "$1" in --query-compute-apps=*) ;; *) exit 9 ;; esac\n{printed}exit {exit_code}\n'
    )
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_others_on_this_gpu_are_named_without_their_folders(path: Path) -> None:
    _smi(
        path,
        f"{OURS}, {os.getpid()}, /opt/a venv/bin/python, 1024",
        f"{OURS}, 4242, /home/someone/secret project/train,v2, 70000",
        f"{OURS}, 4243, [Not Found], [N/A]",
        f"{OTHER}, 4244, /usr/bin/elsewhere, 100",
    )
    assert neighbours(OURS) == [
        {"program": "train,v2", "memory_mib": 70000.0},
        {"program": "[Not Found]", "memory_mib": None},
    ]


def test_alone(path: Path) -> None:
    _smi(path, f"{OURS}, {os.getpid()}, python, 1024", f"{OTHER}, 7, train, 100")
    assert neighbours(OURS) == []


@pytest.mark.parametrize(
    "lines",
    [
        [],  # as in many containers
        [f"{OURS}, 17, python, 1024"],  # another namespace of process ids: which is us?
        ["No running processes found"],
    ],
)
def test_a_list_without_this_process_says_nothing_of_others(path: Path, lines: list[str]) -> None:
    _smi(path, *lines)
    assert neighbours(OURS) is None


def test_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _smi(path, f"{OURS}, {os.getpid()}, python, 1", exit_code=9)
    assert neighbours(OURS) is None
    monkeypatch.setenv("PATH", "/absent")
    assert neighbours(OURS) is None


def test_they_are_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    _warn_of(None, [])
    assert caplog.messages == []
    _warn_of([{"program": "train", "memory_mib": 1.0}], [{"program": "train", "memory_mib": None}])
    assert caplog.messages == ["warning: other processes are on the GPU and spoil these numbers: train"]
