"""Real architectures of a few thousand weights, large enough in value that their tokens do not all repeat."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from transformers import (
    AttentionInterface,
    BertConfig,
    BertLMHeadModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from inference.simulation import _is_recording

# Tensors of this size are done before a second thread has heard of them.
torch.set_num_threads(1)

READS_BACK = "attention_that_reads_back"
"""Attention that asks the device for a value, as eager may and a capture may not."""


def _reading_back(module: torch.nn.Module, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    query.sum().item()
    return sdpa_attention_forward(module, query, *args, **kwargs)


AttentionInterface.register(READS_BACK, _reading_back)
AttentionMaskInterface.register(READS_BACK, sdpa_mask)

VOCABULARY = 96
POSITIONS = 48
WINDOW = 6

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_GATED: dict[str, Any] = {"intermediate_size": 32, "num_key_value_heads": 2}
_GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_positions": POSITIONS,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
_UNTIED: dict[str, Any] = {"tie_word_embeddings": False}
_MIXED_LAYERS: dict[str, Any] = {
    "layer_types": ["sliding_attention", "full_attention"],
    "head_dim": 4,
    "sliding_window": WINDOW,
    **_UNTIED,
}

_BUILD: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**_GPT2)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE, **_GATED)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**_SHAPE, **_GATED, sliding_window=WINDOW)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE, **_GATED)),
    "opt": lambda: OPTForCausalLM(OPTConfig(**_SHAPE, ffn_dim=32, word_embed_proj_dim=16)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**_SHAPE, intermediate_size=32)),
    "bert": lambda: BertLMHeadModel(BertConfig(**(_SHAPE | _UNTIED | {"pad_token_id": 0}), is_decoder=True)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**_SHAPE, **_GATED, **_MIXED_LAYERS)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**_SHAPE, **_GATED, num_local_experts=4)),
    "mamba": lambda: MambaForCausalLM(
        MambaConfig(
            vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4, eos_token_id=None
        )
    ),
}


def tiny(family: str, seed: int = 0) -> PreTrainedModel:
    """A model in eval mode with random weights."""
    torch.manual_seed(seed)
    model = _BUILD[family]()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, 0.5)
    model.eval().requires_grad_(False)
    return model


def shallow(family: str) -> PreTrainedModel:
    """The same with one layer: for tests that compile it, or capture it dozens of times."""
    model = tiny(family)
    body: Any = model.base_model
    del (body.h if family == "gpt2" else body.layers)[1:]
    model.config.num_hidden_layers = 1
    return model


def interrupt_at(model: PreTrainedModel, call: int, error: BaseException) -> SimpleNamespace:
    """Let the given call of the last layer from now on raise; 0 only counts.

    The result has `calls`, `was_recording` (whether that call lay within a capture) and the hook's `handle`.
    """
    counter = SimpleNamespace(calls=0, was_recording=False)

    def hook(*_: object) -> None:
        counter.calls += 1
        if counter.calls == call:
            counter.was_recording = _is_recording()
            raise error

    *_, last = model.get_submodule("model.layers").children()
    counter.handle = last.register_forward_pre_hook(hook)
    return counter


def one_line(error: BaseException) -> bool:
    """Whether an error is a single line: the thing and the reason, then what to do or what may be given."""
    return re.fullmatch(r"[^\n]{5,}?(; [^\n]+|: give [^\n]+|: must be [^\n]+)", str(error)) is not None


def restore(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    """Put parameters and buffers back by name, as after a move to another device and back."""
    for name, tensor in tensors.items():
        owner, _, key = name.rpartition(".")
        module = model.get_submodule(owner)
        is_weight = key in module._parameters
        setattr(module, key, torch.nn.Parameter(tensor, requires_grad=False) if is_weight else tensor)
