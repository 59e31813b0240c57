"""What a generator must refuse before the device hears of it, and what it must notice about its model."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Literal

import pytest
import torch
from transformers import PreTrainedModel

from contract import CaptureError, LaunchgapError
from inference.decode_graphs import DecodeGraphs
from inference.generator import GraphedGenerator
from inference.sampling import Greedy, Sampling
from inference.simulation import RecordedGraph, _is_recording
from inference.staging import StaticInputs
from tests.inference.tiny_models import (
    POSITIONS,
    READS_BACK,
    VOCABULARY,
    interrupt_at,
    one_line,
    restore,
    shallow,
    tiny,
)

IDS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny("llama")


@pytest.fixture
def generator(model: PreTrainedModel) -> GraphedGenerator:
    return GraphedGenerator(model, max_length=16, buckets=(8,))


@pytest.fixture(scope="module")
def served() -> Iterator[GraphedGenerator]:
    """A generator for requests that must leave it as it was."""
    with GraphedGenerator(tiny("llama"), max_length=16, buckets=(8,)) as generator:
        yield generator


def continued(model: PreTrainedModel, count: int) -> list[int]:
    ids = IDS
    for _ in range(count):
        ids = torch.cat((ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)), dim=-1)
    tokens: list[int] = ids[0, -count:].tolist()
    return tokens


@pytest.mark.parametrize(
    ("ids", "new_tokens", "words"),
    [
        (torch.zeros((1, 0), dtype=torch.int64), 1, "empty"),
        (torch.zeros(0, dtype=torch.int64), 1, "empty"),
        (torch.zeros((2, 3), dtype=torch.int64), 1, "batch size is 1"),
        (torch.zeros((0, 3), dtype=torch.int64), 1, "batch size is 1"),
        (torch.zeros((1, 1, 3), dtype=torch.int64), 1, "batch size is 1"),
        (torch.zeros((), dtype=torch.int64), 1, "batch size is 1"),
        (torch.zeros((1, 3)), 1, "token ids are integers"),
        (torch.zeros((1, 3), dtype=torch.bool), 1, "token ids are integers"),
        (torch.zeros((1, 3), dtype=torch.uint64), 1, "token ids are integers"),
        (torch.zeros((1, 3), dtype=torch.int64).to_sparse(), 1, "sparse or nested"),
        ([[1, 2, 3]], 1, "input_ids of type list"),
        ("hello", 1, "input_ids of type str"),
        (
            torch.tensor([[1, VOCABULARY]]),
            1,
            f"token id {VOCABULARY}: outside the vocabulary of {VOCABULARY}",
        ),
        (torch.tensor([[1, 2**40]]), 1, "outside the vocabulary"),
        (torch.tensor([[-1, 2]]), 1, "token id -1: outside the vocabulary"),
        (torch.tensor([[-1, 2]], dtype=torch.int32), 1, "token id -1: outside the vocabulary"),
        (IDS, 0, "max_new_tokens 0: must be a whole number of 1 or more"),
        (IDS, -4, "max_new_tokens -4"),
        (IDS, 2.0, "max_new_tokens 2.0"),
        (IDS, True, "max_new_tokens True"),
        (IDS, 12, "prompt of 5 tokens and 12 new ones: the cache holds 16"),
        (
            torch.zeros((1, 16), dtype=torch.int64),
            1,
            "prompt of 16 tokens and 1 new ones: the cache holds 16",
        ),
        (
            torch.zeros((1, 17), dtype=torch.int64),
            1,
            "prompt of 17 tokens and 1 new ones: the cache holds 16",
        ),
    ],
)
@pytest.mark.parametrize("call", ["generate", "stream", "compare_with_generate"])
def test_requests_that_cannot_be(
    served: GraphedGenerator, call: str, ids: torch.Tensor, new_tokens: object, words: str
) -> None:
    with pytest.raises(LaunchgapError, match=words) as raised:
        getattr(served, call)(ids, new_tokens)
    assert one_line(raised.value)
    assert served.generate(IDS, 3).shape == (1, 3)


MASKS = [
    ([[1, 1, 1]], "attention_mask of shape"),
    ([[1, 1, 0, 1, 1]], "attention_mask has a hole"),
    ([[0, 0, 0, 0, 0]], "attention_mask hides every token"),
    ([[1, 1, 2, 1, 1]], "values other than 0 and 1"),
]


@pytest.mark.parametrize(("mask", "words"), MASKS)
@pytest.mark.parametrize("call", ["generate", "stream"])
def test_masks_that_cannot_be(served: GraphedGenerator, call: str, mask: list[list[int]], words: str) -> None:
    with pytest.raises(LaunchgapError, match=words) as raised:
        getattr(served, call)(IDS, 3, attention_mask=torch.tensor(mask))
    assert one_line(raised.value)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_a_mask_hides_is_left_out(served: GraphedGenerator, side: str) -> None:
    padding, ones = torch.full((1, 4), 7), torch.ones_like(IDS)
    parts = [(padding, torch.zeros_like(padding)), (IDS, ones)]
    ids, mask = (torch.cat(part, 1) for part in zip(*(parts if side == "left" else parts[::-1]), strict=True))
    wanted = served.generate(IDS, 6)
    assert torch.equal(served.generate(ids, 6, attention_mask=mask), wanted)
    assert list(served.stream(ids, 6, attention_mask=mask[0])) == wanted[0].tolist()


@pytest.mark.parametrize("attention", ["sdpa", READS_BACK], ids=["by graph", "eagerly"])
@pytest.mark.parametrize("wrong", [-1, VOCABULARY, 2**40])
def test_a_wrong_request_never_reaches_the_device(
    model: PreTrainedModel, attention: str, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id outside the embedding is a device-side assert, after which no CUDA call of the process works."""
    model.set_attn_implementation(attention)
    reached: list[str] = []
    with GraphedGenerator(model, max_length=16) as generator:
        generator.generate(IDS, 4)
        assert ("model" in generator.refusals) == (attention == READS_BACK)
        monkeypatch.setattr(StaticInputs, "fill", lambda *_: reached.append("copied"))
        monkeypatch.setattr(RecordedGraph, "replay", lambda _: reached.append("replayed"))
        model.register_forward_pre_hook(lambda *_: reached.append("run"))
        for at in (0, 4):
            ids = IDS.clone()
            ids[0, at] = wrong
            for call in (generator.generate, generator.stream, generator.compare_with_generate):
                with pytest.raises(LaunchgapError, match=f"token id {wrong}: outside the vocabulary"):
                    call(ids, 4)
                with pytest.raises(LaunchgapError, match="the cache holds 16"):
                    call(IDS, 12)
        assert reached == []
        generator.generate(IDS, 4)
        assert set(reached) == ({"run"} if attention == READS_BACK else {"copied", "replayed"})


@pytest.mark.parametrize("unroll", [1, 2, 3])
@pytest.mark.parametrize("attention", ["sdpa", READS_BACK], ids=["by graph", "eagerly"])
def test_a_cache_that_is_exhausted_to_its_last_slot_serves_on(
    model: PreTrainedModel, unroll: int, attention: str
) -> None:
    """A step beyond the last slot would write outside the cache: none is taken, unrolled ones included."""
    model.set_attn_implementation(attention)
    expected = continued(model, 11)
    with GraphedGenerator(model, max_length=16, unroll=unroll) as generator:
        for _ in range(2):
            assert generator.generate(IDS, 11)[0].tolist() == expected
            assert list(generator.stream(IDS, 11)) == expected
            for call in (generator.generate, generator.stream):
                with pytest.raises(LaunchgapError, match=r"the cache holds 16; .*raise max_length"):
                    call(IDS, 12)
        assert generator.generate(IDS, 2)[0].tolist() == expected[:2]


def test_settings_that_are_none(generator: GraphedGenerator) -> None:
    for sampling in ("greedy", 0.7, Greedy):
        with pytest.raises(LaunchgapError, match=r"sampling .*: unknown"):
            generator.generate(IDS, 3, sampling=sampling)  # type: ignore[arg-type]
    for end in (-1, 1.5, [2, -3], True, VOCABULARY, [1, VOCABULARY]):
        with pytest.raises(LaunchgapError, match="eos_token_id"):
            generator.generate(IDS, 3, eos_token_id=end)  # type: ignore[arg-type]
    for chunk in (0, 1.5):
        with pytest.raises(LaunchgapError, match="chunk"):
            generator.stream(IDS, 3, chunk=chunk)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_length": POSITIONS + 1}, f"the model has {POSITIONS} positions"),
        ({"max_length": 1}, "max_length 1: must be a whole number of 2 or more"),
        ({"max_length": 0}, "max_length 0"),
        ({"max_length": 16, "buckets": (32,)}, "bucket 32: above max_length 16"),
        ({"buckets": (0, 8)}, "bucket 0"),
        ({"buckets": (8.5,)}, "bucket 8.5"),
        ({"unroll": 0}, "unroll 0"),
        (
            {"buckets": (8,), "unroll": 3},
            "unroll 3: the smallest bucket has 8 slots and a capture runs 12 steps",
        ),
        ({"on_change": "ignore"}, "on_change 'ignore': unknown"),
    ],
)
def test_generators_that_cannot_be(model: PreTrainedModel, options: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchgapError, match=words) as raised:
        GraphedGenerator(model, **options)
    assert one_line(raised.value)


def test_the_longest_sequence_is_the_models_positions_where_those_are_fewer(model: PreTrainedModel) -> None:
    with GraphedGenerator(model) as generator:
        assert generator.generate(IDS, POSITIONS - 5).shape == (1, POSITIONS - 5)
        with pytest.raises(LaunchgapError, match=f"the cache holds {POSITIONS}"):
            generator.generate(IDS, POSITIONS - 4)


@pytest.mark.parametrize("thing", [torch.nn.Linear(2, 2), "gpt2", None])
def test_something_else_than_a_causal_lm(thing: PreTrainedModel) -> None:
    with pytest.raises(LaunchgapError, match="not a causal LM") as raised:
        GraphedGenerator(thing)
    assert one_line(raised.value)


PARTS = pytest.mark.parametrize(
    ("part", "words"),
    [("lm_head", "its weights are on cpu, meta; put all on one"), ("", "its weights are on meta; move it")],
    ids=["one weight", "all"],
)


@PARTS
def test_a_model_on_another_device_is_refused(model: PreTrainedModel, part: str, words: str) -> None:
    torch.nn.Module.to(model.get_submodule(part), "meta")
    with pytest.raises(LaunchgapError, match=words) as raised:
        GraphedGenerator(model, max_length=16)
    assert one_line(raised.value)


@PARTS
@pytest.mark.parametrize("on_change", ["recapture", "raise"])
def test_a_model_that_was_moved_away_is_refused_until_it_is_back(
    model: PreTrainedModel, part: str, words: str, on_change: Literal["recapture", "raise"]
) -> None:
    words = words if on_change == "recapture" else "on meta, was"
    with GraphedGenerator(model, max_length=16, on_change=on_change) as generator:
        wanted = generator.generate(IDS, 4)
        kept = {name: tensor.data for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        torch.nn.Module.to(model.get_submodule(part), "meta")
        for call in (generator.generate, generator.stream):
            with pytest.raises(LaunchgapError, match=words) as raised:
                call(IDS, 4)
            assert one_line(raised.value)
        restore(model, kept)
        with pytest.raises(LaunchgapError, match="has changed") if on_change == "raise" else nullcontext():
            assert torch.equal(generator.generate(IDS, 4), wanted)


def test_a_one_dimensional_prompt_and_other_integers_are_taken(generator: GraphedGenerator) -> None:
    expected = generator.generate(IDS, 4).tolist()
    for ids in (IDS[0], IDS.to(torch.int32), IDS[0].to(torch.uint8)):
        assert generator.generate(ids, 4).tolist() == expected


def test_the_callers_ids_may_change_afterwards(model: PreTrainedModel, generator: GraphedGenerator) -> None:
    ids = IDS.clone()
    stream = generator.stream(ids, 8)
    first = next(stream)
    ids.zero_()
    assert [first, *stream] == continued(model, 8)


def test_a_closed_generator_says_so(generator: GraphedGenerator) -> None:
    stream = generator.stream(IDS, 4)
    generator.close()
    generator.close()
    for call in (lambda: generator.generate(IDS, 4), lambda: generator.stream(IDS, 4), lambda: next(stream)):
        with pytest.raises(LaunchgapError, match="was closed"):
            call()
    assert generator.ledger == ()


def test_a_failure_inside_the_with_block_closes_too(model: PreTrainedModel) -> None:
    with pytest.raises(ZeroDivisionError), GraphedGenerator(model, max_length=16) as generator:
        raise ZeroDivisionError
    with pytest.raises(LaunchgapError, match="was closed"):
        generator.generate(IDS, 4)


def test_training_mode_is_refused_at_construction_and_later(model: PreTrainedModel) -> None:
    model.train()
    with pytest.raises(LaunchgapError, match="training mode"):
        GraphedGenerator(model, max_length=16)
    model.eval()
    with GraphedGenerator(model, max_length=16) as generator:
        generator.generate(IDS, 4)
        model.model.layers[0].train()
        with pytest.raises(LaunchgapError, match="training mode"):
            generator.generate(IDS, 4)
        model.eval()
        assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)


def test_autocast_is_refused(generator: GraphedGenerator) -> None:
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(LaunchgapError, match="autocast"):
        generator.generate(IDS, 4)


def replaced(model: PreTrainedModel) -> None:
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.flip(0), requires_grad=False)


def in_place(model: PreTrainedModel) -> None:
    model.lm_head.weight.copy_(model.lm_head.weight.flip(0))


def moved(model: PreTrainedModel) -> None:
    model.lm_head.weight.data = model.lm_head.weight.flip(0)


def another_dtype(model: PreTrainedModel) -> None:
    torch.nn.Module.to(model, torch.float64)


@pytest.mark.parametrize(
    ("change", "recaptures"), [(replaced, 1), (moved, 1), (another_dtype, 1), (in_place, 0)]
)
def test_a_changed_model_is_never_answered_with_the_old_one(
    model: PreTrainedModel, change: Callable[[PreTrainedModel], None], recaptures: int
) -> None:
    with GraphedGenerator(model, max_length=16) as generator:
        generator.generate(IDS, 8)
        change(model)
        assert generator.generate(IDS, 8)[0].tolist() == continued(model, 8)
        assert generator.recaptures == recaptures


def test_a_changed_model_can_be_made_an_error(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=16, on_change="raise") as generator:
        generator.generate(IDS, 8)
        replaced(model)
        for call in (generator.generate, generator.stream, generator.compare_with_generate):
            with pytest.raises(LaunchgapError, match=r"lm_head\.weight was replaced") as raised:
                call(IDS, 8)
            assert one_line(raised.value)


def test_a_model_that_changes_between_stream_and_its_first_token(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=16) as generator:
        stream = generator.stream(IDS, 8)
        replaced(model)
        with pytest.raises(LaunchgapError, match="has changed since stream"):
            next(stream)
        assert list(generator.stream(IDS, 8)) == continued(model, 8)


def test_another_attention_implementation_is_noticed(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=16) as generator:
        generator.generate(IDS, 4)
        model.set_attn_implementation(READS_BACK)
        assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)
        assert READS_BACK in generator.refusals["model"]
        model.set_attn_implementation("sdpa")
        assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)
        assert not generator.refusals
        assert generator.recaptures == 2


def test_a_second_thread_is_refused_while_a_stream_is_half_read(generator: GraphedGenerator) -> None:
    stream = generator.stream(IDS, 8)
    next(stream)
    raised: list[BaseException] = []

    def other() -> None:
        try:
            generator.generate(IDS, 4)
        except LaunchgapError as error:
            raised.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "in the middle of another request" in str(raised[0])
    with pytest.raises(LaunchgapError, match="in the middle of another request"):
        generator.close()
    list(stream)
    assert generator.generate(IDS, 4).shape == (1, 4)


def test_a_second_thread_is_refused_while_a_request_is_running(
    model: PreTrainedModel, generator: GraphedGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaying, go_on = threading.Event(), threading.Event()
    replay = RecordedGraph.replay

    def slow(graph: RecordedGraph) -> None:
        replaying.set()
        assert go_on.wait(20)
        replay(graph)

    generator.generate(IDS, 4)
    monkeypatch.setattr(RecordedGraph, "replay", slow)
    found: list[list[int]] = []
    other = threading.Thread(target=lambda: found.append(generator.generate(IDS, 4)[0].tolist()))
    other.start()
    assert replaying.wait(20)
    try:
        for call in (
            lambda: generator.generate(IDS, 4),
            lambda: generator.stream(IDS, 4),
            lambda: generator.compare_with_generate(IDS, 4),
            generator.capture,
            generator.close,
        ):
            with pytest.raises(LaunchgapError, match="in the middle of another request") as raised:
                call()
            assert one_line(raised.value)
    finally:
        go_on.set()
        other.join(20)
    assert found == [continued(model, 4)]
    assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)


def test_threads_that_take_turns_are_served(model: PreTrainedModel, generator: GraphedGenerator) -> None:
    found: list[list[int]] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(generator.generate(IDS, 4)[0].tolist()))
        thread.start()
        thread.join()
    assert found == [continued(model, 4)] * 2


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_an_interruption_anywhere_leaves_model_and_generator_usable(
    model: PreTrainedModel, generator: GraphedGenerator, call: int
) -> None:
    """The calls are the two trials of the mask, the capture of the prompt, the capture of a step."""
    counter = interrupt_at(model, call, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        generator.generate(IDS, 4, sampling=Sampling(seed=1))
    assert counter.calls == call
    counter.handle.remove()
    assert model.config._attn_implementation == "sdpa"
    assert not generator.refusals
    assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)
    twice = [generator.generate(IDS, 8, sampling=Sampling(seed=1)).tolist() for _ in range(2)]
    assert twice[0] == twice[1]


def test_an_interruption_anywhere_leaves_the_process_to_a_new_generator() -> None:
    """Anywhere: in the trials of the constructor and in each capture."""
    model = shallow("llama")

    def use() -> list[list[int]]:
        with GraphedGenerator(model, max_length=16, buckets=(8,), unroll=2) as generator:
            greedy = generator.generate(IDS, 4)[0].tolist()
            sampled = generator.generate(IDS, 4, sampling=Sampling(seed=1))[0].tolist()
            assert not generator.refusals
        return [greedy, sampled]

    counter = interrupt_at(model, 0, KeyboardInterrupt())
    wanted = use()
    counter.handle.remove()
    assert wanted[0] == continued(model, 4)
    recording, asked = 0, torch.cuda.is_current_stream_capturing
    for call in range(1, counter.calls + 1):
        interrupted = interrupt_at(model, call, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            use()
        interrupted.handle.remove()
        recording += interrupted.was_recording
        assert model.config._attn_implementation == "sdpa"
        assert not _is_recording()
        assert torch.cuda.is_current_stream_capturing is asked
        assert gc.isenabled()
        assert use() == wanted
    assert 0 < recording < counter.calls


def test_an_interrupted_stream_is_followed_by_right_answers(
    model: PreTrainedModel, generator: GraphedGenerator
) -> None:
    stream = generator.stream(IDS, 8)
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert generator.generate(IDS, 8)[0].tolist() == continued(model, 8)


def reads_on_the_host(model: PreTrainedModel) -> None:
    forward = model.model.norm.forward

    def norm(hidden: torch.Tensor) -> torch.Tensor:
        assert hidden.sum().item() == hidden.sum().item()
        found = forward(hidden)
        assert isinstance(found, torch.Tensor)
        return found

    model.model.norm.forward = norm


def test_a_host_read_is_refused_by_line_and_served_eagerly(model: PreTrainedModel) -> None:
    reads_on_the_host(model)
    with GraphedGenerator(model, max_length=16) as generator:
        assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)
        assert list(generator.stream(IDS, 4)) == continued(model, 4)
        assert list(generator.refusals) == ["prompt 16"]
        assert "hidden.sum().item()" in generator.refusals["prompt 16"]
        sampled = [generator.generate(IDS, 6, sampling=Sampling(seed=3)).tolist() for _ in range(2)]
        assert sampled[0] == sampled[1]
    strict = GraphedGenerator(model, max_length=16, strict=True)
    for call in (strict.capture, lambda: strict.generate(IDS, 4)):
        with pytest.raises(CaptureError, match=r"prompt 16: aten\._local_scalar_dense"):
            call()


def test_no_memory_for_a_capture_is_told_and_served_eagerly(
    model: PreTrainedModel, generator: GraphedGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr("inference.decode.Decoder.capture_steps", full)
    assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)
    assert generator.refusals == {"step 16 greedy": "step 16 greedy: out of GPU memory; use shorter buckets"}
    assert generator.generate(IDS, 1)[0].tolist() == continued(model, 1)


def test_no_memory_for_the_cache_is_told_and_served_eagerly(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr("inference.static_cache.KeyValueStore.__init__", full)
    with GraphedGenerator(model, max_length=16) as generator:
        assert "out of GPU memory" in generator.refusals["model"]
        assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)


def test_a_model_that_is_wrong_over_a_static_cache_is_refused(model: PreTrainedModel) -> None:
    """A layer that looks at where its keys lie instead of at what the mask lets it see."""
    attention = model.model.layers[0].self_attn
    forward = attention.forward

    def counts_slots(*args: object, **kwargs: Any) -> tuple[torch.Tensor, object]:  # noqa: ANN401
        output, weights = forward(*args, **kwargs)
        cache = kwargs.get("past_key_values")
        return output * (1.0 if cache is None else cache.layers[0].keys.shape[2]), weights

    attention.forward = counts_slots
    with GraphedGenerator(model, max_length=16) as generator:
        assert "over a static cache gives other logits" in generator.refusals["model"]


def test_closing_frees_every_graph(model: PreTrainedModel) -> None:
    generator = GraphedGenerator(model, max_length=16)
    generator.generate(IDS, 4)
    assert generator._built is not None
    graphs = generator._built._graphs
    assert isinstance(graphs, DecodeGraphs)
    pieces = list(graphs._pieces.values())
    generator.close()
    for piece in pieces:
        with pytest.raises(CaptureError, match="holds no capture"):
            piece.capture.graph.replay()
