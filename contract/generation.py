"""The record of the generation benchmark."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from contract.records import CaseFields, ModelFields


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
