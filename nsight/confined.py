"""Keeps nsys, and what it runs, from the environments of the host's other processes and from its networks.

nsys stores in every trace the environment of each process that it may look at, that of a user's shell with
its tokens included, and while it records it takes connections on a port of every network interface. No option
turns either off. Linux does: Landlock lets a process that restricts itself look only into processes that are
restricted with it, and in a network of its own there is nobody but itself. See docs/security.md.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

# The same wherever CUDA runs: asm-generic/unistd.h, linux/landlock.h, linux/capability.h, linux/prctl.h,
# linux/sched.h, linux/sockios.h, net/if.h.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_ACCESS_FS_MAKE_BLOCK = 1 << 11
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_LOOK_ANYWAY = (21, 38)
"""CAP_SYS_ADMIN and CAP_PERFMON read any process's memory, Landlock or not. Tracing CUDA needs neither."""

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_INTERFACE_FLAGS, _INTERFACE_UP = 0x8914, 1

CONFINED_VARIABLE = "LAUNCHGAP_CONFINED"
"""Environment variable: 0 leaves nsys as it is."""

SEES_OTHERS = (
    "nsys: this host has no Landlock to keep it from the environments of other processes, which it stores "
    "in every trace; give nobody a trace that `python -m analysis scrub` has not been over"
)
LISTENS = (
    "nsys: takes connections from every network while it records, and this host grants it no network of its "
    "own; trace where you trust the network, or as root"
)


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


def confinement() -> Callable[[], None]:
    """For `Popen(preexec_fn=...)`: confines the process that calls it, as far as this host can and is let."""
    steps = confining()

    def confine() -> None:
        for step in steps:
            step()

    return confine


def confining() -> list[Callable[[], None]]:
    """What this host can do to confine a process and is let."""
    return [step for step in (_cut_off, _look_away) if _wanted() and _works(step)]


def unconfined() -> list[str]:
    """What nsys is not kept from here, as findings."""
    steps = confining()
    each = ((_look_away, SEES_OTHERS), (_cut_off, LISTENS))
    return [text for step, text in each if step not in steps]


def _wanted() -> bool:
    return os.environ.get(CONFINED_VARIABLE) != "0"


@cache
def _works(step: Callable[[], None]) -> bool:
    """Whether a process can do this to itself. Tried in one that does nothing else: it may fail half-way."""
    try:
        return subprocess.run(["/bin/true"], preexec_fn=step, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _look_away() -> None:
    """See no process but those started from here on.

    A ruleset has to forbid something: it is the making of block devices, which nobody here does. Root gives
    up two capabilities with it, and anybody else set-user-id programs, as the kernel demands.

    Raises:
        OSError: this kernel has no Landlock, or a container forbids it.
    """
    library, rules = _library(), _Ruleset(_ACCESS_FS_MAKE_BLOCK)
    ruleset = library.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    refused = library.syscall(_RESTRICT_SELF, ruleset, 0)
    if refused and ctypes.get_errno() == errno.EPERM:
        library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        refused = library.syscall(_RESTRICT_SELF, ruleset, 0)
    if refused:
        raise OSError(ctypes.get_errno(), "no Landlock")
    for capability in _LOOK_ANYWAY:
        library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _cut_off() -> None:
    """Have a network of one's own, where nsys finds its parts and nobody finds nsys.

    Without root that takes a user namespace as well, in which everybody keeps the same number.

    Raises:
        OSError: this host does not allow it.
    """
    library, user, group = _library(), os.getuid(), os.getgid()
    if library.unshare(_NEW_NETWORK):
        if library.unshare(_NEW_USER | _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no network of its own")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", _INTERFACE_UP))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
