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
    """Ways to run one forward pass. `eager` is the baseline of every comparison.

    The first three are measured unless told otherwise. What each does and gives: docs/definitions.md.
    """

    EAGER = "eager"
    GRAPH = "graph"
    GRAPH_PADDED = "graph_padded"
    EAGER_UNMASKED = "eager_unmasked"
    EAGER_LAST = "eager_last"
    GRAPH_LAST = "graph_last"
    GRAPH_BUCKETED = "graph_bucketed"
    GRAPH_FUSED = "graph_fused"
    COMPILED_DEFAULT = "compiled_default"
    COMPILED = "compiled"
    GRAPHED_CALLABLE = "graphed_callable"


DEFAULT_STRATEGIES = (Strategy.EAGER, Strategy.GRAPH, Strategy.GRAPH_PADDED)
"""What is measured and traced unless told otherwise."""

WITHOUT_GRAPH = frozenset(
    {Strategy.EAGER, Strategy.EAGER_UNMASKED, Strategy.EAGER_LAST, Strategy.COMPILED_DEFAULT}
)
"""Strategies that launch their kernels one by one: there is no graph for nsys to see."""


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

    `logits` tells which ones a request gives, those of every token or of the last alone, and `compile_s` the
    seconds that a compiler took before the first request. Older records and failed strategies have neither.
    """

    status: Literal["ok", "failed"]
    error: str | None
    event_ms: list[float]
    wall_ms: list[float]
    capture_s: float | None
    graph_pool_bytes: int | None
    attention_mask: str | None
    correctness: CorrectnessFields | None
    logits: NotRequired[Literal["all", "last"]]
    compile_s: NotRequired[float | None]


class FloorFields(TypedDict):
    """The time that no forward pass at batch 1 can beat: reading the weights once from the device's memory.

    `bandwidth_bytes_per_s` is what a read of a large buffer achieved on this device, None in the simulation.
    `weight_bytes_read` leaves out tables of which few rows are read; None where the tokens decide (experts).
    """

    bandwidth_bytes_per_s: float | None
    weight_bytes_read: int | None
    floor_ms: float | None


class LatencyRecord(TypedDict):
    """`latency.json`: one case, measured without a profiler, strategies interleaved in one process.

    `aa_event_ms` is a second eager series of the same rounds: eager against eager shows the noise. Older
    records have no `floor`.
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
    floor: NotRequired[FloorFields]


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


class GenerationStrategy(StrEnum):
    """Ways to generate tokens. `generate`, transformers' own, is the baseline; the last two are peers."""

    GENERATE = "generate"
    GENERATE_STATIC = "generate_static"
    GRAPH = "graph"
    GRAPH_FUSED = "graph_fused"
    VLLM = "vllm"
    SGLANG = "sglang"


class TokenAgreementFields(TypedDict):
    """Greedy tokens of one prompt against those of `generate`.

    At the first difference `logits` holds the logit of our token and of theirs as we see them, and
    `reference_logits` as `generate` does; None where there is no difference or the logits cannot be had.
    """

    identical: bool
    first_divergence: int | None
    logits: list[float] | None
    reference_logits: list[float] | None


class GenerationFields(TypedDict):
    """One way to generate. Every raw sample is kept, in round order; wall milliseconds of a whole request.

    `wall_ms` are requests of `new_tokens` tokens and `half_wall_ms` of `half_tokens`, from the prompt on the
    host to the tokens on the host. `first_request_s` is the first request with all that it builds, captures
    and compiles; `capture_s` and `compile_s` are what launchgap itself did of that. `agreement` is None where
    nothing was compared. `interleaved` tells whether the samples took turns with those of the others. `notes`
    say what a reader of the numbers should know, such as a piece that could not be compiled.
    """

    status: Literal["ok", "failed", "unavailable"]
    reason: str | None
    notes: list[str]
    interleaved: bool
    first_request_s: float | None
    capture_s: float | None
    compile_s: float | None
    wall_ms: list[float]
    half_wall_ms: list[float]
    agreement: TokenAgreementFields | None


class GenerationRecord(TypedDict):
    """`generation.json`: greedy generation at batch 1 without a profiler, by several means in one run.

    `weight_bytes_read` is what one token reads of the weights, None for a mixture of experts;
    `read_bandwidth_bytes_per_s` was reached in this run, None in the simulation; their quotient is
    `floor_ms_per_token`.
    """

    schema_version: int
    kind: Literal["generation"]
    case: CaseFields
    device: Literal["cuda", "cpu"]
    simulated: bool
    settings: dict[str, Any]
    model: ModelFields
    strategies: dict[str, GenerationFields]
    weight_bytes_read: int | None
    read_bandwidth_bytes_per_s: float | None
    floor_ms_per_token: float | None
    environment: dict[str, Any]
    command: list[str]


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
