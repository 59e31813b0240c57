"""What Inductor compiles, in our own graph, on a real GPU: run with `make gpu-test`."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest
import torch
from torch._inductor.runtime.benchmarking import benchmarker
from torch.fx import GraphModule
from torch.nn.functional import linear
from transformers import PreTrainedModel

from inference.battery import check_runner
from inference.families import find_family, tiny_model
from inference.forward import GraphedForward
from inference.fused import _inductor
from inference.generator import GraphedGenerator
from inference.loading import float32_copy
from inference.tuning import timed_by_the_gpu

pytestmark = pytest.mark.gpu

LENGTHS = (4, 16)


def family(name: str, dtype: torch.dtype) -> PreTrainedModel:
    return tiny_model(find_family(name), torch.device("cuda", 0), dtype)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return family("Llama", torch.float32)


@pytest.fixture(scope="module")
def forward(model: PreTrainedModel) -> Iterator[GraphedForward]:
    with GraphedForward(model, LENGTHS, fused=True, strict=True, only_if_faster=False) as made:
        yield made


def test_every_length_is_compiled(forward: GraphedForward) -> None:
    assert [entry.not_fused for entry in forward.ledger] == [None, None]
    assert all(entry.compile_s and entry.capture_s for entry in forward.ledger)


def test_the_battery_passes(forward: GraphedForward) -> None:
    assert [check for check in check_runner(forward) if not check.passed] == []


def test_the_battery_passes_in_half_precision() -> None:
    half = family("GPT-2", torch.bfloat16)
    with GraphedForward(half, LENGTHS, fused=True, strict=True, only_if_faster=False) as forward:
        assert [check for check in check_runner(forward, float32_copy(half)) if not check.passed] == []


def test_replays_outlive_what_dynamo_forgets(forward: GraphedForward) -> None:
    ids = torch.randint(96, (1, 7))
    wanted = forward(ids)
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    for _ in range(3):
        assert torch.equal(forward(ids), wanted)


def test_generation_is_that_of_transformers(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=32, unroll=2, fused=True, strict=True) as generator:
        for n in (1, 6, 11):
            agreement = generator.compare_with_generate(torch.randint(1, 96, (1, n)), 12)
            assert agreement.first_divergence is None
        assert {r.name for r in generator.ledger if r.compile_s} >= {"prompt 32"}


def test_products_of_one_input_are_one_and_a_plain_graph_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, ids = family("Llama", torch.bfloat16), torch.randint(96, (1, 9))
    products = []

    def counted(device: torch.device, module: GraphModule, inputs: list[Any]) -> Callable[..., object]:
        products.append(len(module.graph.find_nodes(op="call_function", target=linear)))
        return _inductor(device, module, inputs)

    monkeypatch.setattr("inference.fused._inductor", counted)
    with GraphedForward(fresh, LENGTHS[1:], strict=True, only_if_faster=False) as plain:
        wanted = plain(ids)
        with GraphedForward(fresh, LENGTHS[1:], fused=True, strict=True, only_if_faster=False) as forward:
            assert set(products) == {fresh.config.num_hidden_layers * 4 + 1}  # and the head
            torch.testing.assert_close(plain(ids), wanted)
            assert plain.recaptures == 1
            assert [check for check in check_runner(forward, float32_copy(fresh)) if not check.passed] == []
            assert forward.recaptures == 0


def test_tuning_measures_the_gpu_and_not_the_host() -> None:
    numbers = torch.zeros(1000, device="cuda")

    def launched_by_a_slow_host() -> None:
        until = time.perf_counter() + 4e-5
        while time.perf_counter() < until:
            pass
        numbers.add_(1)

    def measured() -> float:
        samples: list[float] = benchmarker.benchmark_gpu(launched_by_a_slow_host, return_mode="all")
        return median(samples)

    by_the_host = measured()
    with timed_by_the_gpu(numbers.device):
        by_the_gpu = measured()
    assert by_the_gpu < by_the_host / 2
    assert measured() > 2 * by_the_gpu


def test_closing_gives_the_memory_back(model: PreTrainedModel) -> None:
    def build() -> None:
        GraphedForward(model, LENGTHS[:1], fused=True, only_if_faster=False).close()
        gc.collect()
        torch.cuda.empty_cache()

    build()  # workspaces of the libraries stay
    before = torch.cuda.memory_allocated()
    for _ in range(2):
        build()
    assert torch.cuda.memory_allocated() <= before
