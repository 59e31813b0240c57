"""What a capture baked in: noticed when it changes, and never a wrong answer."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference import forward as forward_module
from inference.families import find_family, tiny_model
from inference.forward import GraphedForward
from inference.generator import GraphedGenerator
from inference.guards import ModelGuard
from inference.ladder import Ladder
from tests.inference.tiny_models import READS_BACK

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (8, 16)
IDS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny_model(find_family("Llama"))


def eager(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=IDS, use_cache=False).logits
    return logits[:, -1]


def projection(model: PreTrainedModel) -> nn.Linear:
    found = model.get_submodule("model.layers.1.self_attn.o_proj")
    assert isinstance(found, nn.Linear)
    return found


def new_parameter(model: PreTrainedModel) -> None:
    layer = projection(model)
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))


def new_data(model: PreTrainedModel) -> None:
    layer = projection(model)
    layer.weight.data = torch.randn_like(layer.weight)


def transposed_in_place(model: PreTrainedModel) -> None:
    layer = projection(model)
    layer.weight.data = layer.weight.data.t()  # square: same address, dtype and shape


def new_module(model: PreTrainedModel) -> None:
    head = model.get_output_embeddings()
    assert isinstance(head, nn.Linear)
    model.set_output_embeddings(nn.Linear(head.in_features, head.out_features, bias=False).eval())


def new_bias(model: PreTrainedModel) -> None:
    layer = projection(model)
    layer.bias = nn.Parameter(torch.randn(layer.out_features))


def new_buffer(model: PreTrainedModel) -> None:
    rotary = model.get_submodule("model.rotary_emb")
    rotary.inv_freq = torch.ones_like(rotary.get_buffer("inv_freq"))


def half_precision(model: PreTrainedModel) -> None:
    nn.Module.to(model, torch.bfloat16)


def other_attention(model: PreTrainedModel) -> None:
    model.set_attn_implementation(READS_BACK)


CHANGES = [
    (new_parameter, r"model\.layers\.1\.self_attn\.o_proj\.weight was replaced"),
    (new_data, r"o_proj\.weight lies at another address or has another shape"),
    (transposed_in_place, r"o_proj\.weight lies at another address or has another shape"),
    (new_module, "lm_head was replaced"),
    (new_bias, r"o_proj\.bias was replaced"),
    (new_buffer, r"rotary_emb\.inv_freq was replaced"),
    (half_precision, r"is torch\.bfloat16 on cpu, was torch\.float32 on cpu"),
    (other_attention, f"attention implementation is {READS_BACK}, was sdpa"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_changed_model_is_captured_again_and_answers_as_it_now_is(
    model: PreTrainedModel,
    change: Callable[[PreTrainedModel], None],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with GraphedForward(model, LENGTHS) as forward:
        before = forward(IDS)
        change(model)
        found, wanted = forward(IDS), eager(model)
        assert found.dtype is wanted.dtype
        tolerance = 1e-2 if found.dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)
        assert re.search(rf"the model has changed \(.*{words}.*\) and is captured again", caplog.text)
        assert change is other_attention or not torch.equal(found.float(), before)
        assert torch.equal(forward(IDS), found)
        assert forward.recaptures == 1
        assert {entry.path for entry in forward.ledger} == {"eager" if change is other_attention else "graph"}


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_changed_model_is_refused_where_that_was_asked_for(
    model: PreTrainedModel, change: Callable[[PreTrainedModel], None], words: str
) -> None:
    with GraphedForward(model, LENGTHS, on_change="raise") as forward:
        change(model)
        for _ in range(2):
            with pytest.raises(LaunchgapError, match=rf"has changed since it was captured \(.*{words}"):
                forward(IDS)


def test_values_written_in_place_are_seen_without_a_new_capture(model: PreTrainedModel) -> None:
    with GraphedForward(model, LENGTHS) as forward:
        before = forward(IDS)
        state = {name: value + 0.1 * torch.randn_like(value) for name, value in model.state_dict().items()}
        model.load_state_dict(state)
        found = forward(IDS)
        torch.testing.assert_close(found, eager(model), atol=1e-5, rtol=1e-5)
        assert not torch.equal(found, before)
        assert forward.recaptures == 0


@pytest.mark.parametrize("part", ["", "model.layers.0"])
def test_training_mode_is_refused_until_it_ends(model: PreTrainedModel, part: str) -> None:
    with GraphedForward(model, (8,), over="eager") as forward:
        wanted = forward(IDS)
        model.get_submodule(part).train()
        for ids in (IDS, torch.arange(12)[None]):  # by graph, and eagerly
            with pytest.raises(LaunchgapError, match=r"training mode; call model\.eval"):
                forward(ids)
        model.eval()
        assert torch.equal(forward(IDS), wanted)
        assert forward.recaptures == 0


def test_a_matmul_precision_is_baked_in(model: PreTrainedModel) -> None:
    guard = ModelGuard(model)
    assert guard.changed() is None
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if before != "medium" else "highest")
    try:
        change = guard.changed()
        assert str(change).startswith("float32 matmul precision is")
    finally:
        torch.set_float32_matmul_precision(before)


def test_weights_that_were_replaced_stay_allocated_while_a_graph_may_read_them(
    model: PreTrainedModel,
) -> None:
    address = projection(model).weight.data_ptr()
    guard = ModelGuard(model)
    new_parameter(model)
    assert address in {tensor.data_ptr() for tensor in guard._kept}
    fresh = [torch.empty(32, 32) for _ in range(50)]
    assert address not in {tensor.data_ptr() for tensor in fresh}


def test_a_change_is_noticed_where_eager_serves(model: PreTrainedModel) -> None:
    with GraphedForward(model, (8,), over="eager") as forward:
        new_parameter(model)
        long = torch.arange(12)[None]
        with torch.no_grad():
            wanted = model(input_ids=long, use_cache=False).logits[:, -1]
        torch.testing.assert_close(forward(long), wanted)
        assert forward.recaptures == 1


def test_an_all_eager_runner_follows_the_model(model: PreTrainedModel) -> None:
    layer = model.get_input_embeddings()
    layer.register_forward_hook(lambda _module, _inputs, output: output * (output.sum().item() > -1e9))
    with GraphedForward(model, LENGTHS) as forward:
        assert {entry.path for entry in forward.ledger} == {"eager"}
        new_parameter(model)
        torch.testing.assert_close(forward(IDS), eager(model))
        assert forward.recaptures == 0


@pytest.mark.parametrize("refused", [False, True], ids=["graph", "eager"])
def test_a_vocabulary_that_has_changed_bounds_the_ids(model: PreTrainedModel, refused: bool) -> None:
    if refused:
        model.set_attn_implementation(READS_BACK)
    with GraphedForward(model, LENGTHS) as forward:
        assert {entry.path for entry in forward.ledger} == {"eager" if refused else "graph"}
        model.resize_token_embeddings(200, mean_resizing=False)
        model.eval()
        long = torch.tensor([[199, 5]])
        with torch.no_grad():
            wanted = model(input_ids=long, use_cache=False).logits[:, -1]
        torch.testing.assert_close(forward(long), wanted, atol=1e-5, rtol=1e-5)
        model.resize_token_embeddings(50, mean_resizing=False)
        model.eval()
        with pytest.raises(LaunchgapError, match="token id 199: outside the vocabulary of 50"):
            forward(long)
        assert forward(IDS).shape == (1, 50)


def test_an_interrupted_recapture_is_made_up_for_by_the_next_call(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Ladder:
        raise KeyboardInterrupt

    with GraphedForward(model, LENGTHS) as forward:
        new_parameter(model)
        with monkeypatch.context() as patch:
            patch.setattr(forward_module, "Ladder", interrupted)
            with pytest.raises(KeyboardInterrupt):
                forward(IDS)
        torch.testing.assert_close(forward(IDS), eager(model), atol=1e-5, rtol=1e-5)


def test_a_model_that_changes_during_a_call_is_refused(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GraphedForward(model, (8,)) as forward:
        monkeypatch.setattr(ModelGuard, "changed", lambda _: "everything")
        with pytest.raises(LaunchgapError, match="changes during a call"):
            forward(IDS)
        assert forward.recaptures == 1


def test_a_runner_left_eager_captures_once_the_model_allows_it(model: PreTrainedModel) -> None:
    model.set_attn_implementation(READS_BACK)
    with GraphedForward(model, LENGTHS) as forward:
        assert {entry.path for entry in forward.ledger} == {"eager"}
        forward(IDS)
        assert forward.recaptures == 0
        model.set_attn_implementation("sdpa")
        torch.testing.assert_close(forward(IDS), eager(model), atol=1e-5, rtol=1e-5)
        assert {entry.path for entry in forward.ledger} == {"graph"}
        assert forward.recaptures == 1


def test_a_fused_runner_moves_weights_from_under_a_plain_one(model: PreTrainedModel) -> None:
    with (
        GraphedForward(model, LENGTHS) as plain,
        GraphedForward(model, LENGTHS, on_change="raise") as strict,
        GraphedGenerator(model, max_length=16) as generator,
    ):
        wanted, tokens = plain(IDS), generator.generate(IDS, 4)
        with GraphedGenerator(model, max_length=16, fused=True) as fused:
            assert torch.equal(fused.generate(IDS, 4), tokens)
            assert torch.equal(plain(IDS), wanted)
            assert torch.equal(generator.generate(IDS, 4), tokens)
            assert (plain.recaptures, generator.recaptures, fused.recaptures) == (1, 1, 0)
            with pytest.raises(LaunchgapError, match=r"q_proj\.weight lies at another address"):
                strict(IDS)
            with GraphedForward(model, (8,), fused=True):
                assert torch.equal(plain(IDS), wanted)
            assert plain.recaptures == 1
