"""The recipe of the image: linted, in step with the pins, enough for a run. Nothing here builds it."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.envs.dry_run import dry_run

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "envs/Dockerfile"
IGNORED = ROOT / "envs/Dockerfile.dockerignore"
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}[os.uname().machine]


def instructions() -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined, comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines()) if name]


def arguments_of(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def kept() -> list[Path]:
    """What the ignore file lets into the image: it names everything that is kept."""
    lines = IGNORED.read_text().splitlines()
    assert "*" in lines
    return [ROOT / line[1:] for line in lines if line.startswith("!")]


def test_hadolint_has_nothing_to_say(tmp_path: Path) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint, "hadolint: not installed; run make install-dev"
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM ubuntu\nRUN cd /opt\n")  # that it would say something
    assert subprocess.run([hadolint, bad], capture_output=True, timeout=60, check=False).returncode == 1


def test_the_base_and_nsys_are_one_version_each() -> None:
    (base,) = arguments_of("FROM")
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-base-ubuntu24\.04", base)
    (nsys,) = [rest for rest in arguments_of("ARG") if rest.startswith("NSYS_VERSION=")]
    report = (ROOT / "docs/example-report/report.md").read_text()
    assert f"nsys {nsys.removeprefix('NSYS_VERSION=')}" in report  # as the comment beside it says


def test_packages_are_installed_with_the_pins() -> None:
    (install,) = [rest for rest in arguments_of("RUN") if "pip install" in rest]
    for name in ("-r /opt/launchgap/envs/requirements.txt", "-c /opt/launchgap/envs/constraints.txt"):
        assert name in install


def test_nobody_runs_it_as_root_by_default() -> None:
    assert [int(user) for user in arguments_of("USER")] == [10001]


def test_no_secret_and_no_result_gets_in() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in kept()}
    assert not names & {".git", ".venv", "results", "logs", "tests", ".snakemake"}


def test_what_it_holds_is_enough_to_plan_a_run(tmp_path: Path) -> None:
    image, work = tmp_path / "image", tmp_path / "work"
    work.mkdir()
    for path in kept():
        target = image / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)
    (entrypoint,) = arguments_of("ENTRYPOINT")
    command = [word.replace("/opt/launchgap", str(image)) for word in re.findall(r'"([^"]+)"', entrypoint)]
    done = dry_run(work, [*command, "--cores", "1", "all", "reference"])
    assert done.returncode == 0, done.stderr
    assert "analyse_reference" in done.stdout + done.stderr


def without_perf_events() -> None:
    """Have the kernel refuse perf_event_open to this process, as Docker's own seccomp profile does."""
    operations = [
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 1, PERF_EVENT_OPEN),  # is it this one?
        (0x06, 0, 0, 0x00050000 | errno.EPERM),
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in operations))
    program = struct.pack("HxxxxxxQ", len(operations), ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, filter_mode = 38, 22, 2
    assert library.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert library.prctl(seccomp, filter_mode, program, 0, 0) == 0


def run_confined(*command: str) -> subprocess.CompletedProcess[str]:
    """Run without any capability, as a container without flags does, and without perf_event_open."""
    give_up = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    return subprocess.run(
        [*give_up, *command],
        env={**os.environ, "PYTHON": sys.executable},
        preexec_fn=without_perf_events,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.nsys
def test_nsys_needs_no_capability_and_no_perf_events() -> None:
    call = (
        f"import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall({PERF_EVENT_OPEN}, 0, 0, 0, 0, 0)"
    )
    proof = f"{call}; print(ctypes.get_errno(), *[w for w in open('/proc/self/status') if 'CapEff' in w])"
    assert run_confined(sys.executable, "-c", proof).stdout.split() == ["1", "CapEff:", "0" * 16]
    done = run_confined("bash", str(ROOT / "envs/install-nsys.sh"), "--check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OK: nsys")
