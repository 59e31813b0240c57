"""Token choice against transformers' own warpers: the same tokens stay, with the same probabilities."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from contract import LaunchgapError
from inference.backends import SimulationBackend
from inference.generator import GraphedGenerator
from inference.sampling import Greedy, GreedyChooser, Sampling, SamplingChooser, make_chooser
from tests.inference.tiny_models import tiny

CPU = torch.device("cpu")
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.3),
    Sampling(temperature=4.0),
    Sampling(top_k=1),
    Sampling(top_k=7),
    Sampling(top_k=1000),
    Sampling(top_p=0.5),
    Sampling(top_p=0.999),
    Sampling(top_p=1e-9),
    Sampling(temperature=2.0, top_k=10, top_p=0.8),
    Sampling(temperature=0.7, top_k=3, top_p=0.4),
]


def warped(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities as `generate(do_sample=True)` makes them."""
    warpers: Any = LogitsProcessorList()
    if sampling.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    scores: torch.Tensor = warpers(torch.zeros((1, 1), dtype=torch.int64), logits.float())
    return scores.softmax(-1)


def chooser_of(sampling: Sampling, vocabulary: int) -> SamplingChooser:
    chooser = SamplingChooser(vocabulary, CPU)
    chooser.set(sampling)
    return chooser


@pytest.mark.parametrize("sampling", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_tokens_stay_with_the_same_probabilities(sampling: Sampling, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        logits = (torch.randn((1, 50), generator=generator) * 3).to(dtype)
        probabilities, tokens = chooser_of(sampling, 50).ranked(logits)
        found = torch.zeros((1, 50)).scatter(-1, tokens, probabilities)
        expected = warped(logits, sampling)
        assert torch.equal(found > 0, expected > 0)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_ties_at_the_edge_of_top_k_all_stay() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0, 5.0, 0.0, -3.0]])
    probabilities, tokens = chooser_of(Sampling(top_k=2), 6).ranked(logits)
    assert set(tokens[probabilities > 0].tolist()) == {1, 2, 3}
    assert torch.equal(warped(logits, Sampling(top_k=2)) > 0, logits == 5.0)


@pytest.mark.parametrize("equal", [2, 4, 5, 10, 20])
def test_ties_at_the_edge_of_top_p_are_cut_alike(equal: int) -> None:
    logits = torch.zeros((1, equal))
    for top_p in (0.1, 0.2, 0.25, 0.5, 0.75, 0.8, 0.9):
        probabilities, _ = chooser_of(Sampling(top_p=top_p), equal).ranked(logits)
        assert (probabilities > 0).sum() == (warped(logits, Sampling(top_p=top_p)) > 0).sum()


def test_logits_that_forbid_a_token_are_obeyed() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]])
    chooser = chooser_of(Sampling(temperature=3.0), 4)
    assert {int(chooser.choose(logits)) for _ in range(200)} == {0, 2}


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=1.3), Sampling(temperature=2.0, top_k=5, top_p=0.9)]
)
def test_tokens_are_drawn_with_their_probabilities(sampling: Sampling) -> None:
    """Chi-squared over 4,000 draws of a replayed graph; the seed is fixed, so the outcome is too."""
    draws, logits = 4_000, torch.tensor([[2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0]])
    chooser = make_chooser(sampling, 7, CPU)
    graph = SimulationBackend().capture(lambda: chooser.choose(logits), generators=chooser.generators)
    chooser.set(Sampling(sampling.temperature, sampling.top_k, sampling.top_p, seed=11))
    counts: Counter[int] = Counter()
    for _ in range(draws):
        graph.graph.replay()
        counts[int(graph.output)] += 1
    expected = (warped(logits, sampling)[0] * draws).tolist()
    assert all(counts[token] == 0 for token, count in enumerate(expected) if count == 0)
    kept = [(counts[token], count) for token, count in enumerate(expected) if count > 0]
    statistic = sum((found - count) ** 2 / count for found, count in kept)
    # Mean k - 1, variance 2 (k - 1): five standard deviations are beyond any doubt.
    freedom = len(kept) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_greedy_takes_the_first_of_equals() -> None:
    assert GreedyChooser().choose(torch.tensor([[0.0, 3.0, 3.0]])).tolist() == [1]


def test_new_settings_need_no_new_capture() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    chooser = SamplingChooser(4, CPU)
    capture = SimulationBackend().capture(lambda: chooser.choose(logits), generators=chooser.generators)

    def support(sampling: Sampling) -> set[int]:
        chooser.set(sampling)
        found = set()
        for _ in range(100):
            capture.graph.replay()
            found.add(int(capture.output))
        return found

    assert support(Sampling(temperature=5.0)) == {0, 1, 2, 3}
    assert support(Sampling(temperature=5.0, top_k=2)) == {2, 3}
    assert support(Sampling(temperature=5.0, top_p=0.3)) == {3}
    assert support(Sampling(temperature=1e-6)) == {3}
    assert support(Sampling(temperature=5.0)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0.0}, "temperature 0.0"),
        ({"temperature": -1.0}, "temperature -1.0"),
        ({"temperature": math.inf}, "temperature inf"),
        ({"temperature": math.nan}, "temperature nan"),
        ({"temperature": "hot"}, "temperature 'hot'"),
        ({"temperature": True}, "temperature True"),
        ({"top_k": 0}, "top_k 0"),
        ({"top_k": -2}, "top_k -2"),
        ({"top_k": 2.5}, "top_k 2.5"),
        ({"top_p": 0.0}, "top_p 0.0"),
        ({"top_p": 1.1}, "top_p 1.1"),
        ({"top_p": math.nan}, "top_p nan"),
        ({"top_p": None}, "top_p None"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**63}, "seed 9223372036854775808"),
        ({"seed": 0.5}, "seed 0.5"),
    ],
)
def test_settings_without_a_meaning(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchgapError, match=words):
        Sampling(**settings)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny("llama")


IDS = torch.tensor([[3, 1, 4, 1, 5]])


def test_a_seed_gives_the_same_tokens_whatever_came_before(model: PreTrainedModel) -> None:
    sampling = Sampling(temperature=2.0, seed=4)
    with GraphedGenerator(model, max_length=32, buckets=(16,)) as generator:
        # The first request captures, whose warm-up draws too; the others only replay.
        first = generator.generate(IDS, 10, sampling=sampling).tolist()
        generator.generate(IDS, 7, sampling=Sampling(seed=9))
        generator.generate(IDS, 20, sampling=Sampling())
        assert generator.generate(IDS, 10, sampling=sampling).tolist() == first
        others = [
            generator.generate(IDS, 10, sampling=Sampling(2.0, seed=seed)).tolist() for seed in range(5, 9)
        ]
        assert all(other != first for other in others)
    with GraphedGenerator(model, max_length=32, buckets=(16,), unroll=3) as unrolled:
        assert unrolled.generate(IDS, 10, sampling=sampling).tolist() == first


def test_without_a_seed_requests_differ(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=32) as generator:
        found = {tuple(generator.generate(IDS, 12, sampling=Sampling(3.0))[0].tolist()) for _ in range(4)}
    assert len(found) == 4


def test_the_callers_random_numbers_are_left_alone(model: PreTrainedModel) -> None:
    state = torch.get_rng_state()
    with GraphedGenerator(model, max_length=32) as generator:
        generator.generate(IDS, 5, sampling=Sampling(seed=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_one_candidate_is_greedy(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=32) as generator:
        greedy = generator.generate(IDS, 12, sampling=Greedy()).tolist()
        for sampling in (Sampling(top_k=1), Sampling(top_p=1e-6), Sampling(temperature=1e-6)):
            assert generator.generate(IDS, 12, sampling=sampling).tolist() == greedy
        assert sorted({record.name for record in generator.ledger}) == [
            "choice greedy",
            "choice sampled",
            "prompt 32",
            "step 32 greedy",
            "step 32 sampled",
        ]


def test_sampled_sequences_follow_the_models_distribution(model: PreTrainedModel) -> None:
    """Frequencies of the second token, given the first, against whole passes through the model."""
    draws, sampling = 250, Sampling(temperature=2.0, top_k=4)
    with GraphedGenerator(model, max_length=8, buckets=()) as generator:
        found = [
            generator.generate(IDS, 2, sampling=Sampling(2.0, top_k=4, seed=seed)) for seed in range(draws)
        ]
    pairs = Counter(tuple(tokens[0].tolist()) for tokens in found)
    first = warped(model(input_ids=IDS).logits[:, -1], sampling)[0]
    expected: dict[tuple[int, ...], float] = {}
    for token in first.nonzero().flatten().tolist():
        ids = torch.cat((IDS, torch.tensor([[token]])), dim=-1)
        second = warped(model(input_ids=ids).logits[:, -1], sampling)[0]
        for other in second.nonzero().flatten().tolist():
            expected[token, other] = float(first[token] * second[other])
    assert set(pairs) <= set(expected)
    distance = sum(abs(pairs[pair] / draws - share) for pair, share in expected.items()) / 2
    assert distance < 0.2
