"""Recorded graphs of real transformers models, tiny and random: bitwise equal to eager on fresh inputs."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    StaticCache,
)

from contract import CaptureError
from inference.simulation import RecordedGraph, record

VOCABULARY, LENGTH = 101, 16


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2,
            n_embd=32,
            n_head=2,
            vocab_size=VOCABULARY,
            n_positions=64,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def bert() -> PreTrainedModel:
    return BertLMHeadModel(
        BertConfig(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            intermediate_size=64,
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
            is_decoder=True,
        )
    )


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            vocab_size=VOCABULARY,
        )
    )


@pytest.fixture(params=[gpt2, bert, llama], ids=lambda make: make.__name__)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(0)
    made = request.param().eval()
    assert isinstance(made, PreTrainedModel)
    return made


def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (1, LENGTH))


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_replay_is_bitwise_eager(
    model: PreTrainedModel, guard: Callable[[], AbstractContextManager[object]]
) -> None:
    static, graph = tokens(), RecordedGraph()
    with guard(), record(graph):
        output = model(input_ids=static, use_cache=False).logits
    address, seen = output.data_ptr(), []
    for _ in range(3):
        fresh = tokens()
        static.copy_(fresh)
        graph.replay()
        with guard():
            assert torch.equal(output, model(input_ids=fresh, use_cache=False).logits)
        seen.append(output.clone())
    assert output.data_ptr() == address
    assert not torch.equal(seen[0], seen[1])


def test_replay_with_a_padded_mask_is_bitwise_eager(model: PreTrainedModel) -> None:
    static, mask, graph = tokens(), torch.ones(1, LENGTH, dtype=torch.long), RecordedGraph()
    with torch.inference_mode(), record(graph):
        output = model(input_ids=static, attention_mask=mask, use_cache=False).logits
    for length in (LENGTH, 5, 11, 1):
        fresh = tokens()
        static.copy_(fresh)
        mask.zero_()[:, :length] = 1
        graph.replay()
        with torch.inference_mode():
            padded = model(input_ids=fresh, attention_mask=mask.clone(), use_cache=False).logits
            alone = model(input_ids=fresh[:, :length], use_cache=False).logits
        # Eager drops a mask without padding and runs a kernel without one: equal, but not to the last bit.
        torch.testing.assert_close(output, padded, atol=1e-6, rtol=1e-5)
        assert length == LENGTH or torch.equal(output, padded)
        torch.testing.assert_close(output[:, :length], alone, atol=1e-6, rtol=1e-5)


def test_the_capture_takes_the_path_of_a_real_capture() -> None:
    # transformers asks whether the stream captures; if not, it reads the mask on the host to skip it.
    graph = RecordedGraph()
    with torch.inference_mode(), record(graph):
        llama()(input_ids=tokens(), attention_mask=torch.ones(1, LENGTH, dtype=torch.long), use_cache=False)
    assert graph.nodes.count("aten._scaled_dot_product_flash_attention_for_cpu") == 2
    assert "aten.bitwise_and" in graph.nodes  # the mask is built, not skipped


def test_attention_that_builds_a_literal_is_refused_at_the_line_of_transformers(
    model: PreTrainedModel,
) -> None:
    model.set_attn_implementation("eager")
    where = r'^torch\.tensor at transformers/masking_utils\.py:\d+ ".*torch\.tensor\(0\.0, device=.*": .*; .*'
    with pytest.raises(CaptureError, match=where), torch.inference_mode(), record(RecordedGraph()):
        model(input_ids=tokens(), use_cache=False)


def test_dropout_of_a_training_model_draws_anew() -> None:
    graph = RecordedGraph()
    with torch.inference_mode(), record(graph):
        output = gpt2().train()(input_ids=tokens(), use_cache=False).logits
    first = output.clone()
    graph.replay()
    assert not torch.equal(output, first)


def test_a_static_cache_advances_with_every_replay() -> None:
    torch.manual_seed(0)
    model, ids, graph = llama().eval(), tokens(), RecordedGraph()
    with torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=LENGTH)
        model(
            input_ids=ids[:, :4], past_key_values=cache
        )  # the cache gets its memory here, outside the capture
        static = ids[:, 4:5].clone()
        with record(graph):
            output = model(input_ids=static, past_key_values=cache).logits
        expected = model(input_ids=ids).logits
    torch.testing.assert_close(output[:, 0], expected[:, 4], atol=1e-6, rtol=1e-5)
    for position in range(5, LENGTH):
        static.copy_(ids[:, position : position + 1])
        graph.replay()
        torch.testing.assert_close(output[:, 0], expected[:, position], atol=1e-6, rtol=1e-5)
