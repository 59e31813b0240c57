"""The captured forward on the simulation: the classic mistakes with static storage, each made to show."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import MistralConfig, MistralForCausalLM

from contract import CaptureError, LaunchgapError
from inference import graphed
from inference.case import CaseOptions, ReadyCase, open_case
from inference.graphed import CapturedForward
from inference.simulation import RecordedGraph
from inference.strategies import EagerForward, check_lengths

LENGTH = 8


@pytest.fixture(scope="module")
def case(tiny_folder: Path) -> ReadyCase:
    return open_case(CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=LENGTH, max_length=24))


@pytest.fixture
def graph(case: ReadyCase) -> CapturedForward:
    return CapturedForward(case.loaded.model, LENGTH, case.backend, padded=False)


@pytest.fixture
def padded(case: ReadyCase) -> CapturedForward:
    return CapturedForward(case.loaded.model, 24, case.backend, padded=True)


def prompt(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(64, (1, length))


def eager(case: ReadyCase, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = case.loaded.model(input_ids=ids, use_cache=False).logits
    assert isinstance(logits, torch.Tensor)
    return logits


def test_replays_equal_eager_bitwise_on_fresh_inputs(case: ReadyCase, graph: CapturedForward) -> None:
    for _ in range(3):
        ids = prompt()
        assert torch.equal(graph(ids), eager(case, ids))


@pytest.mark.parametrize("length", [1, LENGTH, 24])
def test_padded_replays_equal_eager_at_every_length(
    case: ReadyCase, padded: CapturedForward, length: int
) -> None:
    padded(prompt(24))  # leaves tokens behind that a shorter prompt must not see
    ids = prompt(length)
    found = padded(ids)
    assert found.shape == (1, length, 64)
    torch.testing.assert_close(found, eager(case, ids), atol=1e-5, rtol=1e-5)


def test_the_mask_hides_the_padding_and_is_updated_in_place(padded: CapturedForward) -> None:
    assert padded._mask is not None
    address = padded._mask.data_ptr()
    padded(prompt(5))
    assert padded._mask.data_ptr() == address
    assert padded._mask.sum() == 5
    padded(prompt(9))
    assert padded._mask.sum() == 9


def test_a_prompt_that_is_not_copied_in_changes_nothing(graph: CapturedForward) -> None:
    ids = prompt()
    before = graph(ids)
    ids.add_(1).remainder_(64)  # the caller's tensor, not the graph's
    assert torch.equal(graph.replay(), before)
    graph.copy_in(ids)
    assert not torch.equal(graph.replay(), before)


def test_a_stale_view_is_overwritten_by_the_next_replay_but_a_copy_is_not(graph: CapturedForward) -> None:
    first = prompt()
    kept = graph(first)
    graph.copy_in(first)
    view = graph.replay()
    assert torch.equal(view, kept)
    graph((first + 1) % 64)
    assert not torch.equal(view, kept)


def test_rebinding_the_static_input_is_noticed_by_the_check_on_fresh_inputs(graph: CapturedForward) -> None:
    before = graph(prompt())
    graph._ids = torch.zeros_like(graph._ids)  # the mistake: the graph still reads the old storage
    assert torch.equal(graph(prompt()), before)


def test_the_result_keeps_its_address(graph: CapturedForward) -> None:
    addresses = set()
    for _ in range(3):
        graph.copy_in(prompt())
        addresses.add(graph.replay().data_ptr())
    assert len(addresses) == 1


def test_the_output_outlives_the_capture(case: ReadyCase, graph: CapturedForward) -> None:
    ids = prompt()
    kept = graph(ids)
    graph.close()
    assert torch.equal(kept, eager(case, ids))


def test_a_closed_graph_says_so(graph: CapturedForward) -> None:
    graph.close()
    graph.close()
    with pytest.raises(LaunchgapError, match="closed"):
        graph.replay()


def test_another_length_needs_another_graph(graph: CapturedForward, padded: CapturedForward) -> None:
    with pytest.raises(LaunchgapError, match="7 tokens: the graph was captured for 8"):
        graph.copy_in(prompt(7))
    with pytest.raises(LaunchgapError, match="25 tokens: the graph was captured for 24"):
        padded.copy_in(prompt(25))


class _ReadsOnTheHost(nn.Module):
    def forward(self, input_ids: torch.Tensor, **_: object) -> SimpleNamespace:
        return SimpleNamespace(logits=input_ids * input_ids.sum().item())


def test_a_host_read_is_refused_by_operation_and_line(case: ReadyCase) -> None:
    with pytest.raises(CaptureError, match=r"test_graphed\.py:\d+ .*input_ids\.sum\(\)\.item\(\)"):
        CapturedForward(_ReadsOnTheHost(), LENGTH, case.backend, padded=False)


def test_eager_needs_a_prompt_first(case: ReadyCase) -> None:
    with pytest.raises(LaunchgapError, match="copy_in"):
        EagerForward(case.loaded.model, case.backend).run()


@pytest.mark.parametrize(
    ("prompt_length", "max_length", "words"),
    [
        (0, 8, "must be 1 or more"),
        (-3, 8, "must be 1 or more"),
        (33, 64, "the model has 32 positions"),
        (9, 8, "above the maximum length 8"),
        (8, 64, "maximum length 64: the model has 32"),
    ],
)
def test_lengths_that_cannot_be(prompt_length: int, max_length: int, words: str) -> None:
    with pytest.raises(LaunchgapError, match=words):
        check_lengths(prompt_length, max_length, 32)


def test_a_graph_has_no_mask_where_eager_has_none(graph: CapturedForward, padded: CapturedForward) -> None:
    assert graph.attention_mask == "none"
    assert padded.attention_mask == "static"


def test_the_models_attention_is_put_back_after_a_capture(case: ReadyCase, graph: CapturedForward) -> None:
    assert graph.attention_mask == "none"
    assert case.loaded.model.config._attn_implementation == "sdpa"


def test_an_unmasked_graph_runs_no_more_operations_than_a_masked_one(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = CapturedForward(case.loaded.model, LENGTH, case.backend, padded=False)
    monkeypatch.setattr(graphed, "mask_is_redundant", lambda *_: False)
    masked = CapturedForward(case.loaded.model, LENGTH, case.backend, padded=False)
    assert masked.attention_mask == "explicit"
    assert isinstance(free._graph, RecordedGraph)
    assert isinstance(masked._graph, RecordedGraph)
    assert len(free._graph.nodes) < len(masked._graph.nodes)
    ids = prompt()
    torch.testing.assert_close(free(ids), masked(ids), atol=1e-5, rtol=1e-5)


def test_a_sliding_window_shorter_than_the_prompt_keeps_its_mask(case: ReadyCase) -> None:
    config = MistralConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=4,
    )
    model = MistralForCausalLM(config).eval()
    model.set_attn_implementation("sdpa")
    beyond = CapturedForward(model, LENGTH, case.backend, padded=False)
    within = CapturedForward(model, 4, case.backend, padded=False)
    assert (beyond.attention_mask, within.attention_mask) == ("explicit", "none")
    ids = prompt()
    with torch.no_grad():
        torch.testing.assert_close(beyond(ids), model(ids, use_cache=False).logits, atol=1e-5, rtol=1e-5)
