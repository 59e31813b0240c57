"""What the two sides of launchgap share: names, record fields, errors. Imports the standard library only.

`inference` (torch) writes records and emits NVTX ranges; `analysis` (no torch) reads both. Neither imports
the other, so every name that crosses the line is defined here, once.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

SCHEMA_VERSION = 1
"""Version of every JSON record below; readers refuse another one by name."""

NVTX_DOMAIN = "launchgap"
"""NVTX domain of all ranges that launchgap's own executables emit."""


class RangeName(StrEnum):
    """NVTX range names. One `request` contains `copy`, then `forward` or `replay`, then `synchronize`."""

    LOAD = "load"
    WARM_UP = "warm-up"
    CAPTURE = "capture"
    REQUEST = "request"
    COPY = "copy"
    FORWARD = "forward"
    REPLAY = "replay"
    SYNCHRONIZE = "synchronize"


class Strategy(StrEnum):
    """Ways to run one forward pass. `eager` is the baseline of every comparison."""

    EAGER = "eager"
    GRAPH = "graph"
    GRAPH_PADDED = "graph_padded"


class TraceMode(StrEnum):
    """`nsys profile --cuda-graph-trace`: one GPU record per graph node, or one per graph launch."""

    NODE = "node"
    GRAPH = "graph"


class Dtype(StrEnum):
    """Weight and activation types, by torch's own names."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


DEFAULT_PADDED_LENGTH = 1024
"""Length that `graph_padded` is captured at unless told otherwise, in tokens."""

DEFAULT_ATTENTION = "sdpa"
"""Attention implementation that transformers itself picks for the models here."""

ACCEPTANCE_PERCENT = 30.0
"""The acceptance criterion: the reduction's lower bound must clear this many percent."""


class LaunchgapError(Exception):
    """A user's mistake or a machine's limit, told in one line: what, why, what to do. Exit code 2."""


class CaptureError(LaunchgapError):
    """An operation that a graph cannot hold; names the operation and the line of user code."""


class CaseFields(TypedDict):
    """What is measured. `name` is also the folder name of everything made for the case."""

    name: str
    model: str
    dtype: str
    prompt_length: int
    max_length: int
    attn_implementation: str


class ModelFields(TypedDict):
    """Which weights ran. `weights` is `pretrained` or `random`; `reason` says why they are random."""

    architecture: str
    source: str
    weights: Literal["pretrained", "random"]
    reason: str
    parameters: int
    weight_bytes: int
    vocab_size: int
    max_positions: int


class CorrectnessFields(TypedDict):
    """Graph output against the eager output of the same run, over several fresh random inputs.

    Differences are absolute, in logits; None where a logit was not a number. Half precision is judged
    against an fp32 reference: `error_vs_fp32` may exceed `eager_error_vs_fp32` by `half_tolerance_factor`.
    """

    inputs: int
    bitwise: bool
    allclose: bool
    atol: float
    rtol: float
    max_abs_difference: float | None
    same_argmax: bool
    error_vs_fp32: float | None
    eager_error_vs_fp32: float | None
    half_tolerance_factor: float | None
    verdict: Literal["equal", "within tolerance", "DIFFERENT"]
    rule: str


class StrategyFields(TypedDict):
    """One strategy's outcome. Every raw sample is kept, in request order; milliseconds.

    `event_ms` is the forward pass or replay by CUDA events (wall clock in the simulation); `wall_ms` is the
    synchronised wall time of the whole request, input copy included. `attention_mask` tells what a graph
    holds: `none` (as eager), `explicit` (built in the graph) or `static` (fed to a padded one). A failed
    strategy has no samples and says why in `error`.
    """

    status: Literal["ok", "failed"]
    error: str | None
    event_ms: list[float]
    wall_ms: list[float]
    capture_s: float | None
    graph_pool_bytes: int | None
    attention_mask: str | None
    correctness: CorrectnessFields | None


class LatencyRecord(TypedDict):
    """`latency.json`: one case, measured without a profiler, strategies interleaved in one process.

    `aa_event_ms` is a second eager series of the same rounds: eager against eager shows the noise.
    """

    schema_version: int
    kind: Literal["latency"]
    case: CaseFields
    device: Literal["cuda", "cpu"]
    simulated: bool
    settings: dict[str, Any]
    model: ModelFields
    strategies: dict[str, StrategyFields]
    aa_event_ms: list[float]
    environment: dict[str, Any]
    command: list[str]


class TraceRecord(TypedDict):
    """`STRATEGY.MODE.json` beside a trace: what the traced executable did, and under which nsys.

    `event_ms` are times *under the profiler*: they show what the profiler cost and are never a latency.
    `nsys_version` and `nsys_command` are added by the capture step.
    """

    schema_version: int
    kind: Literal["trace"]
    case: CaseFields
    strategy: str
    device: Literal["cuda", "cpu"]
    simulated: bool
    requests: int
    event_ms: list[float]
    wall_ms: list[float]
    model: ModelFields
    environment: dict[str, Any]
    command: list[str]
    trace_mode: NotRequired[str]
    nsys_version: NotRequired[str]
    nsys_command: NotRequired[list[str]]


class PreflightRecord(TypedDict):
    """`preflight.json`: what this host can do. `findings` are one-line sentences: what, why, what to do."""

    schema_version: int
    kind: Literal["preflight"]
    device: Literal["cuda", "cpu"]
    can_trace: bool
    nsys_path: str | None
    nsys_version: str | None
    nvtx_version: str | None
    findings: list[str]


def read_record(path: Path, kind: str) -> dict[str, Any]:
    """Read a JSON record of the given kind.

    Raises:
        LaunchgapError: the file is missing, is no JSON, is of another kind or of another schema version.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchgapError(
            f"{path}: cannot be read ({error.strerror}); make it again with snakemake"
        ) from error
    except ValueError as error:
        raise LaunchgapError(f"{path}: not valid JSON ({error}); delete it and make it again") from error
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise LaunchgapError(f"{path}: not a {kind} record; give the file that launchgap wrote")
    if record.get("schema_version") != SCHEMA_VERSION:
        raise LaunchgapError(
            f"{path}: record schema {record.get('schema_version')!r}, this launchgap reads {SCHEMA_VERSION}; "
            "measure again or use the version that wrote it"
        )
    return record


def case_name(
    model: str, dtype: str, prompt_length: int, max_length: int, attn_implementation: str = DEFAULT_ATTENTION
) -> str:
    """Folder name of a case: the model's last path part and what was varied, in shell-safe letters."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-.") or "model"
    name = f"{slug}-{dtype}-p{prompt_length}-m{max_length}"
    return name if attn_implementation == DEFAULT_ATTENTION else f"{name}-{attn_implementation}"
