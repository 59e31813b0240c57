"""Load a causal LM: a local folder, the hub, or, visibly, random weights of a shipped architecture.

Latency does not depend on the values of the weights, so a host without the hub still measures the truth;
the text it would generate means nothing, and `ModelFields.reason` says why in every record and report.
"""

from __future__ import annotations

import copy
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from commandline import machine_failure
from contract import LaunchgapError, ModelFields
from inference.attention import missing_attention
from inference.blame import first_line
from inference.presets import Preset, find_preset, preset_names
from inference.trust import (
    PICKLED_WEIGHTS,
    Trust,
    loading_options,
    pickles_refused,
    refuse_hub_attention,
    refused,
    why_pickled,
)

logger = logging.getLogger(__name__)

HUB_TIMEOUT_S = 5.0
"""How long one look at the hub may take before the hub counts as out of reach; there are no retries."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ModelRequest:
    """Which model to load and how. `weights` is `auto`, `pretrained` or `random`.

    Unless `trust` says so, no code of the model's own is run and no pickle is read.
    """

    model: str
    dtype: torch.dtype
    device: torch.device
    attn_implementation: str
    weights: str = "auto"
    seed: int = 0
    trust: Trust = field(default_factory=Trust)


@dataclass(frozen=True)
class LoadedModel:
    """A model in inference mode on its device, and where it came from."""

    model: PreTrainedModel
    fields: ModelFields

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.model.parameters()).device


@dataclass(frozen=True)
class _Source:
    """`location` is a folder or a cached or reachable hub id, or None for random weights of `config`."""

    label: str
    location: str | None
    config: PretrainedConfig | None
    reason: str
    local_only: bool = True


def load_model(request: ModelRequest) -> LoadedModel:
    """Load the model that was asked for.

    Raises:
        LaunchgapError: unknown name, unreadable folder, weights out of reach, attention implementation
            unknown to the model, no memory for it, or code or a pickle that is not trusted.
    """
    refuse_hub_attention(request.attn_implementation, request.trust)
    source = _resolve(request)
    try:
        model = _build(request, source)
    except torch.cuda.OutOfMemoryError as error:
        raise LaunchgapError(
            f"model {request.model}: does not fit into GPU memory; use a smaller model or dtype"
        ) from error
    except (OSError, ValueError, ImportError, RuntimeError, UnpicklingError) as error:
        known = (
            refused(request.model, error)
            or machine_failure(error)
            or missing_attention(request.model, request.attn_implementation, error)
        )
        raise known or LaunchgapError(
            f"model {request.model}: cannot be loaded ({first_line(error)}); check the name "
            "and the attention implementation"
        ) from error
    model.eval().requires_grad_(False)
    if source.location is None:
        logger.warning("%s: random weights (%s). Latency is real, text is not.", request.model, source.reason)
    return LoadedModel(model, _describe(model, source, request.trust))


def max_positions(model: PreTrainedModel) -> int:
    """Longest sequence the model has positions for, in tokens."""
    config = model.config.get_text_config()
    return int(getattr(config, "max_position_embeddings", None) or 2**31)


def float32_copy(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights in fp32 on the same device: the reference that half precision is judged by."""
    reference: PreTrainedModel = copy.deepcopy(model).float()
    return reference


def _resolve(request: ModelRequest) -> _Source:
    name = request.model
    preset = find_preset(name)
    if preset is None and (Path(name).expanduser().exists() or name.startswith(("/", "./", "../", "~"))):
        return _from_folder(request)
    if preset is None and not _HUB_ID.fullmatch(name):
        raise LaunchgapError(
            f"model {name!r}: unknown; use a preset ({', '.join(preset_names())}), "
            "a hub id such as org/name, or a local folder"
        )
    if request.weights == "random":
        return _random(request, preset, "random weights were asked for")
    return _from_hub(request, preset)


def _from_folder(request: ModelRequest) -> _Source:
    folder = Path(request.model).expanduser()
    if not folder.is_dir():
        raise LaunchgapError(
            f"model folder {folder}: no such folder; give one that holds config.json and weights"
        )
    if not os.access(folder, os.R_OK | os.X_OK) or not (folder / "config.json").is_file():
        raise LaunchgapError(
            f"model folder {folder}: holds no readable config.json; save the model there first"
        )
    if request.weights == "random":
        config = _config(request, str(folder), local_only=True)
        return _Source(str(folder), None, config, "random weights were asked for")
    pickled = why_pickled({path.name for path in folder.iterdir()}, request.trust)
    if pickled is not None:
        raise LaunchgapError(f"model folder {folder}: {pickled}")
    return _Source(str(folder), str(folder), None, "")


def _from_hub(request: ModelRequest, preset: Preset | None) -> _Source:
    hub_id = preset.hub_id if preset else request.model
    if _is_cached(hub_id, request.trust.weight_files):
        return _Source(hub_id, hub_id, None, "")
    reason = _why_not_on_hub(hub_id, request.trust)
    if reason is None:
        return _Source(hub_id, hub_id, None, "", local_only=False)
    if request.weights == "pretrained" or preset is None:
        raise LaunchgapError(
            f"model {request.model}: weights not available ({reason}); download them to a folder and "
            f"give its path, or use a preset with random weights ({', '.join(preset_names())})"
        )
    return _random(request, preset, reason)


def _random(request: ModelRequest, preset: Preset | None, reason: str) -> _Source:
    if preset is not None:
        content = dict(preset.config)
        return _Source(
            preset.hub_id, None, AutoConfig.for_model(content.pop("model_type"), **content), reason
        )
    name = request.model
    # A config is read whatever the weights are kept in.
    local_only = _why_not_on_hub(name, Trust(pickle=True)) is not None
    return _Source(name, None, _config(request, name, local_only), reason)


def _config(request: ModelRequest, location: str, local_only: bool) -> PretrainedConfig:
    """The config alone, for random weights."""
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(
            location, local_files_only=local_only, trust_remote_code=request.trust.remote_code
        )
    except (OSError, ValueError) as error:
        raise refused(request.model, error) or LaunchgapError(
            f"model {request.model}: its config is not available ({first_line(error)}); "
            "use a preset or a local folder"
        ) from error
    return config


def _is_cached(hub_id: str, weight_files: Sequence[str]) -> bool:
    return isinstance(try_to_load_from_cache(hub_id, "config.json"), str) and any(
        isinstance(try_to_load_from_cache(hub_id, name), str) for name in weight_files
    )


def _why_not_on_hub(hub_id: str, trust: Trust) -> str | None:
    """None if the hub serves the model as what is trusted, else the reason; one request, no retries.

    Raises:
        LaunchgapError: the hub answered that there is no such model.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        pickled = why_pickled(PICKLED_WEIGHTS, trust) if _is_cached(hub_id, PICKLED_WEIGHTS) else None
        return pickled or "the hub is switched off by HF_HUB_OFFLINE"
    try:
        info = HfApi().model_info(hub_id, timeout=HUB_TIMEOUT_S)
    except GatedRepoError:
        return "the hub wants an access token for it"
    except RepositoryNotFoundError as error:
        raise LaunchgapError(
            f"model {hub_id!r}: unknown to the hub; check the spelling, or log in if it is "
            f"private; presets are {', '.join(preset_names())}"
        ) from error
    except HfHubHTTPError as error:
        return f"the hub answered {error.response.status_code}"
    except Exception as error:  # whatever the HTTP client raises: out of reach
        return f"the hub cannot be reached: {type(error).__name__}"
    return why_pickled({one.rfilename for one in info.siblings or []}, trust)


def _build(request: ModelRequest, source: _Source) -> PreTrainedModel:
    if source.location is not None:
        return _pretrained(request, source)
    assert source.config is not None
    _as_decoder(source.config)
    torch.manual_seed(request.seed)
    # Initialising on the device itself takes seconds where a 7B model on the CPU takes minutes.
    with request.device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            source.config,
            dtype=request.dtype,
            attn_implementation=request.attn_implementation,
            trust_remote_code=request.trust.remote_code,
        )
    return _moved(model, request.device)


def _pretrained(request: ModelRequest, source: _Source) -> PreTrainedModel:
    assert source.location is not None
    local: dict[str, Any] = {"local_files_only": source.local_only}
    config = AutoConfig.from_pretrained(source.location, trust_remote_code=request.trust.remote_code, **local)
    _as_decoder(config)
    # Otherwise transformers asks a service of the hub to convert a pickle, and takes what that gives.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    with pickles_refused(request.model, request.trust):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            source.location,
            config=config,
            dtype=request.dtype,
            attn_implementation=request.attn_implementation,
            **local,
            **loading_options(request.trust),
        )
    return _moved(model, request.device)


def _moved(model: nn.Module, device: torch.device) -> PreTrainedModel:
    # transformers decorates `to` in a way that hides its types; torch's own is the same call.
    moved = nn.Module.to(model, device)
    assert isinstance(moved, PreTrainedModel)
    return moved


def _as_decoder(config: PretrainedConfig) -> None:
    """BERT-like configs are bidirectional unless told otherwise; a causal LM must not see the future."""
    if getattr(config, "is_decoder", None) is False:
        config.is_decoder = True


def _describe(model: PreTrainedModel, source: _Source, trust: Trust) -> ModelFields:
    parameters = list(model.parameters())
    fields = ModelFields(
        architecture=type(model).__name__,
        source=source.label,
        weights="random" if source.location is None else "pretrained",
        reason=source.reason,
        parameters=sum(p.numel() for p in parameters),
        weight_bytes=sum(p.numel() * p.element_size() for p in parameters),
        vocab_size=int(model.config.get_text_config().vocab_size),
        max_positions=max_positions(model),
    )
    if trust.words:
        fields["trusted"] = trust.words
    return fields
