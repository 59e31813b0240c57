"""The graphed runner on the simulation: any length, either padding, a reason for all that is left eager."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions, CausalLMOutputWithPast

from contract import CaptureError, LaunchgapError
from inference import ladder, rung
from inference.backends import SimulationBackend
from inference.calling import Logits
from inference.families import find_family, tiny_model
from inference.forward import GraphedForward
from inference.lengths import DEFAULT_LENGTHS, usable_lengths
from inference.proof import Timing
from inference.rung import Mask
from inference.simulation import RecordedGraph, _is_recording
from inference.staging import PaddingSide, StaticInputs

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (4, 8, 16)
VOCABULARY = 96


def tiny(name: str = "Llama") -> PreTrainedModel:
    return tiny_model(find_family(name))


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    """For tests that leave the model as it is."""
    return tiny()


def prompt(length: int) -> Tensor:
    return torch.randint(VOCABULARY, (1, length))


def eager(model: PreTrainedModel, ids: Tensor, logits: str = "last") -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=ids, use_cache=False).logits
    return found[:, -1] if logits == "last" else found


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("logits", ["last", "all"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["Llama", "GPT-2", "Mistral"])
def test_every_length_gives_eagers_logits(name: str, side: PaddingSide, logits: Logits) -> None:
    model = tiny(name)
    with GraphedForward(model, LENGTHS, logits=logits, padding_side=side, strict=True) as forward:
        for n in (16, 1, 3, 4, 5, 8, 9, 15, 2):
            ids = prompt(n)
            found = forward(ids)
            assert found.shape == ((1, VOCABULARY) if logits == "last" else (1, n, VOCABULARY))
            close(found, eager(model, ids, logits))


def test_the_smallest_length_that_fits_serves(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, LENGTHS) as forward:
        built = forward._built
        assert built is not None
        served = {
            n: found.length if (found := built.ladder.find(n)) else None for n in (1, 4, 5, 8, 9, 16, 17)
        }
    assert served == {1: 4, 4: 4, 5: 8, 8: 8, 9: 16, 16: 16, 17: None}
    assert [(entry.length, entry.path, entry.graph_from) for entry in forward.ledger] == [
        (4, "graph", 1),
        (8, "graph", 5),
        (16, "graph", 9),
    ]


def test_the_ledger_tells_what_each_length_cost(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, LENGTHS) as forward:
        for entry in forward.ledger:
            assert entry.capture_s is not None
            assert entry.pool_bytes is not None
            assert entry.largest_difference is not None
            assert entry.capture_s > 0
            assert entry.pool_bytes > 0
            assert entry.largest_difference < 1e-5
            assert (entry.attention_mask, entry.reason, entry.graph_ms) == ("none", None, None)


def test_lengths_may_be_any_whole_numbers_in_any_order(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, np.array([7, 50, 7, 13])) as forward:  # type: ignore[arg-type]
        assert [entry.length for entry in forward.ledger] == [7, 13, 50]
        ids = prompt(13)
        close(forward(ids), eager(llama, ids))


@pytest.mark.parametrize(
    ("positions", "expected"),
    [(2048, DEFAULT_LENGTHS), (512, (64, 128, 256, 512)), (100, (64, 100)), (32, (32,))],
)
def test_usual_lengths_stop_at_the_models_positions(positions: int, expected: tuple[int, ...]) -> None:
    assert usable_lengths(None, positions) == expected


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ((), "at least one"),
        ((0,), "length 0: must be a whole number of 1 or more"),
        ((8, -1), "length -1"),
        ((8, True), "length True"),
        ((8.5,), r"length 8\.5"),
        (("8",), "length '8'"),
        (8, r"lengths 8: give a sequence"),
        ((8, 65), "length 65: the model has 64 positions; use lengths up to 64"),
    ],
)
def test_lengths_that_cannot_be(llama: PreTrainedModel, lengths: tuple[int, ...], words: str) -> None:
    with pytest.raises(LaunchgapError, match=words):
        GraphedForward(llama, lengths)


@pytest.mark.parametrize(
    "choice", [{"logits": "first"}, {"padding_side": "top"}, {"over": "x"}, {"on_change": "x"}], ids=str
)
def test_choices_that_cannot_be(llama: PreTrainedModel, choice: dict[str, Any]) -> None:
    with pytest.raises(LaunchgapError, match=f"{next(iter(choice))} .*: unknown; use"):
        GraphedForward(llama, LENGTHS, **choice)


def test_a_copy_outlives_later_calls_and_a_view_does_not(llama: PreTrainedModel) -> None:
    first, second = prompt(6), prompt(3)
    with GraphedForward(llama, LENGTHS) as copied, GraphedForward(llama, LENGTHS, copy=False) as shared:
        kept, view = copied(first), shared(first)
        assert torch.equal(kept, view)
        copied(second)
        later = shared(second)
        assert view.data_ptr() == later.data_ptr()
        assert torch.equal(view, later)
        close(kept, eager(llama, first))


def test_all_graphs_write_into_one_buffer(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, LENGTHS, logits="all") as forward:
        built = forward._built
        assert built is not None
        assert len({one.output.data_ptr() for one in built.ladder.rungs.values()}) == 1


def test_a_model_that_sees_the_future_is_fed_a_padding_mask() -> None:
    config = BertConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
    )
    model = BertLMHeadModel(config).eval()
    with GraphedForward(model, LENGTHS, logits="all") as forward:
        assert {entry.attention_mask for entry in forward.ledger} == {"static"}
        for n in (1, 5, 16):
            ids = prompt(n)
            close(forward(ids), eager(model, ids, "all"))


class _LlamaOfFewArguments(LlamaForCausalLM):
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, use_cache: bool | None = None
    ) -> CausalLMOutputWithPast:
        found = super().forward(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)
        assert isinstance(found, CausalLMOutputWithPast)
        return found


class _GPT2WithoutPositions(GPT2LMHeadModel):
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, use_cache: bool | None = None
    ) -> CausalLMOutputWithCrossAttentions:
        found = super().forward(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)
        assert isinstance(found, CausalLMOutputWithCrossAttentions)
        return found


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_model_that_cannot_cut_its_logits_has_them_cut_in_the_graph(side: PaddingSide) -> None:
    model: PreTrainedModel = _LlamaOfFewArguments(tiny().config).eval()  # type: ignore[no-untyped-call]
    with GraphedForward(model, LENGTHS, padding_side=side, strict=True) as forward:
        for n in (1, 5, 16):
            close(forward(ids := prompt(n)), eager(model, ids))


def test_learned_positions_that_cannot_be_given_forbid_left_padding() -> None:
    model: PreTrainedModel = _GPT2WithoutPositions(tiny("GPT-2").config).eval()  # type: ignore[no-untyped-call]
    with GraphedForward(model, (8,), padding_side="left") as forward:
        assert "no padded graph gives eager's logits" in str(forward.ledger[0].reason)
        close(forward(ids := prompt(5)), eager(model, ids))
    with GraphedForward(model, (8,), padding_side="right", strict=True) as forward:
        close(forward(ids := prompt(5)), eager(model, ids))


class _SeesPadding:
    """A hook that mixes the mean over all positions into the embeddings: no mask can hide padding from it."""

    def __call__(self, _module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return output + output.mean(1, keepdim=True)


def test_a_length_without_a_right_answer_is_left_eager() -> None:
    model = tiny()
    model.get_input_embeddings().register_forward_hook(_SeesPadding())
    with GraphedForward(model, (8,)) as forward:
        (entry,) = forward.ledger
        assert entry.path == "eager"
        assert "no padded graph gives eager's logits" in str(entry.reason)
        ids = prompt(5)
        close(forward(ids), eager(model, ids))
    with pytest.raises(LaunchgapError, match="no padded graph"):
        GraphedForward(model, (8,), strict=True)


def _read_on_the_host(length: int) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return output * float(output.sum().item() > -1e9) if output.shape[1] == length else output

    return hook


def test_a_length_that_cannot_be_captured_is_left_eager_by_name() -> None:
    model = tiny()
    model.get_input_embeddings().register_forward_hook(_read_on_the_host(8))
    with GraphedForward(model, LENGTHS) as forward:
        assert [entry.path for entry in forward.ledger] == ["graph", "eager", "graph"]
        assert "aten._local_scalar_dense at inference/test_forward.py" in str(forward.ledger[1].reason)
        for n in (4, 6, 8, 12):
            ids = prompt(n)
            close(forward(ids), eager(model, ids))
    with pytest.raises(CaptureError, match=r"test_forward\.py:\d+ .*\.item\(\)"):
        GraphedForward(model, LENGTHS, strict=True)


def _out_of_memory_at(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    def static_inputs(n: int, device: torch.device, side: PaddingSide, mask: Mask) -> StaticInputs:
        if n == length:
            raise torch.cuda.OutOfMemoryError("no room")
        return rung.static_inputs(n, device, side, mask)

    monkeypatch.setattr(ladder, "static_inputs", static_inputs)


def test_a_length_that_does_not_fit_is_left_eager(
    llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    _out_of_memory_at(monkeypatch, 16)
    with GraphedForward(llama, LENGTHS) as forward:
        assert [entry.path for entry in forward.ledger] == ["graph", "graph", "eager"]
        assert "out of GPU memory" in str(forward.ledger[2].reason)
    with pytest.raises(LaunchgapError, match="length 16: out of GPU memory"):
        GraphedForward(llama, LENGTHS, strict=True)


def test_a_graph_that_is_not_faster_is_left_eager(
    llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {4: (1.0, 2.0, 2.0), 8: (2.0, 3.0, 1.0), 16: (9.0, 4.0, 3.0)}
    monkeypatch.setattr(
        ladder, "time_rung", lambda _c, one, _b, shortest: Timing(*times[one.length], one.length, shortest)
    )
    with GraphedForward(llama, LENGTHS, only_if_faster=True) as forward:
        assert [(e.path, e.graph_from, e.eager_ms) for e in forward.ledger] == [
            ("graph", 1, 2.0),
            ("graph", 7, 3.0),
            ("eager", None, 4.0),
        ]
        assert forward.ledger[2].reason == "the graph takes 9 ms, eager 4 ms"
        built = forward._built
        assert built is not None
        served = [built.ladder.find(n) is not None for n in (4, 5, 6, 7, 8, 9, 16)]
        assert served == [True, False, False, True, True, False, False]
        for n in (4, 5, 8, 16):
            ids = prompt(n)
            close(forward(ids), eager(llama, ids))


def test_timing_takes_place_where_it_is_asked_for(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, (8,), only_if_faster=True) as forward:
        (entry,) = forward.ledger
        times_ms = (entry.graph_ms, entry.eager_ms, entry.shortest_eager_ms)
        assert all(time_ms is not None and time_ms > 0 for time_ms in times_ms)


@pytest.mark.parametrize(
    ("graph_ms", "eager_ms", "shortest_eager_ms", "expected"),
    [(1, 2, 2, 65), (2, 2, 1, None), (3, 2, 1, None), (2, 3, 1, 97), (1, 2, 1, 66), (2, 2.001, 1, 128)],
)
def test_a_graph_serves_from_where_it_is_faster(
    graph_ms: float, eager_ms: float, shortest_eager_ms: float, expected: int | None
) -> None:
    assert Timing(graph_ms, eager_ms, shortest_eager_ms, 128, 65).graph_from() == expected


def test_prompts_above_the_longest_length_are_refused_or_run_eagerly(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, LENGTHS) as forward:
        with pytest.raises(
            LaunchgapError, match=r'17 tokens: the longest captured length is 16.*over="eager"'
        ):
            forward(prompt(17))
        close(forward(ids := prompt(16)), eager(llama, ids))
    with GraphedForward(llama, LENGTHS, over="eager") as forward:
        close(forward(ids := prompt(17)), eager(llama, ids))
        with pytest.raises(LaunchgapError, match="65 tokens: the model has 64 positions"):
            forward(prompt(65))


def test_closing_is_final_and_may_be_repeated(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, LENGTHS) as forward:
        kept = forward(ids := prompt(5))
    forward.close()
    close(kept, eager(llama, ids))
    assert [entry.length for entry in forward.ledger] == list(LENGTHS)
    with pytest.raises(LaunchgapError, match="closed; make a new GraphedForward"):
        forward(ids)


def test_closing_frees_the_graphs(llama: PreTrainedModel) -> None:
    before = _live(RecordedGraph)
    forward = GraphedForward(llama, LENGTHS)
    assert _live(RecordedGraph) == before + len(LENGTHS)
    forward.close()
    assert _live(RecordedGraph) == before


def _live(kind: type) -> int:
    gc.collect()
    return sum(issubclass(type(item), kind) for item in gc.get_objects())


def _interrupt_captures_of(length: int) -> Callable[[nn.Module, object, Tensor], None]:
    def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        if output.shape[1] == length and _is_recording():
            raise KeyboardInterrupt

    return hook


def test_an_interrupted_build_leaves_the_model_and_no_graph_behind() -> None:
    model = tiny()
    before = _live(RecordedGraph)
    hook = model.get_input_embeddings().register_forward_hook(_interrupt_captures_of(8))
    with pytest.raises(KeyboardInterrupt):
        GraphedForward(model, LENGTHS)
    hook.remove()
    assert model.config._attn_implementation == "sdpa"
    assert _live(RecordedGraph) == before
    with GraphedForward(model, LENGTHS) as forward:
        close(forward(ids := prompt(5)), eager(model, ids))


def test_an_interruption_that_a_broken_capture_hides_is_still_one(
    llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(*_: object) -> object:
        try:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("capture invalidated")
        except RuntimeError as error:
            raise CaptureError("capture failed at an unknown line") from error

    monkeypatch.setattr(SimulationBackend, "capture", capture)
    with pytest.raises(KeyboardInterrupt):
        GraphedForward(llama, LENGTHS)


def test_building_leaves_the_callers_random_numbers_alone(llama: PreTrainedModel) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    GraphedForward(llama, (8,)).close()
    assert torch.equal(torch.rand(2), expected)


def test_inference_mode_makes_no_difference(llama: PreTrainedModel) -> None:
    ids = prompt(5)
    with torch.inference_mode():
        forward = GraphedForward(llama, LENGTHS)
        inside = forward(ids)
    assert torch.equal(forward(ids), inside)
    with torch.inference_mode():
        assert torch.equal(forward(ids), inside)
    forward.close()


def test_mixed_requests_leave_nothing_behind(llama: PreTrainedModel) -> None:
    with GraphedForward(llama, LENGTHS, over="eager") as forward:
        sizes = torch.randint(1, 20, (300,)).tolist()
        forward(prompt(3)), forward(prompt(17))
        before = _live(Tensor)
        for n in sizes:
            forward(prompt(n))
        assert _live(Tensor) == before
