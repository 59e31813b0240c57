"""What a caller may give the graphed runner by mistake, and what it says."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, T5Config, T5ForConditionalGeneration

from contract import LaunchgapError
from inference.families import find_family, tiny_model
from inference.forward import GraphedForward
from inference.request import real_span
from inference.simulation import RecordedGraph, _is_recording
from inference.staging import StaticInputs
from tests.inference.tiny_models import interrupt_at, one_line, restore, shallow

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (8, 16)
VOCABULARY = 96


def tiny() -> PreTrainedModel:
    return tiny_model(find_family("Llama"))


@pytest.fixture(scope="module")
def forward() -> Iterator[GraphedForward]:
    with GraphedForward(tiny(), LENGTHS) as made:
        yield made


def ids_of(*values: int) -> Tensor:
    return torch.tensor([values])


def with_hole(length: int) -> Tensor:
    mask = torch.ones((1, length))
    mask[0, 2] = 0
    return mask


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (torch.empty((1, 0), dtype=torch.int64), "input_ids are empty"),
        (torch.empty(0, dtype=torch.int64), "input_ids are empty"),
        (ids_of(1, VOCABULARY), "token id 96: outside the vocabulary of 96"),
        (ids_of(1, 2**40), "outside the vocabulary"),
        (ids_of(5, -1), "token id -1: outside the vocabulary"),
        (ids_of(5, -1).int(), "token id -1: outside the vocabulary"),
        (torch.ones((2, 3), dtype=torch.int64), "batch size is 1"),
        (torch.ones((0, 3), dtype=torch.int64), "batch size is 1"),
        (torch.ones((3, 1), dtype=torch.int64), "batch size is 1"),
        (torch.ones((1, 1, 3), dtype=torch.int64), "batch size is 1"),
        (torch.ones((), dtype=torch.int64), "batch size is 1"),
        (torch.ones((1, 3)), r"torch\.float32: token ids are integers"),
        (torch.ones((1, 3), dtype=torch.bool), r"torch\.bool: token ids are integers"),
        (torch.ones((1, 3), dtype=torch.uint16), r"torch\.uint16: token ids are integers"),
        (torch.ones((1, 3), dtype=torch.uint64), r"torch\.uint64: token ids are integers"),
        (torch.ones((1, 3), dtype=torch.int64).to_sparse(), "sparse or nested"),
        (
            torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=torch.jagged).long(),
            "sparse or nested",
        ),
        ([1, 2, 3], "input_ids of type list"),
        ("hello", "input_ids of type str"),
        (torch.ones((1, 17), dtype=torch.int64), "17 tokens: the longest captured length is 16"),
    ],
)
def test_ids_that_cannot_be(forward: GraphedForward, ids: Tensor, words: str) -> None:
    for call in (forward, forward.copy_in):
        with pytest.raises(LaunchgapError, match=words) as raised:
            call(ids)
        assert one_line(raised.value)
    assert forward(ids_of(1, 2, 3)).isfinite().all()  # and no harm was done


@pytest.mark.parametrize("length", [4, 40], ids=["by graph", "eagerly"])
@pytest.mark.parametrize("wrong", [-1, VOCABULARY, 2**40])
def test_a_wrong_request_never_reaches_the_device(
    length: int, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id outside the embedding is a device-side assert, after which no CUDA call of the process works."""
    reached: list[str] = []
    model = tiny()
    with GraphedForward(model, LENGTHS, over="eager") as forward:
        good = torch.randint(VOCABULARY, (1, length))
        monkeypatch.setattr(StaticInputs, "fill", lambda *_: reached.append("copied"))
        monkeypatch.setattr(RecordedGraph, "replay", lambda _: reached.append("replayed"))
        model.register_forward_pre_hook(lambda *_: reached.append("run"))
        for at in (0, length - 1):
            ids = good.clone()
            ids[0, at] = wrong
            for call in (forward, forward.copy_in):
                with pytest.raises(LaunchgapError, match=f"token id {wrong}: outside the vocabulary"):
                    call(ids)
        for mask in (torch.ones((1, length - 1)), torch.zeros((1, length)), with_hole(length)):
            for call in (forward, forward.copy_in):
                with pytest.raises(LaunchgapError, match="attention_mask"):
                    call(good, mask)
        assert reached == []
        forward(good)
        assert reached == (["copied", "replayed"] if length == 4 else ["run"])


def test_ids_of_every_kind_give_the_same_bits(forward: GraphedForward) -> None:
    ids = torch.randint(VOCABULARY, (1, 6))
    wanted = forward(ids)
    for other in (ids[0], ids.int(), ids.to(torch.uint8), ids.repeat_interleave(2, 1)[:, ::2], ids.flip(0)):
        assert torch.equal(forward(other), wanted)


MASK = [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones((1, 3)), r"shape \(1, 3\): the prompt has shape \(1, 4\)"),
        (torch.ones((4, 1)), r"shape \(4, 1\)"),
        (torch.ones((1, 1, 4, 4)), r"shape \(1, 1, 4, 4\)"),
        (torch.tensor([[1, 0, 1, 1]]), "hole at token 1"),
        (torch.tensor([[0, 1, 1, 0]]), None),
        (torch.tensor([[0, 1, 0, 1]]), "hole at token 2"),
        (torch.zeros((1, 4)), "hides every token"),
        (torch.tensor([[1, 2, 1, 1]]), "values other than 0 and 1"),
        (torch.tensor([[0.0, float("-inf"), 0.0, 0.0]]), "values other than 0 and 1"),
        (torch.tensor([[1.0, float("nan"), 1.0, 1.0]]), "values other than 0 and 1"),
        (MASK, "attention_mask of type list"),
    ],
)
def test_masks_that_cannot_be(forward: GraphedForward, mask: Tensor, words: str | None) -> None:
    ids = torch.randint(VOCABULARY, (1, 4))
    if words is None:
        assert torch.equal(forward(ids, mask), forward(ids[:, 1:3]))
        return
    with pytest.raises(LaunchgapError, match=words) as raised:
        forward(ids, mask)
    assert one_line(raised.value)
    assert torch.equal(forward(ids, torch.ones((1, 4))), forward(ids))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.bfloat16])
def test_padding_at_either_end_is_left_out(forward: GraphedForward, dtype: torch.dtype) -> None:
    ids = torch.randint(VOCABULARY, (1, 5))
    for mask, real in (([1] * 5, ids), ([1, 1, 1, 0, 0], ids[:, :3]), ([0, 0, 0, 0, 1], ids[:, 4:])):
        assert torch.equal(forward(ids, torch.tensor([mask]).to(dtype)), forward(real))
        assert torch.equal(forward(ids[0], torch.tensor(mask).to(dtype)), forward(real))


def test_padding_may_reach_above_the_longest_length(forward: GraphedForward) -> None:
    ids = torch.randint(VOCABULARY, (1, 40))
    mask = torch.zeros((1, 40))
    mask[:, 30:35] = 1
    assert torch.equal(forward(ids, mask), forward(ids[:, 30:35]))


def test_a_span_is_first_and_one_past_last() -> None:
    assert real_span(torch.tensor([[0, 1, 1, 0]]), 4) == (1, 3)


def test_a_second_thread_is_refused_while_a_call_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    replaying, go_on = threading.Event(), threading.Event()
    replay = RecordedGraph.replay

    def slow(graph: RecordedGraph) -> None:
        replaying.set()
        assert go_on.wait(20)
        replay(graph)

    with GraphedForward(tiny(), LENGTHS) as forward:
        ids = ids_of(1, 2, 3)
        wanted = forward(ids)
        monkeypatch.setattr(RecordedGraph, "replay", slow)
        answers: list[Tensor] = []
        other = threading.Thread(target=lambda: answers.append(forward(ids)))
        other.start()
        assert replaying.wait(20)
        try:
            for call in (forward, forward.copy_in, lambda _: forward.replay(), lambda _: forward.close()):
                with pytest.raises(
                    LaunchgapError, match="middle of another call; make one GraphedForward for each"
                ) as raised:
                    call(ids)
                assert one_line(raised.value)
        finally:
            go_on.set()
            other.join(20)
        assert torch.equal(answers[0], wanted)
        assert torch.equal(forward(ids), wanted)


def test_an_error_in_a_call_does_not_lock_the_runner(
    forward: GraphedForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ids_of(1, 2, 3)
    wanted = forward(ids)

    def interrupted(_graph: RecordedGraph) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RecordedGraph, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            forward(ids)
    assert torch.equal(forward(ids), wanted)


def graphs_alive() -> int:
    gc.collect()
    return sum(issubclass(type(item), RecordedGraph) for item in gc.get_objects())


def count_calls(model: PreTrainedModel, run: Callable[[], object]) -> int:
    counter = interrupt_at(model, 0, KeyboardInterrupt())
    run()
    counter.handle.remove()
    return int(counter.calls)


def test_an_interruption_anywhere_in_the_build_leaves_model_and_process_usable() -> None:
    model, ids = shallow("llama"), ids_of(1, 2, 3)
    with GraphedForward(model, LENGTHS) as forward:
        wanted = forward(ids)
    recording, asked, before = [], torch.cuda.is_current_stream_capturing, graphs_alive()
    for call in range(1, count_calls(model, lambda: GraphedForward(model, LENGTHS).close()) + 1):
        counter = interrupt_at(model, call, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            GraphedForward(model, LENGTHS)
        counter.handle.remove()
        recording.append(counter.was_recording)
        assert model.config._attn_implementation == "sdpa"
        assert not _is_recording()
        assert torch.cuda.is_current_stream_capturing is asked
        assert gc.isenabled()
        with GraphedForward(model, LENGTHS) as forward:
            assert {entry.path for entry in forward.ledger} == {"graph"}
            assert torch.equal(forward(ids), wanted)
    assert graphs_alive() == before
    assert sum(recording) >= len(LENGTHS)  # each length was once interrupted in the middle of its capture
    assert not all(recording)


def test_an_interruption_anywhere_in_a_recapture_is_made_up_for_by_the_next_call() -> None:
    model, ids = shallow("llama"), ids_of(1, 2, 3)
    total = count_calls(model, lambda: GraphedForward(model, LENGTHS).close())
    with GraphedForward(model, LENGTHS) as forward:
        for call in range(1, total + 1):
            model.lm_head.weight = nn.Parameter(model.lm_head.weight.flip(0), requires_grad=False)
            counter = interrupt_at(model, call, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                forward(ids)
            counter.handle.remove()
            with torch.no_grad():
                wanted = model(input_ids=ids, use_cache=False).logits[:, -1]
            torch.testing.assert_close(forward(ids), wanted, atol=1e-5, rtol=1e-5)
            assert {entry.path for entry in forward.ledger} == {"graph"}


def _t5() -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=32, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(2, 2), "type Linear: not a causal LM of transformers"),
        (lambda: "gpt2", "type str: not a causal LM"),
        (lambda: _t5().eval(), "not a causal LM"),
        (lambda: AutoModel.from_config(tiny().config).eval(), "type LlamaModel: not a causal LM"),
        (lambda: tiny().train(), r"training mode; call model\.eval"),
        (lambda: nn.Module.to(tiny(), "meta"), "its weights are on meta; move it to cuda"),
    ],
)
def test_models_that_cannot_be(make: Callable[[], PreTrainedModel], words: str) -> None:
    with pytest.raises(LaunchgapError, match=words) as raised:
        GraphedForward(make(), LENGTHS)
    assert one_line(raised.value)


def test_a_model_on_two_devices_is_refused() -> None:
    model = tiny()
    model.lm_head.to("meta")
    with pytest.raises(LaunchgapError, match="weights are on cpu, meta; put all on one device") as raised:
        GraphedForward(model, LENGTHS)
    assert one_line(raised.value)


@pytest.mark.parametrize(
    ("part", "words"),
    [("lm_head", "its weights are on cpu, meta; put all on one device"), ("", "its weights are on meta")],
    ids=["one weight", "all"],
)
@pytest.mark.parametrize("on_change", ["recapture", "raise"])
def test_a_model_that_was_moved_away_is_refused_until_it_is_back(
    part: str, words: str, on_change: Literal["recapture", "raise"]
) -> None:
    model = tiny()
    words = words if on_change == "recapture" else "on meta, was"
    with GraphedForward(model, LENGTHS, on_change=on_change) as forward:
        ids = ids_of(1, 2, 3)
        wanted = forward(ids)
        kept = {name: tensor.data for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        nn.Module.to(model.get_submodule(part), "meta")
        for _ in range(2):
            with pytest.raises(LaunchgapError, match=words) as raised:
                forward(ids)
            assert one_line(raised.value)
        restore(model, kept)
        with pytest.raises(LaunchgapError, match="has changed") if on_change == "raise" else nullcontext():
            assert torch.equal(forward(ids), wanted)


def test_a_model_that_returns_no_logits_is_refused() -> None:
    model = tiny()
    model.register_forward_hook(lambda _module, _inputs, output: output.to_tuple())
    with pytest.raises(LaunchgapError, match="returns no logits"):
        GraphedForward(model, LENGTHS)


def test_autocast_is_refused(forward: GraphedForward) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(LaunchgapError, match="autocast is on"):
        GraphedForward(tiny(), LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(LaunchgapError, match="autocast is on"):
        forward(ids_of(1, 2, 3))
