"""The two executables on top of the library: exit codes, one line on stderr."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nsight.conftest import FakeNsys, read_json

ROOT = Path(__file__).resolve().parents[2]


def _run(script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _only_line(done: subprocess.CompletedProcess[str]) -> str:
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.nsys
def test_capture(tmp_path: Path, program: Path) -> None:
    output = tmp_path / "a folder/eager.node"
    done = _run("capture_trace.py", "--output", str(output), "--", sys.executable, str(program), "ok")
    assert done.returncode == 0, done.stderr
    assert re.sub(r"\d+\.\d s", "N s", done.stderr).splitlines() == [
        "hello from the program",
        "nsys profile took N s",
        "nsys export took N s",
        f"{output}: 1 requests traced",
    ]
    assert read_json(output.with_name("eager.node.json"))["trace_mode"] == "node"


@pytest.mark.nsys
def test_exit_code_of_the_program_passes_through(tmp_path: Path, program: Path) -> None:
    done = _run(
        "capture_trace.py", "--output", str(tmp_path / "x"), "--", sys.executable, str(program), "fail"
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "error: traced program: exit code 3, 'the device ran out of patience'; try it without nsys"
    )


def test_capture_without_nsys(tmp_path: Path) -> None:
    done = _run(
        "capture_trace.py", "--output", str(tmp_path / "x"), "--", "true", LAUNCHGAP_NSYS="/absent/nsys"
    )
    assert done.returncode == 2
    assert _only_line(done).startswith("error: /absent/nsys: LAUNCHGAP_NSYS names it")
    assert list(tmp_path.iterdir()) == []


def test_graph_mode_under_an_old_nsys(tmp_path: Path, fake_nsys: FakeNsys) -> None:
    nsys = fake_nsys("").path
    nsys.write_text(nsys.read_text().replace("2025.3.1.90-25v0", "2022.4.2.1-df9881f"))
    arguments = ("--output", str(tmp_path / "x"), "--trace-mode", "graph", "--", "true")
    done = _run("capture_trace.py", *arguments, LAUNCHGAP_NSYS=str(nsys))
    assert done.returncode == 2
    assert "cannot export a trace in graph mode; trace in node mode" in _only_line(done)


def test_capture_into_a_place_that_cannot_be_written(fake_nsys: FakeNsys) -> None:
    nsys = str(fake_nsys("").path)
    done = _run("capture_trace.py", "--output", "/proc/x/y", "--", "true", LAUNCHGAP_NSYS=nsys)
    assert done.returncode == 2
    assert _only_line(done).startswith("error: /proc/x/y: cannot be written")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "x", "--trace-mode", "both", "--", "true"],
        ["--output", "x"],
        ["--output", "x", "--timeout-s", "soon", "--", "true"],
        ["--output", "x", "--timeout-s", "0", "--", "true"],
        ["--output", "x", "--timeout-s", "nan", "--", "true"],
        ["--device", "gpu", "--output", "x", "--", "true"],
        ["--", "true"],
    ],
)
def test_bad_arguments_of_capture(arguments: list[str]) -> None:
    done = _run("capture_trace.py", *arguments)
    assert done.returncode == 2
    assert "error: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.nsys
def test_preflight(tmp_path: Path) -> None:
    done = _run("preflight.py", "-o", str(tmp_path / "new/preflight.json"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "device cpu, tracing works"
    assert read_json(tmp_path / "new/preflight.json")["can_trace"] is True


def test_preflight_without_nsys(tmp_path: Path) -> None:
    arguments = ("--device", "cpu", "-o", str(tmp_path / "preflight.json"))
    done = _run("preflight.py", *arguments, LAUNCHGAP_NSYS="/absent/nsys")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "device cpu, no tracing"
    done = _run("preflight.py", "--profiler", "required", *arguments, LAUNCHGAP_NSYS="/absent/nsys")
    assert done.returncode == 2
    assert _only_line(done).startswith("error: profiler required: /absent/nsys:")


def test_preflight_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = str(tmp_path / "file/new/preflight.json")
    done = _run("preflight.py", "--profiler", "off", "--device", "cpu", "-o", target)
    assert done.returncode == 2
    assert _only_line(done).startswith("error: ")
