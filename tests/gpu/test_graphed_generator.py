"""`GraphedGenerator` on a real GPU: run with `make gpu-test`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from inference.case import CaseOptions, ReadyCase, open_case
from inference.generator import GraphedGenerator
from inference.sampling import Greedy, Sampling

pytestmark = pytest.mark.gpu

PROMPT, NEW = 50, 60


@pytest.fixture(scope="module")
def case() -> ReadyCase:
    return open_case(CaseOptions(model="gpt2", device="cuda", weights="random", max_length=512))


@pytest.fixture
def generator(case: ReadyCase) -> Iterator[GraphedGenerator]:
    with GraphedGenerator(case.loaded.model, max_length=512, strict=True) as opened:
        yield opened


def prompt(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(50_257, (1, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("length", "new"), [(50, 64), (1, 20), (64, 64), (65, 200), (300, 212)])
def test_greedy_tokens_are_those_of_generate(generator: GraphedGenerator, length: int, new: int) -> None:
    assert generator.compare_with_generate(prompt(length), new).first_divergence is None


def test_a_seed_reproduces_its_tokens(generator: GraphedGenerator) -> None:
    sampling = Sampling(0.8, top_k=50, top_p=0.95, seed=1)
    first = generator.generate(prompt(PROMPT), NEW, sampling=sampling)
    generator.generate(prompt(9), 9, sampling=Sampling(seed=2))
    assert torch.equal(first, generator.generate(prompt(PROMPT), NEW, sampling=sampling))
    other = Sampling(0.8, top_k=50, top_p=0.95, seed=3)
    assert not torch.equal(first, generator.generate(prompt(PROMPT), NEW, sampling=other))
    assert list(generator.stream(prompt(PROMPT), NEW, sampling=sampling)) == first[0].tolist()


def test_it_stops_at_the_end_of_sequence(generator: GraphedGenerator) -> None:
    tokens = generator.generate(prompt(PROMPT), NEW)[0].tolist()
    end = tokens[7]
    stopped = generator.generate(prompt(PROMPT), NEW, eos_token_id=end)[0].tolist()
    assert stopped == tokens[: tokens.index(end) + 1]


def test_memory_does_not_grow(generator: GraphedGenerator) -> None:
    generator.capture()
    generator.capture(Sampling())
    chooser = random.Random(0)
    held = []
    for index in range(600):
        sampling = Sampling(seed=index) if index % 2 else Greedy()
        generator.generate(prompt(chooser.randint(1, 200), index), chooser.randint(1, 12), sampling=sampling)
        if index in (200, 599):
            torch.cuda.synchronize()
            held.append((torch.cuda.memory_reserved(), torch.cuda.memory_allocated()))
    assert held[0] == held[1]


@pytest.mark.parametrize("sampling", [Greedy(), Sampling(seed=1)])
def test_a_capture_that_breaks_leaves_a_working_process(case: ReadyCase, sampling: Greedy | Sampling) -> None:
    model = case.loaded.model
    with GraphedGenerator(model, max_length=128) as good:
        wanted = good.generate(prompt(PROMPT), 8, sampling=sampling)

    def read(_module: object, _arguments: object, logits: torch.Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            float(logits.sum())

    head = model.get_output_embeddings()
    assert head is not None
    hook = head.register_forward_hook(read)
    try:
        with GraphedGenerator(model, max_length=128) as broken:
            broken.generate(prompt(PROMPT), 8, sampling=sampling)
            assert broken.refusals
    finally:
        hook.remove()
    with GraphedGenerator(model, max_length=128) as again:
        assert torch.equal(again.generate(prompt(PROMPT), 8, sampling=sampling), wanted)
