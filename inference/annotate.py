"""NVTX ranges in launchgap's own domain, or none: the measured and the traced request share one code path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import nvtx

from contract import NVTX_DOMAIN, RangeName

Annotate = Callable[[RangeName], AbstractContextManager[object]]
"""Opens the range of that name around a `with` block."""

_COLORS = {
    RangeName.LOAD: "grey",
    RangeName.WARM_UP: "orange",
    RangeName.CAPTURE: "purple",
    RangeName.REQUEST: "blue",
    RangeName.COPY: "yellow",
    RangeName.FORWARD: "green",
    RangeName.REPLAY: "green",
    RangeName.SYNCHRONIZE: "red",
}


def nothing(_name: RangeName) -> AbstractContextManager[object]:
    """No range at all, for unprofiled runs."""
    return nullcontext()


def nvtx_range(name: RangeName) -> AbstractContextManager[object]:
    """A push/pop range that Nsight Systems shows; costs well under a microsecond when nobody records."""
    opened: AbstractContextManager[object] = nvtx.annotate(
        name.value, color=_COLORS[name], domain=NVTX_DOMAIN
    )
    return opened
