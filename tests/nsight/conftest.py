"""Fake and real nsys for the driver's tests, and a program small enough to trace in a second."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract import TraceMode
from nsight.install import Nsys, find_nsys
from nsight.trace import Traced

FakeNsys = Callable[[str], Nsys]

PROGRAM = """
import json, os, pathlib, signal, sys, time
import nvtx
mode, record = sys.argv[1], pathlib.Path(sys.argv[sys.argv.index("--record") + 1])
with nvtx.annotate("request", domain="launchgap"):
    time.sleep(0.01)
print("hello from the program")
if mode == "fail":
    print("first line", file=sys.stderr)
    print("the device ran out of patience", file=sys.stderr)
    sys.exit(3)
if mode == "hang":
    pathlib.Path(sys.argv[2]).write_text(str(os.getpid()))
    os.environ.clear()
    os.spawnve(os.P_WAIT, "/bin/sleep", ["sleep", "600"], {})
if mode != "silent":
    fields = {"schema_version": 1, "kind": "trace", "requests": 1, "command": sys.argv[1:]}
    record.write_text(json.dumps(fields))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def traced(program: Path) -> Callable[..., Traced]:
    """Traced("ok"), Traced("fail"), ...: the program in one of its modes, without CUDA."""

    def make(*arguments: str, timeout_s: float = 60.0) -> Traced:
        return Traced((sys.executable, str(program), *arguments), TraceMode.NODE, False, timeout_s)

    return make


@pytest.fixture(scope="session")
def real_nsys() -> Nsys:
    return find_nsys(os.environ)


@pytest.fixture
def fake_nsys(tmp_path: Path) -> FakeNsys:
    """An nsys that answers --version and otherwise runs shell commands; $report is what to write."""

    def make(commands: str) -> Nsys:
        path = tmp_path / "fake" / "nsys"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "#!/bin/bash\n"
            '[ "$1" = --version ] && { echo "NVIDIA Nsight Systems version 2025.3.1.90-25v0"; exit; }\n'
            'while [ $# -gt 0 ]; do [ "$1" = --output ] && report=$2; shift; done\n' + commands + "\n"
        )
        path.chmod(0o755)
        return Nsys(path, (2025, 3, 1), "2025.3.1.90-25v0")

    return make


def processes_with(mark: str) -> list[int]:
    """Processes whose command line or environment holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            if any(mark.encode() in (entry / name).read_bytes() for name in ("cmdline", "environ")):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def read_json(path: Path) -> dict[str, object]:
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content
