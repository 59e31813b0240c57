"""A real capture by the installed nsys, of a program that has ranges and no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.case import analyse_case
from analysis.leaks import find_leaks
from analysis.scrub import scrub
from analysis.trace import read_trace
from nsight.install import find_nsys

pytestmark = pytest.mark.nsys

PROGRAM = """
import nvtx
with nvtx.annotate("load", domain="launchgap"):
    pass
for _ in range(3):
    with nvtx.annotate("request", domain="launchgap"):
        with nvtx.annotate("forward", domain="launchgap"):
            sum(range(1000))
with nvtx.annotate("request"):
    pass
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captured")
    nsys = str(find_nsys(os.environ).path)
    report, export = folder / "eager.node.nsys-rep", folder / "eager.node.sqlite"
    environment = os.environ | {"LAUNCHGAP_TEST_SECRET": "hunter2"}
    quiet = ["--sample=none", "--cpuctxsw=none"]
    profile = [nsys, "profile", "-t", "nvtx", *quiet, "-o", str(report), sys.executable, "-c", PROGRAM]
    for command in (profile, [nsys, "export", "--type", "sqlite", "-o", str(export), str(report)]):
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder, env=environment)
    return export


def test_ranges_are_read(captured: Path) -> None:
    trace = read_trace(captured)
    own = trace.ranges[trace.ranges["domain"] == "launchgap"]
    assert own["name"].tolist() == ["load", *["request", "forward"] * 3]
    assert (own["end_ns"] > own["start_ns"]).all()
    assert own["same_thread"].all()
    assert not trace.has_gpu_work
    assert trace.nsys_version is not None
    assert find_nsys(os.environ).version_text.startswith(trace.nsys_version.rsplit(".", 1)[0])


def test_case_of_a_simulation(captured: Path) -> None:
    record = {
        **{"schema_version": 1, "kind": "trace", "case": {"name": "c"}, "strategy": "eager"},
        **{"simulated": True, "requests": 3, "event_ms": [1.0]},
    }
    captured.with_suffix(".json").write_text(json.dumps(record))
    analysed = analyse_case("c", captured.parent)
    (entry,) = analysed.entries
    assert (entry.status, entry.requests, entry.findings) == ("no gpu", 3, ())
    assert len(analysed.requests) == 3


def test_raw_capture_leaks_and_scrubbed_one_does_not(captured: Path, tmp_path: Path) -> None:
    raw = captured.read_bytes()
    assert b"LAUNCHGAP_TEST_SECRET=hunter2" in raw
    assert any("environment variable" in leak for leak in find_leaks(captured))
    clean = tmp_path / "clean.sqlite"
    clean.write_bytes(scrub(captured, only_requests=True))
    assert b"hunter2" not in clean.read_bytes()
    assert find_leaks(clean) == []
    kept = read_trace(clean).ranges
    assert kept["name"].tolist() == ["load", *["request", "forward"] * 3]
