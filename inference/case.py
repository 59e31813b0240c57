"""A case made ready to run: device, dtype, model and lengths checked, in the order that fails soonest."""

from __future__ import annotations

from dataclasses import dataclass

from contract import (
    DEFAULT_ATTENTION,
    DEFAULT_PADDED_LENGTH,
    CaseFields,
    Dtype,
    LaunchgapError,
    case_name,
)
from inference.backends import Backend, make_backend
from inference.devices import forbid_tf32, resolve_device, resolve_dtype
from inference.loading import LoadedModel, ModelRequest, load_model
from inference.strategies import check_lengths


@dataclass(frozen=True)
class CaseOptions:
    """What a user chooses: model, precision and lengths in tokens.

    `max_length` None stands for 1024 or the model's last position, whichever is less.
    """

    model: str = "gpt2"
    dtype: str = Dtype.FLOAT32.value
    device: str = "auto"
    prompt_length: int = 50
    max_length: int | None = None
    attn_implementation: str = DEFAULT_ATTENTION
    weights: str = "auto"
    seed: int = 0


@dataclass(frozen=True)
class ReadyCase:
    """A loaded model with everything needed to run it."""

    fields: CaseFields
    loaded: LoadedModel
    backend: Backend


def open_case(options: CaseOptions) -> ReadyCase:
    """Check the options and load the model.

    Raises:
        LaunchgapError: an unusable device, dtype, model or length.
    """
    if options.prompt_length < 1:
        raise LaunchgapError(f"prompt length {options.prompt_length}: must be 1 or more")
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    forbid_tf32()
    loaded = load_model(
        ModelRequest(options.model, dtype, device, options.attn_implementation, options.weights, options.seed)
    )
    positions = loaded.fields["max_positions"]
    max_length = options.max_length or min(DEFAULT_PADDED_LENGTH, positions)
    check_lengths(options.prompt_length, max_length, positions)
    fields = CaseFields(
        name=case_name(
            options.model, options.dtype, options.prompt_length, max_length, options.attn_implementation
        ),
        model=options.model,
        dtype=options.dtype,
        prompt_length=options.prompt_length,
        max_length=max_length,
        attn_implementation=options.attn_implementation,
    )
    return ReadyCase(fields, loaded, make_backend(device))
