from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nsight import gpu
from nsight.gpu import find_gpu


@pytest.fixture
def torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "torch_lacks_cuda", lambda: False)


def _smi(folder: Path, prints: str, exit_code: int = 0) -> dict[str, str]:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {exit_code}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.usefixtures("torch_with_cuda")
def test_a_gpu(tmp_path: Path) -> None:
    environ = _smi(tmp_path, "GPU 0: NVIDIA H200 (UUID: GPU-0)")
    assert find_gpu(environ, tmp_path / "absent").usable
    assert find_gpu(environ | {"CUDA_VISIBLE_DEVICES": "0"}, tmp_path / "absent").usable


@pytest.mark.usefixtures("torch_with_cuda")
@pytest.mark.parametrize("hidden", ["", "-1", " "])
def test_hidden(tmp_path: Path, hidden: str) -> None:
    environ = _smi(tmp_path, "GPU 0: NVIDIA H200 (UUID: GPU-0)") | {"CUDA_VISIBLE_DEVICES": hidden}
    found = find_gpu(environ, tmp_path / "absent")
    assert not found.usable
    assert "CUDA_VISIBLE_DEVICES" in found.problem


def test_no_driver(tmp_path: Path) -> None:
    found = find_gpu({"PATH": str(tmp_path)}, tmp_path / "absent")
    assert (found.usable, found.problem) == (False, "no GPU: this host has no NVIDIA driver")


@pytest.mark.usefixtures("torch_with_cuda")
def test_a_container_without_nvidia_smi(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    node.touch()
    assert find_gpu({"PATH": str(tmp_path)}, node).usable


def test_driver_that_fails(tmp_path: Path) -> None:
    told = "NVIDIA-SMI has failed because it could not communicate with the driver."
    found = find_gpu(_smi(tmp_path, told, exit_code=9), tmp_path / "absent")
    assert not found.usable
    assert told in found.problem


def test_driver_without_a_gpu(tmp_path: Path) -> None:
    assert "lists none" in find_gpu(_smi(tmp_path, ""), tmp_path / "absent").problem


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "nvidia0"
    node.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = find_gpu(_smi(tmp_path, "GPU 0"), node)
    assert not found.usable
    assert found.problem == f"{node}: no permission to open the GPU"


def test_gpu_but_torch_without_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "torch_lacks_cuda", lambda: True)
    found = find_gpu(_smi(tmp_path, "GPU 0: NVIDIA H200"), tmp_path / "absent")
    assert not found.usable
    assert found.problem.startswith("torch: ")


@pytest.mark.parametrize(("line", "lacks"), [("cuda: Optional[str] = None", True), ("cuda = '13.0'", False)])
def test_torch_build_is_read_from_its_version_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, lacks: bool
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('torch was imported')\n")
    (package / "version.py").write_text(f"__version__ = '2.11'\n{line}\nhip: Optional[str] = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert gpu.torch_lacks_cuda() is lacks
