from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contract import LaunchgapError
from nsight import preflight as preflight_module
from nsight.gpu import Gpu
from nsight.install import Nsys
from nsight.preflight import Device, Profiler, host_fingerprint, preflight
from tests.nsight.conftest import FakeNsys

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}

# Runs nothing and exports an empty trace: what an nsys does for which the installed nvtx is too new.
BLIND = """
[ -n "$report" ] && touch "$report" || cp "$(dirname "$0")/blind.sqlite" "$LAUNCHGAP_CAPTURE/trace.sqlite"
"""


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def _check(
    environ: dict[str, str], tmp_path: Path, device: Device = "auto", profiler: Profiler = "auto"
) -> dict[str, Any]:
    return dict(preflight(device, profiler, tmp_path, {**os.environ, **NO_GPU, **environ}, tmp_path / "opt"))


@pytest.mark.nsys
def test_all_is_well_but_there_is_no_gpu(real_nsys: Nsys, tmp_path: Path) -> None:
    record = _check({}, tmp_path, profiler="required")
    assert record["kind"] == "preflight"
    assert record["device"] == "cpu"
    assert record["can_trace"] is True
    assert record["nsys_path"] == str(real_nsys.path)
    assert record["nsys_version"] == real_nsys.version_text
    assert record["nvtx_version"].startswith("0.2.")
    assert record["findings"] == [
        "no GPU: CUDA_VISIBLE_DEVICES hides all of them, so the simulation runs and its traces hold no "
        "kernels; unset it to use the GPU"
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nsys
def test_no_finding_when_the_simulation_is_asked_for(tmp_path: Path) -> None:
    assert _check({}, tmp_path, device="cpu")["findings"] == []


def test_nsys_missing(tmp_path: Path) -> None:
    record = _check({"PATH": str(tmp_path)}, tmp_path, device="cpu")
    assert record["can_trace"] is False
    assert record["nsys_path"] is None
    assert len(record["findings"]) == 1
    assert "envs/install-nsys.sh" in record["findings"][0]


def test_required_but_missing(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match="profiler required: nsys: not found"):
        _check({"PATH": str(tmp_path)}, tmp_path, profiler="required")


def test_torch_needs_no_nsys(tmp_path: Path) -> None:
    record = _check({"PATH": str(tmp_path)}, tmp_path, device="cpu", profiler="torch")
    assert (record["can_trace"], record["tracer"], record["nsys_path"]) == (True, "torch", None)
    assert record["findings"] == []


@pytest.mark.nsys
@pytest.mark.parametrize("profiler", ["auto", "required"])
def test_nsys_comes_first_where_it_works(tmp_path: Path, profiler: Profiler) -> None:
    assert _check({}, tmp_path, device="cpu", profiler=profiler)["tracer"] == "nsys"


def test_torch_takes_over_on_a_gpu_without_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This host has no GPU to find.
    monkeypatch.setattr(preflight_module, "find_gpu", lambda _environ: Gpu(usable=True))
    record = _check({"PATH": str(tmp_path)}, tmp_path)
    assert (record["device"], record["can_trace"], record["tracer"]) == ("cuda", True, "torch")
    assert "envs/install-nsys.sh" in record["findings"][0]
    assert record["findings"][1].startswith("nsys does not work here, so torch.profiler records the traces")
    with pytest.raises(LaunchgapError, match="profiler required: nsys: not found"):
        _check({"PATH": str(tmp_path)}, tmp_path, profiler="required")


def test_off(tmp_path: Path) -> None:
    record = _check({"PATH": str(tmp_path)}, tmp_path, device="cpu", profiler="off")
    assert record["can_trace"] is False
    assert record["findings"] == [
        "tracing is off: the configuration says profiler: off; set profiler: auto to trace"
    ]


@pytest.mark.parametrize("profiler", ["auto", "required", "off"])
def test_gpu_asked_for_and_missing(tmp_path: Path, profiler: Profiler) -> None:
    with pytest.raises(LaunchgapError, match=r"device cuda: no GPU: .*; unset it"):
        _check({}, tmp_path, device="cuda", profiler=profiler)


def test_importer_broken(fake_nsys: FakeNsys, tmp_path: Path) -> None:
    nsys = fake_nsys('touch "${report%.nsys-rep}.qdstrm"')
    record = _check({"LAUNCHGAP_NSYS": str(nsys.path)}, tmp_path, device="cpu")
    assert record["can_trace"] is False
    assert record["nsys_version"] == nsys.version_text
    assert record["findings"][0].startswith("nsys: its importer does not run")


@pytest.mark.parametrize(
    "tables", [(), ("NVTX_EVENTS (text TEXT, textId INT)", "StringIds (id INT, value TEXT)")]
)
def test_nvtx_too_new_for_this_nsys(fake_nsys: FakeNsys, tmp_path: Path, tables: tuple[str, ...]) -> None:
    nsys = fake_nsys(BLIND)
    with closing(sqlite3.connect(nsys.path.with_name("blind.sqlite"))) as connection:
        connection.execute("CREATE TABLE PROCESSES (globalPid INT)")
        for table in tables:
            connection.execute(f"CREATE TABLE {table}")
    record = _check({"LAUNCHGAP_NSYS": str(nsys.path)}, tmp_path, device="cpu")
    assert record["can_trace"] is False
    assert "records no ranges under nsys 2025.3.1.90-25v0" in record["findings"][0]
    assert record["findings"][0].endswith("pip install 'nvtx<0.2.12'")


def test_nvtx_missing(fake_nsys: FakeNsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_module, "nvtx_version", lambda: None)
    record = _check({"LAUNCHGAP_NSYS": str(fake_nsys("").path)}, tmp_path, device="cpu")
    assert record["findings"] == [
        "nvtx: not installed, so there are no ranges to trace; pip install 'nvtx<0.2.12'"
    ]


def test_disk_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 2**40, 5 * 2**20))
    record = _check({"PATH": ""}, tmp_path, device="cpu")
    assert record["can_trace"] is False
    assert record["findings"][0] == "disk: 5 MiB free, too few for traces; free 512 MiB"
    assert "not found on PATH" in record["findings"][1]


def test_every_finding_is_one_line_with_a_remedy(fake_nsys: FakeNsys, tmp_path: Path) -> None:
    for commands in ("exit 1", "true", 'touch "$report"', "kill -9 $$"):
        for finding in _check({"LAUNCHGAP_NSYS": str(fake_nsys(commands).path)}, tmp_path)["findings"]:
            assert "\n" not in finding
            assert ":" in finding
            assert ";" in finding


def test_installing_nsys_changes_the_fingerprint(fake_nsys: FakeNsys, tmp_path: Path) -> None:
    before = host_fingerprint({"LAUNCHGAP_NSYS": str(tmp_path / "fake/nsys")})
    nsys = fake_nsys("")
    installed = host_fingerprint({"LAUNCHGAP_NSYS": str(nsys.path)})
    assert installed == host_fingerprint({"LAUNCHGAP_NSYS": str(nsys.path)})
    os.utime(nsys.path, (1, 1))
    repaired = host_fingerprint({"LAUNCHGAP_NSYS": str(nsys.path)})
    assert len({fingerprint["nsys"] for fingerprint in (before, installed, repaired)}) == 3
    assert host_fingerprint({"LAUNCHGAP_NSYS": str(nsys.path), "LAUNCHGAP_CONFINED": "0"}) != repaired
