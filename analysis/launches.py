"""Which CUDA API calls are launches, and of which kind.

A launch is a host call that puts work on a GPU stream. Names carry version and stream-mode suffixes
(`cudaLaunchKernel_v7000`, `cuMemcpyHtoDAsync_v2_ptsz`) that say nothing about what is launched.
"""

from __future__ import annotations

import re
from enum import StrEnum

import numpy as np
import pandas as pd


class LaunchKind(StrEnum):
    """What a launch call puts on the stream."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    GRAPH = "graph"


_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
# cudaLaunchHostFunc and cuLaunchHostFunc run on the host: no launch.
_PATTERNS = {
    LaunchKind.GRAPH: re.compile(r"cu(?:da)?GraphLaunch"),
    LaunchKind.KERNEL: re.compile(r"cu(?:da)?Launch(?!HostFunc)\w*"),
    LaunchKind.MEMCPY: re.compile(r"cu(?:da)?Memcpy\w*"),
    LaunchKind.MEMSET: re.compile(r"cu(?:da)?Memset\w*"),
}


def api_name(recorded: str) -> str:
    """The call's name without version and stream-mode suffixes."""
    return _SUFFIX.sub("", recorded) or recorded


def launch_kind(recorded: str) -> LaunchKind | None:
    """The kind of launch a call is; None for a call that launches nothing."""
    name = api_name(recorded)
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(name)), None)


def launch_calls(api_calls: pd.DataFrame) -> pd.DataFrame:
    """The launches among a trace's API calls, with `api` (name without suffixes) and `kind` added.

    The index is that of `api_calls`, so that a launch can be found again.
    """
    names = api_calls["name"].cat.categories
    kinds = np.array([launch_kind(name) for name in names], dtype=np.object_)
    # A missing name has the code -1, which is the added last place.
    is_launch = np.array([*(kind is not None for kind in kinds), False], dtype=np.bool_)
    found = api_calls[is_launch[api_calls["name"].cat.codes.to_numpy()]]
    kept = found["name"].cat.codes.to_numpy()
    api = np.array([api_name(name) for name in names], dtype=np.object_)[kept]
    kind = np.array([str(kind) for kind in kinds], dtype=np.object_)[kept]
    return found.assign(api=pd.Series(api, found.index), kind=pd.Series(kind, found.index))
