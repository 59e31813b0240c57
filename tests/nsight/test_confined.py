"""What a confined process sees of the host, and what a user is told where it cannot be confined."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from nsight import confined
from nsight.confined import (
    CONFINED_VARIABLE,
    LISTENS,
    SEES_OTHERS,
    confinement,
    unconfined,
)

# Prints how many other environments it can read, whether it can read its own, and the networks it has.
LOOK = """
import os
from pathlib import Path

def readable(process):
    try:
        return bool(Path(f"/proc/{process}/environ").read_bytes())
    except OSError:
        return False

others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
print(sum(map(readable, others)), readable(os.getpid()), *sorted(os.listdir("/proc/self/net/dev_snmp6")))
"""


@pytest.fixture
def asked_anew() -> Iterator[None]:
    confined._works.cache_clear()
    yield
    confined._works.cache_clear()


def _look() -> list[str]:
    command = [sys.executable, "-c", LOOK]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=confinement()
    ).stdout.split()


def test_it_sees_itself_alone_and_no_network() -> None:
    assert unconfined() == []
    assert _look() == ["0", "True", "lo"]


def test_who_asks_for_it_is_not_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFINED_VARIABLE, "0")
    assert unconfined() == [SEES_OTHERS, LISTENS]
    assert int(_look()[0]) > 0


@pytest.mark.usefixtures("asked_anew")
def test_a_host_that_lets_nobody_confine_is_told_of_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container's filter of system calls answers; a stand-in, since this host does let."""

    class Refusing:
        def unshare(self, _flags: int) -> int:
            return -1

        def syscall(self, *_: object) -> int:
            return -1

        def prctl(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(confined, "_library", Refusing)
    assert unconfined() == [SEES_OTHERS, LISTENS]
    assert int(_look()[0]) > 0
