"""The Nsight Systems installer: its proof with the real nsys, its refusals with stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSTALLER = Path(__file__).resolve().parents[2] / "envs/install-nsys.sh"
NEEDED_TOOLS = (
    "awk",
    "basename",
    "bash",
    "cat",
    "dirname",
    "env",
    "find",
    "grep",
    "mktemp",
    "rm",
    "sed",
    "sort",
    "tail",
    "timeout",
    "tr",
)
DEBIAN = "ID=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n"
UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'


class FakeSystem:
    """A PATH without nsys, on which the tools that would change a system only do what a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in NEEDED_TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.tool("sudo", 'shift; [[ $# -eq 0 || $1 == true ]] || exec "$@"')
        self.tool("ldconfig", "true")
        self.tool("dpkg", "echo amd64")
        self.tool("install", f'cat "$3" > {folder}/written.sources')
        self.tool("apt-cache", "echo '  Candidate: (none)'")
        self.tool("apt-get", "true")

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, *arguments: str, os_release: str = DEBIAN) -> subprocess.CompletedProcess[str]:
        release = self.folder / "os-release"
        release.write_text(os_release, encoding="utf-8")
        environment = {
            "PATH": str(self.bin),
            "PYTHON": sys.executable,
            "LAUNCHGAP_OS_RELEASE": str(release),
            "LAUNCHGAP_OPT": str(self.folder / "opt"),
        }
        return run_installer(*arguments, environment=environment)


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    return FakeSystem(tmp_path)


def run_installer(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["/bin/bash", str(INSTALLER), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("install-nsys: ")
    for word in words:
        assert word in lines[-1]


@pytest.mark.nsys
@pytest.mark.parametrize("arguments", [("--check",), ()], ids=["check", "again"])
def test_working_nsys_is_proven_and_left_alone(arguments: tuple[str, ...]) -> None:
    result = run_installer(*arguments, environment={**os.environ, "PYTHON": sys.executable})
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("OK: nsys 20")
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.nsys
def test_nsys_off_the_path_is_found_below_nvidias_folder(system: FakeSystem) -> None:
    bundled = system.folder / "opt/nsight-systems/2022.4.2/bin"
    bundled.mkdir(parents=True)
    (bundled / "nsys").symlink_to(Path(str(shutil.which("nsys"))).resolve())
    result = system.run("--check")
    assert result.returncode == 0, result.stderr
    assert str(bundled) in result.stdout


def test_check_says_in_one_line_that_nsys_is_missing(system: FakeSystem) -> None:
    result = system.run("--check")
    assert_refused(result, "nsys: not found", "envs/install-nsys.sh")
    assert len(result.stderr.splitlines()) == 1


def test_an_nsys_that_leaves_no_report_is_not_taken_for_working(system: FakeSystem) -> None:
    system.tool("nsys", "exit 0")
    assert_refused(system.run("--check"), "made no .nsys-rep")


def test_a_named_nsys_that_does_not_work_is_refused_instead_of_replaced(system: FakeSystem) -> None:
    system.tool("nsys", "exit 1")
    environment = {"PATH": str(system.bin), "PYTHON": sys.executable, "LAUNCHGAP_NSYS": "/nowhere/nsys"}
    assert_refused(run_installer(environment=environment), "/nowhere/nsys", "LAUNCHGAP_NSYS")


def test_missing_python_is_named(system: FakeSystem) -> None:
    environment = {"PATH": str(system.bin), "PYTHON": "/nowhere/python"}
    assert_refused(run_installer("--check", environment=environment), "/nowhere/python", "set PYTHON")


def test_unknown_option_gets_the_usage(system: FakeSystem) -> None:
    assert_refused(system.run("--chekc"), "usage")


@pytest.mark.parametrize("os_release", ["ID=fedora\nVERSION_ID=42\n", ""], ids=["fedora", "empty"])
def test_other_systems_are_refused(system: FakeSystem, os_release: str) -> None:
    assert_refused(system.run(os_release=os_release), "only Debian and Ubuntu")


def test_unreachable_network_is_named_and_leaves_no_source_behind(system: FakeSystem) -> None:
    system.tool("apt-get", "echo 'E: Could not resolve deb.debian.org' >&2; exit 100")
    result = system.run()
    assert_refused(result, "apt-get update failed", "network")
    assert "Could not resolve" in result.stderr
    assert not (system.folder / "written.sources").exists()


def test_ubuntu_without_the_package_is_told_nvidias_commands(system: FakeSystem) -> None:
    result = system.run(os_release=UBUNTU)
    assert_refused(result, "nsight-systems", "NVIDIA's repository")
    assert "devtools/repos/ubuntu2404/amd64" in result.stderr
    assert "nsight-systems-cli" in result.stderr


@pytest.mark.parametrize(
    ("name", "entry", "content"),
    [
        (
            "debian.sources",
            2,
            "# A comment\n\nTypes: deb\nURIs: http://security.example\nSigned-By: /keys/other.gpg\n\n"
            "Types: deb\nURIs: http://mirror.example/debian\nSigned-By: /keys/debian.gpg\n",
        ),
        (
            "sources.list",
            2,
            "# main\ndeb [arch=amd64 signed-by=/keys/debian.gpg] http://mirror.example x\n",
        ),
    ],
    ids=["deb822", "one line"],
)
def test_debian_source_repeats_mirror_and_key(
    system: FakeSystem, name: str, entry: int, content: str
) -> None:
    source = system.folder / name
    source.write_text(content, encoding="utf-8")
    target = f"http://mirror.example/debian/ bookworm {source}:{entry}"
    system.tool("apt-get", f'[[ $1 != indextargets ]] || echo "{target}"')
    system.run()
    written = (system.folder / "written.sources").read_text(encoding="utf-8").splitlines()
    assert written == [
        "Types: deb",
        "URIs: http://mirror.example/debian/",
        "Suites: bookworm",
        "Components: contrib non-free",
        "Signed-By: /keys/debian.gpg",
    ]


def test_debian_source_without_a_key_gets_none(system: FakeSystem) -> None:
    system.tool(
        "apt-get", '[[ $1 != indextargets ]] || echo "http://mirror.example/ bookworm /nowhere.list:1"'
    )
    system.run()
    assert "Signed-By" not in (system.folder / "written.sources").read_text(encoding="utf-8")


def test_a_driver_already_there_is_not_shadowed(system: FakeSystem) -> None:
    system.tool("ldconfig", "echo 'libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1'")
    system.tool("apt-cache", "echo '  Candidate: 2022.4.2'")
    log = system.folder / "apt.log"
    system.tool(
        "apt-get", f'echo "$*" >> {log}; [[ $* != *--simulate* ]] || echo "Inst libcuda1 (535.261.03-1)"'
    )
    assert_refused(system.run(), "driver library", "NVIDIA's repository")
    assert "install -y" not in log.read_text(encoding="utf-8")
