"""The installer of the Slurm that tests run on: its refusals. What it installs, tests/slurm uses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

INSTALLER = Path(__file__).resolve().parents[2] / "envs/install-slurm.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with the few tools of the script itself: munge is not there, whatever this host has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("mktemp", "rm"):
        (folder / tool).symlink_to(f"/usr/bin/{tool}")
    return folder


def install(programs: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/bash", str(INSTALLER), *arguments]
    environment = {"PATH": str(programs), **environ}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_check_names_what_is_missing_and_installs_nothing(programs: Path) -> None:
    # The script looks into /usr/sbin by itself, where munged may be.
    assert refusal(install(programs, "--check")).endswith(": not found; run envs/install-slurm.sh")


def test_a_host_of_a_cluster_is_left_alone(programs: Path, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.touch()
    said = refusal(install(programs, SLURM_CONF=str(conf)))
    assert said.startswith(f"install-slurm: {conf}: exists, so this host belongs to a cluster")


def test_a_system_without_apt_is_told_what_to_install(programs: Path, tmp_path: Path) -> None:
    said = refusal(install(programs, SLURM_CONF=str(tmp_path / "absent")))
    assert "no apt-get here; install slurmctld, slurmd" in said


def test_unknown_option_gets_the_usage(programs: Path) -> None:
    assert "usage" in refusal(install(programs, "--chekc"))
