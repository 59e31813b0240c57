"""Bytes that a token reads, counted here by the parameters' names and there by the modules' kinds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from inference.families import FAMILIES, Family, tiny_model
from inference.floor import floor_ms, read_bandwidth_bytes_per_s, weight_bytes_read
from tests.inference.tiny_models import tiny

CPU = torch.device("cpu")


def bytes_without(model: PreTrainedModel, *names: str) -> int:
    weights = dict(model.named_parameters())
    assert set(names) <= set(weights)
    return sum(
        weight.numel() * weight.element_size() for name, weight in weights.items() if name not in names
    )


def llama(*, tied: bool) -> PreTrainedModel:
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=96, tie_word_embeddings=tied, **sizes))


@pytest.mark.parametrize(
    ("family", "tables"),
    [
        ("gpt2", ["transformer.wte.weight", "transformer.wpe.weight"]),
        ("gpt_neox", ["gpt_neox.embed_in.weight"]),
        # OPT ties its output to the input embedding, which is therefore read.
        ("opt", ["model.decoder.embed_positions.weight"]),
    ],
)
def test_lookup_tables_are_left_out(family: str, tables: list[str]) -> None:
    model = tiny(family)
    assert weight_bytes_read(model) == bytes_without(model, *tables) < bytes_without(model)


def test_a_tied_embedding_is_read_once_and_an_untied_one_not_at_all() -> None:
    tied, untied = llama(tied=True), llama(tied=False)
    assert weight_bytes_read(tied) == weight_bytes_read(untied) == bytes_without(tied)
    assert bytes_without(untied) == bytes_without(tied) + 96 * 16 * 4


def test_half_precision_is_half_the_bytes() -> None:
    model = tiny("llama")
    full = weight_bytes_read(model)
    assert full is not None
    nn.Module.to(model, torch.bfloat16)
    assert weight_bytes_read(model) == full // 2


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_experts_alone_have_no_floor(family: Family) -> None:
    read = weight_bytes_read(tiny_model(family))
    assert (read is None) == (family.model_type in ("mixtral", "qwen2_moe", "gpt_oss"))


def test_the_floor_is_bytes_over_bandwidth() -> None:
    assert floor_ms(8 * 10**9, 4e12) == pytest.approx(2.0)
    assert floor_ms(None, 4e12) is None
    assert floor_ms(8 * 10**9, None) is None


def test_the_cpu_has_no_bandwidth() -> None:
    assert read_bandwidth_bytes_per_s(CPU) is None


@pytest.mark.gpu
def test_the_bandwidth_repeats_and_leaves_no_memory_behind() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    before = torch.cuda.memory_allocated(device)
    first, second = read_bandwidth_bytes_per_s(device), read_bandwidth_bytes_per_s(device)
    assert first is not None
    assert first == pytest.approx(second, rel=0.3)
    assert torch.cuda.memory_allocated(device) == before
