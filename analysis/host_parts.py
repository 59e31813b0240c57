"""What the host's time goes to, as names; `analysis.host_ledger` tells them apart."""

from __future__ import annotations

from enum import StrEnum


class HostPart(StrEnum):
    """What a CUDA call spends the host's time on."""

    LAUNCHES = "launches"
    SYNCHRONISING = "synchronising"
    COPIES = "copies"
    ALLOCATIONS = "allocations"
    OTHER_API = "other_api"
