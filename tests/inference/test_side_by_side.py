"""Weights moved so that products of one input are one: which, and that nothing else of a model changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from inference.side_by_side import follow, lay_side_by_side
from tests.inference.tiny_models import VOCABULARY, shallow, tiny

IDS = torch.randint(VOCABULARY, (1, 9))
WIDTH = 64


class Other(nn.Linear):
    """A layer that only looks like one."""


class Pair(nn.Module):
    """As much of a model as is looked at: two layers of one input, and what tests make of them."""

    device = torch.device("cpu")

    def __init__(self, second: int = WIDTH, *, bias: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.second: nn.Linear = nn.Linear(WIDTH, second, bias=bias)

    def between(self, hidden: Tensor) -> Tensor:
        """What the second layer is given."""
        return hidden

    def forward(self, input_ids: Tensor, *, use_cache: bool) -> Tensor:
        assert not use_cache
        hidden = input_ids[..., None].expand(*input_ids.shape, WIDTH).float()
        return torch.cat((self.first(hidden), self.second(self.between(hidden))), -1)


def logits(model: PreTrainedModel, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=ids, use_cache=False).logits
    return found


def addresses(model: nn.Module) -> list[int]:
    return [tensor.data_ptr() for tensor in model.parameters()]


def laid(model: nn.Module) -> int:
    return lay_side_by_side(model)  # type: ignore[arg-type]  # as much of one as is looked at


@pytest.mark.parametrize(
    ("family", "groups"),
    [("llama", 4), ("qwen2", 2), ("gemma3", 4), ("mixtral", 2), ("gpt2", 0), ("gpt_neox", 0), ("mamba", 0)],
)
def test_a_model_is_the_same_afterwards(family: str, groups: int) -> None:
    model = tiny(family)
    names, weights, before = list(model.state_dict()), copy.deepcopy(model.state_dict()), logits(model)
    objects, places = list(map(id, model.parameters())), addresses(model)
    assert lay_side_by_side(model) == groups
    assert (addresses(model) != places) == (groups > 0)
    assert list(map(id, model.parameters())) == objects
    assert list(model.state_dict()) == names
    assert all(torch.equal(weights[name], found) for name, found in model.state_dict().items())
    assert torch.equal(logits(model), before)


def test_layers_of_unequal_sizes_follow_each_other_and_are_moved_once() -> None:
    model = tiny("llama")
    lay_side_by_side(model)
    attention: Any = model.get_submodule("model.layers.1.self_attn")
    parts = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
    assert [len(part) for part in parts] == [16, 8, 8]
    assert follow(parts)
    assert not follow([*parts, attention.o_proj.weight])
    assert not follow(parts[::-1])
    places = addresses(model)
    assert lay_side_by_side(model) == 4
    assert addresses(model) == places


def test_biases_follow_as_weights_do() -> None:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=1,
    )
    model = Qwen2ForCausalLM(config).eval()
    before = logits(model)
    assert lay_side_by_side(model) == 2
    attention: Any = model.get_submodule("model.layers.0.self_attn")
    layers = attention.q_proj, attention.k_proj, attention.v_proj
    assert follow([layer.weight for layer in layers])
    assert follow([layer.bias for layer in layers])
    assert torch.equal(logits(model), before)


def tied(pair: Pair) -> None:
    pair.second.weight = pair.first.weight


def tied_in_memory(pair: Pair) -> None:
    pair.second.weight.data = pair.first.weight.data


def looked_into(pair: Pair) -> None:
    pair.register_buffer("rows", pair.second.weight.data[3:5])


def transposed(pair: Pair) -> None:
    pair.second.weight.data = pair.second.weight.data.t()


def other_class(pair: Pair) -> None:
    pair.second = Other(WIDTH, WIDTH, bias=False)


def reparametrised(pair: Pair) -> None:
    nn.utils.parametrizations.weight_norm(pair.second)


def called_twice(pair: Pair) -> None:
    pair.between = lambda hidden: (pair.second(hidden), hidden)[1]  # type: ignore[method-assign]


def given_another(pair: Pair) -> None:
    pair.between = lambda hidden: hidden + 0  # type: ignore[method-assign]


def written_between(pair: Pair) -> None:
    pair.between = lambda hidden: hidden.mul_(2)  # type: ignore[method-assign]


def one_bias(pair: Pair) -> None:
    pair.second = nn.Linear(WIDTH, WIDTH, bias=True)


def inference_tensor(pair: Pair) -> None:
    with torch.inference_mode():
        pair.second.weight = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)


@pytest.mark.parametrize(
    "change",
    [
        tied,
        tied_in_memory,
        looked_into,
        transposed,
        other_class,
        reparametrised,
        called_twice,
        given_another,
        written_between,
        one_bias,
        inference_tensor,
    ],
)
def test_what_is_not_plainly_a_pair_is_left_alone(change: Callable[[Pair], None]) -> None:
    pair = Pair()
    assert laid(copy.deepcopy(pair)) == 1
    change(pair)
    places = addresses(pair)
    assert laid(pair) == 0
    assert addresses(pair) == places


def test_alignment_is_kept() -> None:
    assert laid(Pair(bias=True)) == 1
    odd = Pair(bias=True)
    odd.first = nn.Linear(WIDTH, WIDTH - 1)  # a bias of 252 bytes
    places = addresses(odd)
    assert laid(odd) == 0
    assert addresses(odd) == places


def test_a_group_that_there_is_no_memory_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    places = addresses(pair)

    def full(_: object) -> Tensor:
        raise torch.cuda.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(torch, "cat", full)
        patch.setattr(Pair, "forward", lambda self, **_: (self.first(x := torch.ones(WIDTH)), self.second(x)))
        assert laid(pair) == 0
    assert addresses(pair) == places
    assert laid(pair) == 1


def test_no_hook_stays_behind() -> None:
    pair = Pair()
    pair.between = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        laid(pair)
    assert not any(module._forward_pre_hooks for module in pair.modules())


def test_a_moved_model_is_saved_copied_and_loaded_as_before(tmp_path: Path) -> None:
    model = shallow("llama")
    lay_side_by_side(model)
    wanted = logits(model)
    model.save_pretrained(tmp_path)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path)), wanted)
    twin = copy.deepcopy(model)
    storages = [{t.untyped_storage().data_ptr() for t in one.parameters()} for one in (model, twin)]
    assert storages[0].isdisjoint(storages[1])
    other = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    places = addresses(model)
    model.load_state_dict(other)
    assert addresses(model) == places
    assert all(torch.equal(other[name], found) for name, found in model.state_dict().items())
    assert torch.equal(logits(twin), wanted)


def test_another_dtype_is_moved_anew() -> None:
    model = shallow("llama")
    lay_side_by_side(model)
    nn.Module.to(model, torch.float64)
    layer: Any = model.get_submodule("model.layers.0.mlp")
    assert not follow([layer.gate_proj.weight, layer.up_proj.weight])
    assert lay_side_by_side(model) == 2
    assert follow([layer.gate_proj.weight, layer.up_proj.weight])
