"""One decode step as a request, on the simulation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from contract import CaptureError, LaunchgapError, Phase, Strategy
from inference.backends import SimulationBackend
from inference.benchmark import BenchmarkSettings, measure
from inference.case import CaseOptions, open_case
from inference.decode_step import DecodeStep
from inference.prepare import prepare
from inference.side_by_side import follow
from tests.inference.tiny_models import VOCABULARY, shallow, tiny

LENGTH, SLOTS = 6, 12


def step(family: str, *, graph: bool) -> DecodeStep:
    torch.manual_seed(0)
    return DecodeStep(tiny(family), LENGTH, SLOTS, SimulationBackend(), graph=graph)


def logits_of(one: DecodeStep, token: int) -> torch.Tensor:
    one.copy_in(torch.full((1, LENGTH), token))
    return one.run().clone()


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_step_captured_gives_what_the_eager_step_gives_for_any_token_and_again(family: str) -> None:
    eager, graph = step(family, graph=False), step(family, graph=True)
    for token in (3, 7, 3):
        expected = logits_of(eager, token)
        assert expected.shape == (1, 1, VOCABULARY)
        assert torch.equal(logits_of(graph, token), expected)
    assert torch.equal(logits_of(eager, 3), logits_of(graph, 3))
    assert not torch.equal(logits_of(eager, 3), logits_of(eager, 7))
    assert graph.capture_s is not None
    assert eager.capture_s is None


def test_a_step_says_what_a_pass_over_the_whole_prompt_says() -> None:
    one = step("llama", graph=True)
    context = torch.as_tensor(one.context)[None]
    prompt = torch.cat((context, torch.tensor([[5]])), dim=1)
    assert prompt.shape == (1, LENGTH)
    whole = one.model(input_ids=prompt).logits[:, -1]
    assert torch.allclose(logits_of(one, 5)[:, 0], whole, atol=1e-5)


def test_a_closed_step_and_other_strategies_are_refused() -> None:
    one = step("gpt2", graph=True)
    one.close()
    one.copy_in(torch.zeros((1, LENGTH), dtype=torch.int64))
    with pytest.raises(LaunchgapError, match="was closed"):
        one.run()
    with pytest.raises(LaunchgapError, match="graph_padded: no way to run a decode step; use eager, graph"):
        prepare(
            Strategy.GRAPH_PADDED,
            tiny("gpt2"),
            SimulationBackend(),
            prompt_length=LENGTH,
            max_length=SLOTS,
            phase=Phase.DECODE,
        )


@pytest.mark.parametrize(
    ("length", "slots", "said"),
    [
        (1, 12, "a decode step needs a token before it"),
        (6, 5, "a cache for token 6 needs 6 slots"),
        (2, 3, "needs 4 slots"),
    ],
)
def test_no_context_and_no_room_are_refused(length: int, slots: int, said: str) -> None:
    with pytest.raises(LaunchgapError, match=said):
        DecodeStep(tiny("gpt2"), length, slots, SimulationBackend(), graph=False)


def test_a_model_without_keys_and_values_is_refused() -> None:
    with pytest.raises(CaptureError, match="keeps"):
        step("mamba", graph=True)


def test_a_fused_step_moves_weights_and_an_eager_one_does_not() -> None:
    model = shallow("llama")
    layer: Any = model.get_submodule("model.layers.0.mlp")
    for fused in (False, True):
        DecodeStep(model, LENGTH, SLOTS, SimulationBackend(), graph=fused, fused=fused)
        assert follow([layer.gate_proj.weight, layer.up_proj.weight]) == fused


def test_a_case_of_steps_is_named_so_and_measured_like_any_other() -> None:
    case = open_case(CaseOptions(model="bert-tiny", device="cpu", prompt_length=4, phase="decode"))
    assert case.fields["name"] == "bert-tiny-float32-p4-m128-decode"
    assert case.phase is Phase.DECODE
    strategies = Strategy.EAGER, Strategy.GRAPH, Strategy.GRAPH_FUSED
    results, again = measure(case, BenchmarkSettings(strategies, runs=2, warmup_s=0.0, correctness_inputs=2))
    assert [one["status"] for one in results.values()] == ["ok", "ok", "ok"]
    found = results["graph"]["correctness"]
    assert found is not None
    assert found["bitwise"]
    assert len(again) == 2
