"""One GPU for one program, by real processes and real locks; the GPUs are a stand-in nvidia-smi's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract import LaunchgapError
from nsight.lease import LOCKS_VARIABLE, Device, lock_folder, take, usable_devices
from tests.in_process import ROOT, in_process

UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2", "GPU-cccc-3")
SHOW = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], os.getpid(), flush=True); time.sleep(600)"

Start = Callable[..., subprocess.Popen[str]]


def _host(folder: Path, *uuids: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    smi = folder / "nvidia-smi"
    smi.write_text("#!/bin/sh\n" + "".join(f"echo {uuid}\n" for uuid in uuids))
    smi.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a program on a GPU of its own, by the script that the pipeline puts before a command."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    running: list[subprocess.Popen[str]] = []
    usual = {**os.environ, **_host(tmp_path / "bin", *UUIDS), LOCKS_VARIABLE: str(tmp_path / "locks")}

    def start(program: str = SHOW, **environ: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scripts.on_gpu", "--", sys.executable, "-c", program]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=ROOT, env={**usual, **environ}, stdout=pipe, stderr=pipe, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def _gpu(process: subprocess.Popen[str]) -> str:
    """The GPU of a program, once it runs; it has the process id that was started."""
    assert process.stdout is not None
    gpu, pid = process.stdout.readline().split()
    assert int(pid) == process.pid
    return gpu


def _waits(process: subprocess.Popen[str]) -> bool:
    assert process.stderr is not None
    return process.stderr.readline().startswith("waiting: other programs of launchgap use all GPUs (")


def test_each_program_has_its_own_and_the_next_waits_for_the_first_that_dies(start: Start) -> None:
    first, second = (start(CUDA_VISIBLE_DEVICES="0,1") for _ in range(2))
    assert {_gpu(first), _gpu(second)} == {"0", "1"}
    third = start(CUDA_VISIBLE_DEVICES="0,1")
    assert _waits(third)
    assert third.poll() is None
    gpu = {"0", "1"} - {_of(second)}
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert {_gpu(third)} == gpu


def _of(process: subprocess.Popen[str]) -> str:
    environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return (
        next(line for line in environ if line.startswith(b"CUDA_VISIBLE_DEVICES=")).decode().partition("=")[2]
    )


def test_one_gpu_has_one_lock_by_whatever_name(start: Start) -> None:
    assert _gpu(start(CUDA_VISIBLE_DEVICES="1")) == "1"
    for name in ("GPU-bbbb-2", "GPU-bbbb", "1"):
        assert _waits(start(CUDA_VISIBLE_DEVICES=name))
    assert _gpu(start(CUDA_VISIBLE_DEVICES="GPU-bbbb,2")) == "2"


def test_the_only_gpu_is_locked_and_keeps_its_name(start: Start, tmp_path: Path) -> None:
    host = _host(tmp_path / "one", UUIDS[0])
    first = start(
        SHOW.replace("os.environ['CUDA_VISIBLE_DEVICES']", "'CUDA_VISIBLE_DEVICES' in os.environ"), **host
    )
    assert _gpu(first) == "False"
    assert _waits(start(**host))


def test_what_a_program_starts_does_not_keep_the_gpu(start: Start) -> None:
    # subprocess closes what it need not hand on, so the lock is the program's, not its children's.
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(30)']"
    child = f"import subprocess, sys; subprocess.Popen({sleeper}, stdout=-3, stderr=-3); {SHOW}"
    first = start(child, CUDA_VISIBLE_DEVICES="0")
    assert _gpu(first) == "0"
    first.kill()
    first.wait()
    assert _gpu(start(CUDA_VISIBLE_DEVICES="0")) == "0"


def test_a_lock_file_that_was_cleaned_away_is_made_anew(tmp_path: Path) -> None:
    device = Device("0", "GPU-0")
    lease = take([device], tmp_path)
    (file,) = tmp_path.iterdir()
    with pytest.raises(LaunchgapError, match="gone"):
        take([device], tmp_path, may_wait=lambda: False)
    os.close(lease.descriptor)
    again = take([device], tmp_path)
    file.unlink()
    other = take([device], tmp_path)  # a new file: the old lock is on one that has no name any more
    os.close(again.descriptor)
    os.close(other.descriptor)


def test_waiting_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    lease = take([Device("0", "GPU-0")], tmp_path)
    told: list[str] = []
    begin = time.monotonic()
    with pytest.raises(LaunchgapError, match="whoever started this is gone"):
        take(
            [Device("0", "GPU-0")],
            tmp_path,
            lambda: time.monotonic() < begin + 0.5,
            lambda: told.append("waits"),
        )
    assert told == ["waits"]
    os.close(lease.descriptor)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [(uuid, uuid) for uuid in UUIDS]),
        ("2,0", [("2", UUIDS[2]), ("0", UUIDS[0])]),
        ("GPU-bb", [("GPU-bb", UUIDS[1])]),
        ("MIG-77/1/0", [("MIG-77/1/0", "MIG-77/1/0")]),
        ("7", [("7", "number-7")]),
        ("1,-1,0", [("1", UUIDS[1])]),
        ("", []),
        ("-1", []),
    ],
)
def test_what_may_be_used(tmp_path: Path, visible: str | None, expected: list[tuple[str, str]]) -> None:
    environ = _host(tmp_path, *UUIDS) | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [(one.visible, one.lock_name) for one in usable_devices(environ, tmp_path)] == expected


def test_without_nvidia_smi_the_device_nodes_count(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    found = usable_devices({"PATH": "/absent"}, tmp_path)
    assert [(one.visible, one.lock_name) for one in found] == [("0", "number-0"), ("1", "number-1")]


def test_the_folder_is_the_users_own(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    assert lock_folder(environ) == lock_folder({}) == Path(f"/tmp/launchgap-{os.getuid()}")
    assert lock_folder({}).stat().st_mode & 0o777 == 0o700
    assert lock_folder({LOCKS_VARIABLE: str(tmp_path / "a/b")}) == tmp_path / "a/b"


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Imported here: the module changes sys.path.
    from scripts.on_gpu import main

    (tmp_path / "file").touch()
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "file"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "file: cannot be made for the locks of launchgap" in in_process(main, "--", "true").complaint
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))
    assert "/absent/program: cannot be run" in in_process(main, "--", "/absent/program").complaint
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "error: no GPU to use; check `nvidia-smi`" in in_process(main, "--", "true").complaint


def test_no_torch_is_loaded() -> None:
    code = "import sys, scripts.on_gpu; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "pandas"} & set(done.stdout.split()) == set()
