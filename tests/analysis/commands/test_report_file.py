"""A `.nsys-rep` is exported on the fly by a real nsys, and what it says where that cannot be done."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.commands.export import recorded_by
from nsight.install import find_nsys
from tests.analysis.commands.run_command import analysis, analysis_process

PROGRAM = """
import nvtx
for _ in range(3):
    with nvtx.annotate("request", domain="launchgap"):
        with nvtx.annotate("forward", domain="launchgap"):
            sum(range(1000))
"""
NEWER = b"2099.3.1.9"

pytestmark = pytest.mark.nsys


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    path = folder / "real.nsys-rep"
    nsys = str(find_nsys(os.environ).path)
    quiet = ["--sample=none", "--cpuctxsw=none"]
    command = [nsys, "profile", "-t", "nvtx", *quiet, "-o", str(path), sys.executable, "-c", PROGRAM]
    subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder)
    return path


def newer(report: Path, target: Path) -> Path:
    """A report as a newer nsys writes it: another format version in front, another build at the end."""
    build = recorded_by(report)
    assert build is not None
    number = build.partition("-")[0].encode()
    content = report.read_bytes().replace(b"Profiler Report 1", b"Profiler Report 9")
    target.write_bytes(content.replace(number, NEWER.ljust(len(number), b"0")[: len(number)]))
    return target


def test_a_report_is_read_as_its_export_is(report: Path) -> None:
    words = ("--range", "request", "--force", "--format", "json")
    ran = analysis(report, *words)
    assert ran.code == 0, ran
    content = json.loads(ran.out)
    assert len(content["tables"]["instances"]) == 3
    assert content["trace"]["nsys_version"] in find_nsys(os.environ).version_text
    assert content["trace"]["file"] == str(report)
    assert [path.name for path in report.parent.iterdir()] == [report.name]


def test_the_build_that_made_a_report_is_found(report: Path) -> None:
    assert recorded_by(report) == find_nsys(os.environ).version_text


def test_a_report_of_a_newer_nsys_names_both_versions_and_the_remedy(report: Path, tmp_path: Path) -> None:
    told = analysis(newer(report, tmp_path / "newer.nsys-rep")).complaint
    assert "made by nsys 2099.3" in told
    assert f"the nsys {find_nsys(os.environ).version_text} at hand cannot read" in told
    assert "install nsys 2099.3 or newer" in told
    assert "nsys export --type sqlite" in told


@pytest.mark.parametrize("content", [b"", b"hello" * 1000, None], ids=["empty", "no report", "truncated"])
def test_a_damaged_report(report: Path, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "damaged.nsys-rep"
    whole = report.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    told = analysis(path).complaint
    assert str(path) in told
    assert "again" in told


def test_without_nsys_a_report_is_one_line(report: Path) -> None:
    environ = os.environ | {"PATH": "/nowhere", "LAUNCHGAP_NSYS": "/nowhere/nsys"}
    told = analysis_process(report, **environ).complaint
    assert "LAUNCHGAP_NSYS" in told
    assert "give a .sqlite export" in told


def test_nvidias_reports_look_into_the_export_while_it_is_there(report: Path) -> None:
    names = ("gpu_gaps", "nvtx_gpu_proj_trace")
    ran = analysis(report, *(word for name in names for word in ("--report", name)), "--format", "json")
    assert ran.code == 0, ran
    assert list(json.loads(ran.out)["tables"]) == list(names)
