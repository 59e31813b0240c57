"""What only one program of launchgap may use at a time: a GPU, chosen among those it may use, or an old nsys.

Two measurements on one GPU spoil both. Snakemake keeps the jobs of one pipeline apart; a second pipeline on
the host knows nothing of the first, so each job holds a lock on its GPU. The lock belongs to an open file, so
the system frees it when the process ends, however it ends. Needs no torch: CUDA_VISIBLE_DEVICES must be set
before torch is loaded.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract import LaunchgapError

VISIBLE = "CUDA_VISIBLE_DEVICES"
LOCKS_VARIABLE = "LAUNCHGAP_LOCKS"
"""Environment variable that names the folder of the locks, for users or containers that share GPUs."""

_POLL_S = 0.2
_SMI_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Device:
    """A GPU: what CUDA_VISIBLE_DEVICES holds to choose it, and the name that all programs lock it by."""

    visible: str
    lock_name: str


@dataclass(frozen=True)
class Lease:
    """A GPU that is locked for as long as `descriptor` is open, here or in a program that inherits it."""

    device: Device
    descriptor: int


def usable_devices(environ: Mapping[str, str], nodes: Path = Path("/dev")) -> list[Device]:
    """The GPUs that a program started with this environment may use, in CUDA's order.

    A CUDA_VISIBLE_DEVICES that is set, by the user or by Slurm, is all there is to choose from; as for CUDA,
    it ends at the first entry that is no device. Without nvidia-smi the device nodes below `nodes` are
    counted.
    """
    uuids = _uuids(environ)
    chosen = environ.get(VISIBLE)
    if chosen is None:
        numbers = range(len(list(nodes.glob("nvidia[0-9]*"))))
        return [Device(uuid, uuid) for uuid in uuids] or [_numbered(number) for number in numbers]
    devices = []
    for entry in (part.strip() for part in chosen.split(",")):
        if not entry or entry.startswith("-"):
            break
        devices.append(Device(entry, _lock_name(entry, uuids)))
    return devices


def _uuids(environ: Mapping[str, str]) -> list[str]:
    """UUIDs of the host's GPUs by number, as nvidia-smi lists them; empty where it does not answer."""
    smi = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
    if smi is None:
        return []
    command = [smi, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU-")]


def _lock_name(entry: str, uuids: Sequence[str]) -> str:
    """The same name for a GPU however it is called: a number, a UUID or the beginning of one.

    CUDA numbers different GPUs of one host fastest first unless CUDA_DEVICE_ORDER says otherwise, nvidia-smi
    by their slots. Then two names may lock what is not the same GPU: give UUIDs on such a host.
    """
    if entry.isdecimal():
        number = int(entry)
        return uuids[number] if number < len(uuids) else _numbered(number).lock_name
    return next((uuid for uuid in uuids if uuid.startswith(entry)), entry)


def _numbered(number: int) -> Device:
    return Device(str(number), f"number-{number}")


def lock_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the locks: the user's own, the same for every session and batch job on this host.

    That is why it is not XDG_RUNTIME_DIR or TMPDIR, which a login has and a cron or Slurm job has not.

    Raises:
        LaunchgapError: it cannot be made, or belongs to somebody else.
    """
    named = environ.get(LOCKS_VARIABLE)
    folder = Path(named) if named else Path(f"/tmp/launchgap-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat() if not named else folder.stat()
    except OSError as error:
        raise LaunchgapError(
            f"{folder}: cannot be made for the locks of launchgap ({error.strerror}); set {LOCKS_VARIABLE}"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or (not named and found.st_uid != os.getuid()):
        raise LaunchgapError(f"{folder}: belongs to another user; set {LOCKS_VARIABLE} to a folder of yours")
    return folder


def take(
    devices: Sequence[Device],
    folder: Path,
    may_wait: Callable[[], bool] = lambda: True,
    waiting: Callable[[], None] = lambda: None,
) -> Lease:
    """Lock the first of `devices` that is free; waits until one is.

    `waiting` is called once, when all are in use; `may_wait` is asked five times a second after that.

    Raises:
        LaunchgapError: `may_wait` said no, there are no devices, or a lock file cannot be opened.
    """
    if not devices:
        raise LaunchgapError(f"no GPU to use; check `nvidia-smi` and {VISIBLE}")
    files = [folder / _file_name(device.lock_name) for device in devices]
    place, descriptor = _first_free(files, may_wait, waiting)
    return Lease(devices[place], descriptor)


@contextmanager
def alone(
    name: str,
    folder: Path,
    may_wait: Callable[[], bool] = lambda: True,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Hold the lock of that name; waits until it is free, as `take` does.

    Raises:
        LaunchgapError: `may_wait` said no, or the lock file cannot be opened.
    """
    _, descriptor = _first_free([folder / _file_name(name)], may_wait, waiting)
    try:
        yield
    finally:
        os.close(descriptor)


def _first_free(
    files: Sequence[Path], may_wait: Callable[[], bool], waiting: Callable[[], None]
) -> tuple[int, int]:
    """Lock one of the files; its place among them, and the descriptor that holds the lock."""
    told = False
    while True:
        for place, file in enumerate(files):
            descriptor = _try_lock(file)
            if descriptor is not None:
                return place, descriptor
        if not told:
            waiting()
            told = True
        if not may_wait():
            raise LaunchgapError("whoever started this is gone, so it waits no longer; start again")
        time.sleep(_POLL_S)


def _file_name(lock_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "_", lock_name) + ".lock"


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the file's lock, or None while another process holds it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC  # a lock needs no right to write
    try:
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            descriptor = os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        raise LaunchgapError(
            f"{path}: cannot be opened ({error.strerror}); remove it or set {LOCKS_VARIABLE}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A cleaner of /tmp may have removed the file: a lock that nobody else can find keeps nobody out.
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
