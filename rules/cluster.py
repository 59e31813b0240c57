"""What a run on a cluster must say that a run on one host need not."""

from __future__ import annotations

from contract import LaunchgapError


def check_device(device: str, nodes: int | None) -> None:
    """Check that the device is said where jobs run on other hosts: those cannot be looked at from here.

    Args:
        device: the setting, `auto` included.
        nodes: jobs that may be submitted at the same time; None where they run on this host.

    Raises:
        LaunchgapError: `auto` on a cluster, which would take a login node without a GPU for all there is.
    """
    if device == "auto" and nodes is not None:
        raise LaunchgapError(
            "config: device: auto would look for a GPU on this host, and the jobs run on others; "
            "give --config device=cuda, beside what else --config says, or device=cpu for the simulation"
        )
