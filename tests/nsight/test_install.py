from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight.errors import NsysFailed, NsysMissing
from nsight.install import Nsys, find_nsys, parse_version


def _install(path: Path, prints: str, exit_code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("printed", "version", "text"),
    [
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f\n", (2022, 4, 2), "2022.4.2.1-df9881f"),
        (
            "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0",
            (2025, 3, 1),
            "2025.3.1.90-253135822126v0",
        ),
        ("Nsight Systems 2024.2.3", (2024, 2, 3), "2024.2.3"),
    ],
)
def test_version_of_old_and_new(printed: str, version: tuple[int, int, int], text: str) -> None:
    assert parse_version(printed) == (version, text)


@pytest.mark.parametrize("printed", ["", "command not found", "version 12.4"])
def test_no_version_is_refused(printed: str) -> None:
    with pytest.raises(NsysFailed, match="no version; install"):
        parse_version(printed)


def test_nothing_installed(tmp_path: Path) -> None:
    with pytest.raises(NsysMissing, match=re.escape("envs/install-nsys.sh")):
        find_nsys({"PATH": str(tmp_path)}, tmp_path)
    with pytest.raises(NsysMissing):
        find_nsys({}, tmp_path)


def test_path_wins_over_bundled(tmp_path: Path) -> None:
    on_path = _install(tmp_path / "bin/nsys", "version 2022.4.2.1-df9881f")
    _install(tmp_path / "opt/nsight-systems/2025.3.1/bin/nsys", "version 2025.3.1.90")
    assert find_nsys({"PATH": str(tmp_path / "bin")}, tmp_path / "opt").path == on_path


def test_newest_bundled_is_taken(tmp_path: Path) -> None:
    _install(tmp_path / "nsight-systems/2023.4.4/bin/nsys", "version 2023.4.4.54")
    newest = _install(tmp_path / "nsight-compute/2025.2.0/host/target-linux-x64/nsys", "version 2025.1.3.140")
    _install(tmp_path / "nsight-compute/2024.1.0/host/target-linux-x64/nsys", "version 2023.4.1.97")
    _install(tmp_path / "nsight-systems/2026.1.1/bin/nsys", "half an installation", exit_code=1)
    assert find_nsys({"PATH": ""}, tmp_path).path == newest


def test_all_bundled_broken(tmp_path: Path) -> None:
    _install(tmp_path / "nsight-systems/2026.1.1/bin/nsys", "half an installation", exit_code=1)
    with pytest.raises(NsysFailed, match="half an installation"):
        find_nsys({"PATH": ""}, tmp_path)


def test_override_wins(tmp_path: Path) -> None:
    _install(tmp_path / "bin/nsys", "version 2025.3.1.90")
    chosen = _install(tmp_path / "old/nsys", "version 2022.4.2.1-df9881f")
    found = find_nsys({"PATH": str(tmp_path / "bin"), "LAUNCHGAP_NSYS": str(chosen)})
    assert found == Nsys(chosen, (2022, 4, 2), "2022.4.2.1-df9881f")


def test_override_that_is_no_executable(tmp_path: Path) -> None:
    _install(tmp_path / "bin/nsys", "version 2025.3.1.90")
    with pytest.raises(NsysMissing, match="LAUNCHGAP_NSYS"):
        find_nsys({"PATH": str(tmp_path / "bin"), "LAUNCHGAP_NSYS": str(tmp_path)})


def test_nsys_of_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "nsys"
    path.write_bytes(b"\x7fELF no program")
    path.chmod(0o755)
    with pytest.raises(NsysFailed, match="does not run"):
        find_nsys({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("version", "can"),
    [((2022, 4, 2), False), ((2023, 4, 4), False), ((2024, 2, 3), True), ((2025, 3, 1), True)],
)
def test_who_can_export_graph_mode(version: tuple[int, int, int], can: bool) -> None:
    assert Nsys(Path("nsys"), version, "").exports_graph_mode is can


@pytest.mark.nsys
def test_the_real_one(real_nsys: Nsys, fake_nsys: Callable[[str], Nsys]) -> None:
    assert real_nsys.path.is_file()
    assert (2022, 0, 0) < real_nsys.version < (2100, 0, 0)
    assert real_nsys.version_text.startswith(".".join(map(str, real_nsys.version)))
    assert find_nsys({"PATH": "", "LAUNCHGAP_NSYS": str(fake_nsys("").path)}).version == (2025, 3, 1)
