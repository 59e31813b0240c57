"""One causal LM called eagerly on a prompt, or on static inputs with its logits cut on the device."""

from __future__ import annotations

import inspect
from typing import Literal

import torch
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference.loading import max_positions
from inference.staging import StaticInputs

Logits = Literal["last", "all"]
"""Which logits are wanted: those after the last real token, or those of every token."""


class ModelCall:
    """A model and what its forward pass can be asked for.

    Attributes:
        device: where all parameters and buffers are.
        vocabulary: rows of the input embedding; an id at or above it would be a device-side assert.
        positions: longest sequence the model has positions for, in tokens.
        takes_positions: whether position ids can be given.
    """

    def __init__(self, model: PreTrainedModel, logits: Logits) -> None:
        """Look at the model without running it.

        Raises:
            LaunchgapError: no causal LM of transformers, or spread over several devices.
        """
        if not _is_causal_lm(model):
            raise LaunchgapError(
                f"model of type {type(model).__name__}: not a causal LM of transformers; "
                "load one with AutoModelForCausalLM"
            )
        self.model = model
        self.wanted = logits
        self.device = _only_device(model)
        self.positions = max_positions(model)
        self.vocabulary = vocabulary_of(model)
        names = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in names
        self._cuts_logits = "logits_to_keep" in names

    @torch.no_grad()
    def eager(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of an unpadded prompt, ids of shape (1, n) on the device: (1, 1 or n, vocabulary).

        Without a mask, which would make eager synchronise.
        """
        if self.wanted == "last" and self._cuts_logits:
            return self._logits(ids, logits_to_keep=1)
        logits = self._logits(ids)
        return logits[:, -1:] if self.wanted == "last" else logits

    @torch.no_grad()
    def static(self, inputs: StaticInputs) -> torch.Tensor:
        """Logits of the padded prompt in static storage: (1, 1 or length, vocabulary). Reads no value."""
        more: dict[str, torch.Tensor | None] = {"attention_mask": inputs.mask}
        if inputs.positions is not None and self.takes_positions:
            more["position_ids"] = inputs.positions
        if self.wanted == "all":
            return self._logits(inputs.ids, **more)
        if self._cuts_logits:
            return self._logits(inputs.ids, logits_to_keep=inputs.last, **more)
        return self._logits(inputs.ids, **more).index_select(1, inputs.last)

    def _logits(self, ids: torch.Tensor, **more: torch.Tensor | int | None) -> torch.Tensor:
        logits = getattr(self.model(input_ids=ids, use_cache=False, **more), "logits", None)
        if not isinstance(logits, torch.Tensor):
            raise LaunchgapError(
                f"model {type(self.model).__name__}: returns no logits; load it with AutoModelForCausalLM "
                "and leave config.return_dict on"
            )
        return logits


def vocabulary_of(model: PreTrainedModel) -> int:
    """Rows of the input embedding, which bound the token ids."""
    embedding = getattr(model.get_input_embeddings(), "weight", None)
    return int(model.config.get_text_config().vocab_size if embedding is None else embedding.shape[0])


def _is_causal_lm(model: object) -> bool:
    if not isinstance(model, PreTrainedModel) or model.config.is_encoder_decoder:
        return False
    return model.get_output_embeddings() is not None


def _only_device(model: PreTrainedModel) -> torch.device:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(devices) != 1:
        where = ", ".join(sorted(map(str, devices))) or "no device"
        raise LaunchgapError(
            f"model {type(model).__name__}: its weights are on {where}; put all on one device with model.to()"
        )
    device = devices.pop()
    if device.type not in ("cuda", "cpu"):
        raise LaunchgapError(
            f"model {type(model).__name__}: its weights are on {device}; move it to cuda, "
            "or to cpu for the simulation"
        )
    return device
