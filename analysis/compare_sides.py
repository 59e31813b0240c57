"""What is known of one side of a comparison, whether it was read from results, a report or a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from analysis.finding import Finding
from analysis.latency import Reduction

LAUNCH_KEYS = ("strategy", "trace_mode", "api", "kind")
KERNEL_KEYS = ("strategy", "kernel", "full_name")


@dataclass(frozen=True)
class Measured:
    """One strategy of a case.

    Attributes:
        status: `ok`, or `failed` with the reason in `error`.
        samples_ms: every latency in round order, milliseconds; empty where only a summary is known.
        median_ms, drift_percent: of these samples; None where nothing was measured.
        output_differs: its output was compared with eager's and differs.
        launches, kernels: per request as traced, means; None where no trace shows them.
    """

    status: str
    error: str | None = None
    samples_ms: tuple[float, ...] = ()
    median_ms: float | None = None
    drift_percent: float | None = None
    output_differs: bool = False
    launches: float | None = None
    kernels: float | None = None


@dataclass(frozen=True)
class Case:
    """One case of a side.

    Attributes:
        identity: model, dtype, lengths and so on, by name.
        device: `cuda`, `cpu`; None where a trace does not tell.
        strategies: by name.
        noise: eager against eager (A/A) in this run; None where there is no such series.
        seed: of the run, for the bootstrap.
        environment: what may explain a change, by name.
        launches: columns of `LAUNCH_KEYS`, calls_per_request, launch_api_us_per_request; None untraced.
        kernels: columns of `KERNEL_KEYS`, calls_per_request, mean_us, total_us_per_request; None untraced.
        durations: of each kernel call, columns request, full_name, us; None where only tables are known.
    """

    identity: Mapping[str, Any]
    device: str | None
    strategies: Mapping[str, Measured]
    noise: Reduction | None = None
    seed: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    launches: pd.DataFrame | None = None
    kernels: pd.DataFrame | None = None
    durations: pd.DataFrame | None = None


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: what it was read from.
        kind: `run`, which has latencies, or `trace`.
        cases: by name.
        broken: cases that cannot be used, with the reason.
        findings: what a reader must know before believing a number.
    """

    name: str
    kind: Literal["run", "trace"]
    cases: Mapping[str, Case]
    broken: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
