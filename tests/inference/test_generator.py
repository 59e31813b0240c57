"""Greedy generation through graphs against `model.generate`: per family, and at the edges of buckets."""

from collections.abc import Iterator

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from contract import CaptureError
from inference.generator import GraphedGenerator
from tests.inference.tiny_models import POSITIONS, READS_BACK, VOCABULARY, WINDOW, tiny

BUCKETS = (8, 16, 32)
CAPTURABLE = ["gpt2", "llama", "mistral", "qwen2", "opt", "gpt_neox", "bert", "gemma3", "mixtral"]


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return tiny("llama")


@pytest.fixture(scope="module")
def generator(llama: PreTrainedModel) -> Iterator[GraphedGenerator]:
    with GraphedGenerator(llama, buckets=BUCKETS, strict=True) as generator:
        yield generator


def prompt(length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(VOCABULARY, (1, length), generator=torch.Generator().manual_seed(seed))


def reference(model: PreTrainedModel, ids: torch.Tensor, count: int) -> torch.Tensor:
    """Greedy continuation by whole passes, without any cache."""
    for _ in range(count):
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits
        ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=-1)
    return ids[:, -count:]


@pytest.mark.parametrize("family", CAPTURABLE)
def test_greedy_tokens_are_those_of_generate(family: str) -> None:
    model = tiny(family)
    with GraphedGenerator(model, buckets=(8,), unroll=2, strict=True) as generator:
        seen: set[int] = set()
        for length, count in [(5, 3), (3, 30), (20, POSITIONS - 20)]:
            agreement = generator.compare_with_generate(prompt(length), count)
            assert agreement.first_divergence is None
            assert len(agreement.tokens) == count
            seen |= set(agreement.tokens)
        assert len(seen) > 3  # a model that repeats one token would prove nothing
        assert not generator.refusals


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_every_length_around_the_edges_of_buckets(
    llama: PreTrainedModel, generator: GraphedGenerator, length: int, count: int
) -> None:
    generator.generate(prompt(17, seed=3), 31)  # leaves keys and values behind that nobody may see
    found = generator.generate(prompt(length), count)
    assert found.tolist() == reference(llama, prompt(length), count).tolist()


def test_the_whole_cache_can_be_filled(llama: PreTrainedModel, generator: GraphedGenerator) -> None:
    for length in (1, POSITIONS - 1):
        count = POSITIONS - length
        found = generator.generate(prompt(length), count)
        assert found.tolist() == reference(llama, prompt(length), count).tolist()


@pytest.mark.parametrize("unroll", [1, 2, 3, 4])
def test_unrolled_steps_give_the_same_tokens(llama: PreTrainedModel, unroll: int) -> None:
    with GraphedGenerator(llama, buckets=(16, 32), unroll=unroll) as generator:
        for count in range(1, 12):
            found = generator.generate(prompt(4), count)
            assert found.tolist() == reference(llama, prompt(4), count).tolist()


def test_an_end_of_sequence_in_the_middle_of_unrolled_steps(llama: PreTrainedModel) -> None:
    expected = reference(llama, prompt(4), 20)[0].tolist()
    with GraphedGenerator(llama, buckets=(16, 32), unroll=4) as generator:
        for end in dict.fromkeys(expected):
            found = generator.generate(prompt(4), 20, eos_token_id=end)[0].tolist()
            assert found == expected[: expected.index(end) + 1]


def masks_of_steps(generator: GraphedGenerator) -> set[str]:
    return {str(entry.attention_mask) for entry in generator.ledger if entry.name.startswith("step")}


def test_a_sliding_window_within_and_beyond_the_cache() -> None:
    model = tiny("mistral")
    with GraphedGenerator(model, max_length=WINDOW, buckets=(), strict=True) as short:
        assert short.generate(prompt(3), 3).tolist() == reference(model, prompt(3), 3).tolist()
        assert masks_of_steps(short) == {"static"}
    with GraphedGenerator(model, max_length=32, buckets=(), strict=True) as long:
        assert long.generate(prompt(3), 29).tolist() == reference(model, prompt(3), 29).tolist()
        assert masks_of_steps(long) == {"explicit"}


def names(generator: GraphedGenerator) -> list[str]:
    return [entry.name for entry in generator.ledger]


def test_the_smallest_bucket_that_fits_is_used(llama: PreTrainedModel) -> None:
    with GraphedGenerator(llama, buckets=BUCKETS) as generator:
        assert names(generator) == []
        generator.generate(prompt(3), 5)
        assert names(generator) == ["prompt 8", "choice greedy", "step 8 greedy"]
        generator.generate(prompt(3), 6)
        assert names(generator)[3:] == ["step 16 greedy"]
        generator.generate(prompt(9), 1)
        assert names(generator)[4:] == ["prompt 16"]


def test_capturing_up_front_leaves_nothing_to_capture(llama: PreTrainedModel) -> None:
    with GraphedGenerator(llama, buckets=(8, 16), max_length=16, unroll=2) as generator:
        generator.capture()
        ledger = generator.ledger
        assert len(ledger) == 2 + 4 + 1
        assert all(record.capture_s > 0 and record.pool_bytes > 0 for record in ledger)
        for length, count in [(1, 1), (7, 9), (13, 3)]:
            generator.generate(prompt(length), count)
        assert generator.ledger == ledger


def test_requests_are_independent_of_each_other(generator: GraphedGenerator) -> None:
    first = generator.generate(prompt(6), 10)
    for seed in range(5):
        generator.generate(prompt(3 + 2 * seed, seed), 5 + seed)
    assert generator.generate(prompt(6), 10).tolist() == first.tolist()


def test_a_poisoned_cache_does_not_reach_the_next_request(generator: GraphedGenerator) -> None:
    expected = generator.generate(prompt(3), 20)
    assert generator._built is not None
    assert generator._built._graphs is not None
    decoder = generator._built._graphs.decoder
    for tensor in (tensor for layer in decoder.store.layers for tensor in layer):
        tensor.fill_(float("nan"))
    for tensor in (decoder.state.mask, decoder.state.logits):
        tensor.fill_(float("nan"))
    decoder.state.tokens.fill_(1)
    assert generator.generate(prompt(3), 20).tolist() == expected.tolist()


def test_tokens_are_a_copy_or_a_view_of_the_host_buffer(llama: PreTrainedModel) -> None:
    for copy in (True, False):
        with GraphedGenerator(llama, buckets=BUCKETS, copy=copy) as generator:
            kept = generator.generate(prompt(6), 10)
            before = kept.clone()
            generator.generate(prompt(6, seed=5), 10)
            assert torch.equal(kept, before) is copy
            assert before.tolist() == reference(llama, prompt(6), 10).tolist()


def test_bfloat16_reports_the_first_divergence_with_both_logits() -> None:
    model = tiny("llama")
    torch.nn.Module.to(model, torch.bfloat16)
    with GraphedGenerator(model, buckets=BUCKETS) as generator:
        for seed in range(3):
            agreement = generator.compare_with_generate(prompt(6, seed), 30)
            index = agreement.first_divergence
            if index is not None:
                assert agreement.tokens[:index] == agreement.reference[:index]
                assert agreement.logits is not None
                assert agreement.reference_logits is not None
                assert agreement.logits[0] >= agreement.logits[1]
                assert agreement.reference_logits[0] <= agreement.reference_logits[1]


def test_logits_that_are_wider_than_the_model() -> None:
    model = tiny("llama")
    torch.nn.Module.to(model, torch.bfloat16)
    model.lm_head.register_forward_hook(lambda _module, _inputs, logits: logits.float())
    with GraphedGenerator(model, max_length=16, strict=True) as generator:
        assert generator.generate(prompt(6), 8).shape == (1, 8)
        assert masks_of_steps(generator) == {"static"}


def test_a_divergence_is_found_and_explained(llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model's `generate` stands in for a side that rounds differently."""
    other = tiny("llama", seed=7)
    with GraphedGenerator(llama, buckets=BUCKETS, unroll=2) as generator:
        monkeypatch.setattr(llama, "generate", other.generate, raising=False)
        agreement = generator.compare_with_generate(prompt(6), 12)
    index = agreement.first_divergence
    assert index is not None
    assert agreement.tokens == tuple(reference(llama, prompt(6), 12)[0].tolist())
    sequence = torch.cat((prompt(6), torch.tensor([agreement.tokens[:index]], dtype=torch.int64)), dim=-1)
    pair = [agreement.tokens[index], agreement.reference[index]]
    for model, found in ((llama, agreement.logits), (other, agreement.reference_logits)):
        assert found is not None
        assert model(input_ids=sequence).logits[0, -1, pair].tolist() == pytest.approx(found, rel=1e-4)


def test_a_model_without_keys_and_values_is_run_eagerly_and_says_so() -> None:
    model = tiny("mamba")
    with GraphedGenerator(model, max_length=32) as generator:
        assert "MambaForCausalLM" in generator.refusals["model"]
        assert generator.generate(prompt(5), 4).tolist() == reference(model, prompt(5), 4).tolist()
        assert list(generator.stream(prompt(5), 4)) == reference(model, prompt(5), 4)[0].tolist()
        assert generator.ledger == ()
    with pytest.raises(CaptureError, match="MambaForCausalLM: keeps nothing"):
        GraphedGenerator(model, max_length=32, strict=True)


def test_a_model_that_wants_its_cache_served_otherwise_is_run_on_whole_sequences() -> None:
    """CPM-Ant puts prompts of its own before the tokens and is given all of them again with its cache."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "dim_head": 8, "dim_ff": 16, "num_hidden_layers": 1}
    config = AutoConfig.for_model("cpmant", vocab_size=VOCABULARY, **sizes)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with GraphedGenerator(model, max_length=32) as generator:
        assert "CpmAntForCausalLM" in generator.refusals["model"]
        assert generator.generate(prompt(5), 4).tolist() == reference(model, prompt(5), 4).tolist()


@pytest.mark.parametrize("setting", ["forced_eos_token_id", "suppress_tokens", "bad_words_ids"])
def test_what_a_models_own_settings_force_is_not_greedy_choice(setting: str) -> None:
    model, ids = tiny("llama"), prompt(6)
    first, second = reference(model, ids, 2)[0].tolist()
    values = {"forced_eos_token_id": first, "suppress_tokens": [first], "bad_words_ids": [[second]]}
    model.generation_config.update(**{setting: values[setting]})
    with GraphedGenerator(model, buckets=BUCKETS) as generator:
        assert generator.compare_with_generate(ids, 5).first_divergence is None


def test_attention_without_a_mask_for_graphs_is_refused_by_name_and_served_eagerly() -> None:
    model = tiny("llama")
    model.set_attn_implementation(READS_BACK)
    with GraphedGenerator(model, max_length=32) as generator:
        assert f"attention '{READS_BACK}'" in generator.refusals["model"]
        assert "attn_implementation='sdpa'" in generator.refusals["model"]
        assert generator.generate(prompt(5), 6).tolist() == reference(model, prompt(5), 6).tolist()
        agreement = generator.compare_with_generate(prompt(5), 6)
        assert agreement.first_divergence is None


def test_under_the_callers_inference_mode_and_outside_of_it(llama: PreTrainedModel) -> None:
    with torch.inference_mode(), GraphedGenerator(llama, buckets=BUCKETS) as generator:
        first = generator.generate(prompt(6), 10)
        with torch.inference_mode(False):
            assert generator.generate(prompt(6), 10).tolist() == first.tolist()
            assert generator.generate(prompt(12), 2).tolist() == reference(llama, prompt(12), 2).tolist()
