"""What a generator must refuse before the device hears of it, and what it must notice about its model."""

import copy
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from contract import CaptureError, LaunchgapError
from inference.decode_graphs import DecodeGraphs
from inference.generator import GraphedGenerator
from inference.sampling import Greedy, Sampling
from tests.inference.tiny_models import POSITIONS, VOCABULARY, tiny

IDS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny("llama")


@pytest.fixture
def generator(model: PreTrainedModel) -> GraphedGenerator:
    return GraphedGenerator(model, max_length=16, buckets=(8,))


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
        (torch.zeros((1, 3)), 1, "token ids are integers"),
        (
            torch.tensor([[1, VOCABULARY]]),
            1,
            f"token id {VOCABULARY}: outside the vocabulary of {VOCABULARY}",
        ),
        (torch.tensor([[-1, 2]]), 1, "token id -1: outside the vocabulary"),
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
    ],
)
@pytest.mark.parametrize("call", ["generate", "stream", "compare_with_generate"])
def test_requests_that_cannot_be(
    generator: GraphedGenerator, call: str, ids: torch.Tensor, new_tokens: object, words: str
) -> None:
    with pytest.raises(LaunchgapError, match=words):
        getattr(generator, call)(ids, new_tokens)
    assert generator.generate(IDS, 3).shape == (1, 3)


def test_settings_that_are_none(generator: GraphedGenerator) -> None:
    for sampling in ("greedy", 0.7, Greedy):
        with pytest.raises(LaunchgapError, match=r"sampling .*: unknown"):
            generator.generate(IDS, 3, sampling=sampling)  # type: ignore[arg-type]
    for end in (-1, 1.5, [2, -3], True):
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
    with pytest.raises(LaunchgapError, match=words):
        GraphedGenerator(model, **options)


def test_the_longest_sequence_is_the_models_positions_where_those_are_fewer(model: PreTrainedModel) -> None:
    with GraphedGenerator(model) as generator:
        assert generator.generate(IDS, POSITIONS - 5).shape == (1, POSITIONS - 5)
        with pytest.raises(LaunchgapError, match=f"the cache holds {POSITIONS}"):
            generator.generate(IDS, POSITIONS - 4)


def test_something_else_than_a_causal_lm() -> None:
    with pytest.raises(LaunchgapError, match="not a causal LM"):
        GraphedGenerator(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


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
        with pytest.raises(LaunchgapError, match=r"lm_head\.weight was replaced"):
            generator.generate(IDS, 8)


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
        model.set_attn_implementation("eager")
        assert generator.generate(IDS, 4)[0].tolist() == continued(model, 4)
        assert "eager" in generator.refusals["model"]
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


def test_threads_that_take_turns_are_served(model: PreTrainedModel, generator: GraphedGenerator) -> None:
    found: list[list[int]] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(generator.generate(IDS, 4)[0].tolist()))
        thread.start()
        thread.join()
    assert found == [continued(model, 4)] * 2


def interrupt_at(model: PreTrainedModel, call: int, error: BaseException) -> SimpleNamespace:
    """Let the given call of the last layer from now on raise."""
    counter = SimpleNamespace(calls=0)

    def hook(*_: object) -> None:
        counter.calls += 1
        if counter.calls == call:
            raise error

    counter.handle = model.model.layers[-1].register_forward_pre_hook(hook)
    return counter


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


def test_a_step_can_be_run_by_something_else_than_the_model(model: PreTrainedModel) -> None:
    twin = copy.deepcopy(model)
    with GraphedGenerator(model, max_length=16, step=twin, strict=True) as generator:
        assert generator.generate(IDS, 8)[0].tolist() == continued(model, 8)
    with pytest.raises(CaptureError, match="a step over a static cache gives other logits"):
        GraphedGenerator(model, max_length=16, step=tiny("llama", seed=9), strict=True)


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
