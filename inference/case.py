"""A case made ready to run: device, dtype, model and lengths checked, in the order that fails soonest."""

from __future__ import annotations

from dataclasses import dataclass

from contract import (
    DEFAULT_ATTENTION,
    DEFAULT_DECODE_SLOTS,
    DEFAULT_PADDED_LENGTH,
    CaseFields,
    Dtype,
    LaunchgapError,
    Phase,
    case_name,
)
from inference.backends import Backend, make_backend
from inference.decode_step import check_slots
from inference.devices import forbid_tf32, resolve_device, resolve_dtype
from inference.loading import LoadedModel, ModelRequest, load_model
from inference.strategies import check_lengths
from inference.trust import Trust


@dataclass(frozen=True)
class CaseOptions:
    """What a user chooses: model, precision, lengths in tokens, and what a request is.

    `max_length` None stands for 1024, in the phase `decode` for 128, or the model's last position, whichever
    is less. `trust_remote_code` lets code run that comes with the model, `allow_pickle` lets its weights be
    read from a pickle.
    """

    model: str = "gpt2"
    dtype: str = Dtype.FLOAT32.value
    device: str = "auto"
    prompt_length: int = 50
    max_length: int | None = None
    attn_implementation: str = DEFAULT_ATTENTION
    weights: str = "auto"
    seed: int = 0
    phase: str = Phase.PREFILL.value
    trust_remote_code: bool = False
    allow_pickle: bool = False


@dataclass(frozen=True)
class ReadyCase:
    """A loaded model with everything needed to run it."""

    fields: CaseFields
    loaded: LoadedModel
    backend: Backend

    @property
    def phase(self) -> Phase:
        """What a request is."""
        return Phase(self.fields.get("phase", Phase.PREFILL))


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
        ModelRequest(
            options.model,
            dtype,
            device,
            options.attn_implementation,
            options.weights,
            options.seed,
            Trust(options.trust_remote_code, options.allow_pickle),
        )
    )
    positions = loaded.fields["max_positions"]
    is_step = options.phase == Phase.DECODE
    usual = DEFAULT_DECODE_SLOTS if is_step else DEFAULT_PADDED_LENGTH
    max_length = options.max_length or min(usual, positions)
    check_lengths(options.prompt_length, max_length, positions)
    if is_step:
        check_slots(options.prompt_length, max_length)
    fields = CaseFields(
        name=case_name(
            options.model,
            options.dtype,
            options.prompt_length,
            max_length,
            options.attn_implementation,
            options.phase,
        ),
        model=options.model,
        dtype=options.dtype,
        prompt_length=options.prompt_length,
        max_length=max_length,
        attn_implementation=options.attn_implementation,
    )
    if is_step:
        fields["phase"] = options.phase
    return ReadyCase(fields, loaded, make_backend(device))
