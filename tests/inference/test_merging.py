"""Products of one input taken as one: in which traced graphs, and that the answer is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import compile as inductor
from torch.fx import GraphModule
from torch.nn.functional import linear, relu

from inference.backends import SimulationBackend
from inference.forward import GraphedForward
from inference.fused import fuse
from inference.guards import ModelGuard
from inference.merging import MergingCompiler
from inference.side_by_side import lay_side_by_side
from tests.inference.tiny_models import VOCABULARY, shallow, tiny

WIDTH = 32


class Layers(nn.Module):
    """Layers of unequal sizes whose weights follow each other in memory, in the order of the sizes given."""

    def __init__(self, *sizes: int, bias: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, size, bias=bias) for size in sizes)
        for name in ("weight", "bias") if bias else ("weight",):
            whole = torch.cat([layer.get_parameter(name).data for layer in self.layers])
            for layer, part in zip(self.layers, whole.split(sizes), strict=True):
                layer.get_parameter(name).data = part


class Counting:
    """A compiler that runs what it is given, and counts its products each time that it is asked."""

    def __init__(self) -> None:
        self.products: list[int] = []

    def __call__(self, module: GraphModule, _: Sequence[object]) -> Callable[..., object]:
        self.products.append(len(module.graph.find_nodes(op="call_function", target=linear)))
        return module.forward


def merged(run: Callable[[Tensor], object], given: Tensor, compiler: Any = None) -> list[int]:  # noqa: ANN401
    """How many products became one, for each that was made; the answers are compared, and compiled once."""
    counting = Counting()
    merging = MergingCompiler(compiler or counting)
    torch.compiler.reset()
    compiled = torch.compile(run, backend=merging, fullgraph=True, dynamic=False)
    with torch.no_grad():
        for step in range(3):
            fresh = given + step
            torch.testing.assert_close(compiled(fresh.clone()), run(fresh.clone()), atol=1e-5, rtol=1e-5)
    assert compiler or len(counting.products) == 1
    return merging.merged


def rows(count: int) -> Tensor:
    return torch.randn(1, count, WIDTH)


def each(model: Layers) -> Callable[[Tensor], object]:
    return lambda given: [layer(given) for layer in model.layers]


@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_one_input_become_one_product(bias: bool) -> None:
    model = Layers(48, 16, 8, bias=bias)
    assert merged(each(model), rows(5)) == [3]
    assert merged(lambda x: [layer(x) for layer in reversed(model.layers)], rows(5)) == [3]


def test_a_single_row_is_merged_where_there_is_a_bias() -> None:
    assert merged(each(Layers(16, 8)), rows(1)) == []
    assert merged(each(Layers(16, 8)), rows(2)) == [2]
    assert merged(each(Layers(16, 8, bias=True)), rows(1)) == [2]


def test_what_lies_elsewhere_is_left_by_itself() -> None:
    model = Layers(16, 8, 24, 8)
    middle: Any = model.layers[1]
    middle.weight.data = middle.weight.data.clone()
    assert merged(each(model), rows(5)) == [2]
    last: Any = model.layers[3]
    last.weight = nn.Parameter(last.weight.data.clone())
    assert merged(each(model), rows(5)) == []


def test_weights_that_follow_with_biases_that_do_not() -> None:
    model, other_way_round = Layers(16, 8, bias=True), torch.randn(24)
    first, second = model.layers
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    second.bias.data = second.bias.data.clone()
    assert merged(each(model), rows(5)) == []
    second.bias.data, first.bias.data = other_way_round.split((8, 16))
    assert merged(each(model), rows(5)) == []


def test_a_row_between_the_weights_is_a_gap() -> None:
    model = Layers(16, 8)
    first: Any = model.layers[0]
    first.weight.data = first.weight.data[:15]
    assert merged(each(model), rows(5)) == []


def test_inputs_that_are_equal_and_not_the_same() -> None:
    first, second = model = Layers(16, 8).layers
    assert len(model) == 2
    assert merged(lambda x: (first(x), second(x + 1)), rows(5)) == []


def scaled(x: Tensor) -> None:
    x.mul_(2)


def added(x: Tensor) -> None:
    x += 1


def assigned(x: Tensor) -> None:
    x[0, 0] = 3


def by_an_operator(x: Tensor) -> None:
    torch.ops.aten.mul_.Scalar(x, 2)


def set_to_zero_at_negatives(x: Tensor) -> None:
    relu(x, inplace=True)


def written_as_a_result(x: Tensor) -> None:
    torch.neg(x, out=x)


@pytest.mark.parametrize(
    "write", [scaled, added, assigned, by_an_operator, set_to_zero_at_negatives, written_as_a_result]
)
def test_an_input_written_to_in_between_is_another_one(write: Callable[[Tensor], None]) -> None:
    first, second = Layers(16, 8).layers

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        before = first(x)
        write(x)
        return before, second(x)

    assert merged(run, rows(5)) == []


def test_a_weight_that_is_computed_first_is_left_by_itself() -> None:
    first, second = Layers(16, 8).layers
    assert isinstance(second, nn.Linear)
    weight = second.weight
    assert merged(lambda x: (first(x), linear(x, weight * 2)), rows(5)) == []


def test_vectors_have_no_rows_to_follow_each_other() -> None:
    first, second = torch.randn(2 * WIDTH).split(WIDTH)
    assert merged(lambda x: (linear(x, first), linear(x, second)), rows(5)) == []


def test_hooks_still_see_their_own_layer() -> None:
    model = Layers(16, 8)
    model.layers[1].register_forward_hook(lambda _layer, _inputs, output: output + 1)
    assert merged(each(model), rows(5)) == [2]


@pytest.mark.usefixtures("compiler")
def test_inductor_compiles_it_once() -> None:
    first, second = Layers(16, 8, bias=True).layers
    calls = []

    def counted(module: GraphModule, inputs: list[Any]) -> Callable[..., object]:
        calls.append(module)
        compiled: Callable[..., object] = inductor(module, inputs)
        return compiled

    assert merged(lambda x: (first(x).relu() @ x.new_ones(16), second(x) * 2), rows(5), counted) == [2]
    assert len(calls) == 1


@pytest.mark.parametrize(("family", "products"), [("llama", 4), ("gemma3", 4), ("qwen2", 6)])
def test_a_layer_of_a_model_takes_fewer_products(family: str, products: int) -> None:
    model, counting = shallow(family), Counting()
    lay_side_by_side(model)
    ids = torch.randint(VOCABULARY, (1, 9))

    def run() -> Tensor:
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
        return logits

    torch.compiler.reset()
    compiled = torch.compile(run, backend=MergingCompiler(counting), fullgraph=True, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            ids.copy_(torch.randint(VOCABULARY, (1, 9)))
            torch.testing.assert_close(compiled(), run(), atol=1e-5, rtol=1e-5)
    assert counting.products == [products + 1]  # and the head


def test_what_does_not_bear_it_is_compiled_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Layers(16, 16).layers
    given = rows(5)

    def run() -> Tensor:
        flat: Tensor = first(given).view(-1) + second(given).view(-1)  # of a part, -1 would be a copy
        return flat

    with torch.no_grad():
        _, seconds = fuse(run, SimulationBackend())
    assert seconds > 0
    assert "every product by itself: cannot be compiled: view size is not compatible" in caplog.text


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Products of each graph that a runner compiles."""
    counting = Counting()
    monkeypatch.setattr("inference.fused._as_traced", counting)
    return counting.products


def test_a_fused_runner_moves_the_weights_first(products: list[int]) -> None:
    model, ids = shallow("llama"), torch.randint(VOCABULARY, (1, 4))
    with GraphedForward(model, (4,), fused=True, strict=True) as forward:
        assert products == [5]
        assert forward.ledger[0].not_fused is None
        forward(ids)
        layer: Any = model.get_submodule("model.layers.0.mlp")
        layer.up_proj.weight = nn.Parameter(torch.randn_like(layer.up_proj.weight))
        with torch.no_grad():
            found = forward(ids)
            torch.testing.assert_close(found, model(ids).logits[:, -1], atol=1e-5, rtol=1e-5)
        assert (products, forward.recaptures) == ([5, 5], 1)
        with GraphedForward(model, (8,), fused=True, strict=True):
            assert torch.equal(forward(ids), found)
        assert forward.recaptures == 1


def test_a_plain_runner_does_not(products: list[int]) -> None:
    model = tiny("llama")
    guard = ModelGuard(model)
    with GraphedForward(model, (4,)):
        assert guard.changed() is None
    assert products == []
