"""The JSON records that travel between the two sides, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from contract.names import SCHEMA_VERSION, LaunchgapError


class CaseFields(TypedDict):
    """What is measured. `name` is also the folder name of everything made for the case.

    `phase` is there for a decode step: then `prompt_length` counts the step's own token and those before it,
    and `max_length` the slots of the cache.
    """

    name: str
    model: str
    dtype: str
    prompt_length: int
    max_length: int
    attn_implementation: str
    phase: NotRequired[str]


class ModelFields(TypedDict):
    """Which weights ran. `weights` is `pretrained` or `random`; `reason` says why they are random.

    `trusted` is there if the user let the model run code of its own or be read from a pickle.
    """

    architecture: str
    source: str
    weights: Literal["pretrained", "random"]
    reason: str
    parameters: int
    weight_bytes: int
    vocab_size: int
    max_positions: int
    trusted: NotRequired[list[Literal["remote code", "pickle"]]]


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

    `aa_event_ms` is a second eager series of the same rounds: eager against eager shows the noise.
    `other_streams` tells whether a strategy ran kernels on another stream than the one of the replays, which
    can make every graph of the process slower (docs/prediction.md). Older records have no `floor`, and no
    `other_streams`.
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
    other_streams: NotRequired[bool]
    floor: NotRequired[FloorFields]


class TraceRecord(TypedDict):
    """`STRATEGY.MODE.json` beside a trace: what the traced executable did, and under which nsys.

    `event_ms` are times *under the profiler*: they show what the profiler cost and are never a latency.
    `nsys_version` and `nsys_command` are added by the capture step. `tracer` is there if it was not nsys,
    `annotate` if every module had a range of its own, which makes the host slower.
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
    tracer: NotRequired[Literal["torch"]]
    annotate: NotRequired[Literal["modules"]]
    nsys_version: NotRequired[str]
    nsys_command: NotRequired[list[str]]


class PreflightRecord(TypedDict):
    """`preflight.json`: what this host can do. `findings` are one-line sentences: what, why, what to do.

    `tracer` is what records the traces; older records have none, and it was nsys then if anything.
    """

    schema_version: int
    kind: Literal["preflight"]
    device: Literal["cuda", "cpu"]
    can_trace: bool
    tracer: NotRequired[Literal["nsys", "torch"] | None]
    nsys_path: str | None
    nsys_version: str | None
    nvtx_version: str | None
    findings: list[str]


def read_record(path: Path, kind: str, remedy: str = "") -> dict[str, Any]:
    """Read a JSON record of the given kind; `remedy` says how it is made anew, where the reader knows.

    Raises:
        LaunchgapError: the file is missing, is no JSON, is of another kind or of another schema version.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchgapError(
            f"{path}: cannot be read ({error.strerror}); "
            + (remedy or f"give the {kind} record that launchgap wrote")
        ) from error
    except ValueError as error:
        # Whose file it is cannot be told, so nothing is said of deleting it.
        raise LaunchgapError(
            f"{path}: not valid JSON ({error}), so no {kind} record; "
            + (remedy or "give the file that launchgap wrote, or run again what writes it")
        ) from error
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise LaunchgapError(f"{path}: not a {kind} record; {remedy or 'give the file that launchgap wrote'}")
    if record.get("schema_version") != SCHEMA_VERSION:
        raise LaunchgapError(
            f"{path}: record schema {record.get('schema_version')!r}, this launchgap reads {SCHEMA_VERSION}; "
            + (remedy or "measure again or use the version that wrote it")
        )
    return record
