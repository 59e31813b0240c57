"""Tokens read late: what is launched before what is waited for."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from transformers import PreTrainedModel

from inference.backends import SimulationBackend
from inference.generator import GraphedGenerator
from inference.sampling import Sampling
from inference.simulation import RecordedGraph
from inference.streaming import TokenReader
from tests.inference.tiny_models import tiny

IDS = torch.tensor([[3, 1, 4, 1, 5]])


@dataclass
class _Mark:
    log: list[str]
    name: str

    def wait(self) -> None:
        self.log.append(f"wait {self.name}")


@dataclass
class _Backend(SimulationBackend):
    log: list[str] = field(default_factory=list)
    marks: int = 0

    def mark(self) -> _Mark:
        self.marks += 1
        return _Mark(self.log, str(self.marks))


def launched(chunks: list[slice], tokens: torch.Tensor, log: list[str]) -> Iterator[slice]:
    for chunk in chunks:
        log.append(f"launch {chunk.start}-{chunk.stop}")
        tokens[chunk] = torch.arange(chunk.start, chunk.stop)
        yield chunk


def test_a_chunk_is_waited_for_only_when_the_next_one_is_under_way() -> None:
    backend, tokens = _Backend(), torch.zeros(16, dtype=torch.int64)
    reader = TokenReader(tokens, backend)
    chunks = [slice(3, 5), slice(5, 6), slice(6, 10)]
    assert list(reader.read(launched(chunks, tokens, backend.log))) == [[3, 4], [5], [6, 7, 8, 9]]
    assert backend.log == ["launch 3-5", "launch 5-6", "wait 1", "launch 6-10", "wait 2", "wait 3"]


def test_what_one_request_left_behind_is_not_read_by_the_next() -> None:
    backend, tokens = _Backend(), torch.zeros(16, dtype=torch.int64)
    reader = TokenReader(tokens, backend)
    reading = reader.read(launched([slice(0, 2), slice(2, 4), slice(4, 6)], tokens, backend.log))
    assert next(reading) == [0, 1]
    reading.close()  # type: ignore[attr-defined]
    assert list(reader.read(launched([slice(8, 9)], tokens, backend.log))) == [[8]]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny("llama")


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Every replay from now on."""
    made: list[RecordedGraph] = []
    replay = RecordedGraph.replay

    def counted(graph: RecordedGraph) -> None:
        made.append(graph)
        replay(graph)

    monkeypatch.setattr(RecordedGraph, "replay", counted)
    return made


def test_a_stream_gives_each_token_while_the_next_is_under_way(
    model: PreTrainedModel, replays: list[RecordedGraph]
) -> None:
    with GraphedGenerator(model, max_length=32) as generator:
        expected = generator.generate(IDS, 10)[0].tolist()
        replays.clear()
        for count, token in enumerate(generator.stream(IDS, 10)):
            assert token == expected[count]
            # The prompt, the choice of its token, a step for each token so far, and one ahead.
            assert len(replays) == min(2 + count + 1, 2 + 9)


@pytest.mark.parametrize("chunk", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("unroll", [1, 3])
def test_chunks_change_nothing_but_the_delay(model: PreTrainedModel, chunk: int, unroll: int) -> None:
    with GraphedGenerator(model, max_length=32, unroll=unroll) as generator:
        expected = generator.generate(IDS, 11)[0].tolist()
        assert list(generator.stream(IDS, 11, chunk=chunk)) == expected
        for end in (expected[0], expected[4], expected[-1]):
            found = list(generator.stream(IDS, 11, chunk=chunk, eos_token_id=end))
            assert found == expected[: expected.index(end) + 1]


def test_an_end_of_sequence_stops_the_launches_two_chunks_later(
    model: PreTrainedModel, replays: list[RecordedGraph]
) -> None:
    with GraphedGenerator(model, max_length=48) as generator:
        expected = generator.generate(IDS, 40)[0].tolist()
        end = expected[2]
        replays.clear()
        found = generator.generate(IDS, 40, eos_token_id=[end, 95])[0].tolist()
        assert found == expected[: expected.index(end) + 1]
        # Two chunks of 8 tokens: the prompt's token and 15 steps, with the prompt itself and the choice.
        assert len(replays) == 2 + 15


def test_without_an_end_of_sequence_the_host_waits_once(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(SimulationBackend, "mark", lambda _: _Mark(waits, "for the tokens"))
    with GraphedGenerator(model, max_length=48) as generator:
        generator.generate(IDS, 40)
        assert len(waits) == 1


def test_a_stream_that_is_dropped_frees_the_generator(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=32) as generator:
        expected = generator.generate(IDS, 6).tolist()
        stream = generator.stream(IDS, 20)
        next(stream)
        del stream
        assert generator.generate(IDS, 6).tolist() == expected
        never_begun = generator.stream(IDS, 20)
        assert generator.generate(IDS, 6).tolist() == expected
        assert list(never_begun)[:6] == expected[0]


def test_a_sampled_stream_is_the_sampled_answer(model: PreTrainedModel) -> None:
    sampling = Sampling(temperature=1.5, top_k=20, top_p=0.9, seed=5)
    with GraphedGenerator(model, max_length=32, unroll=2) as generator:
        expected = generator.generate(IDS, 12, sampling=sampling)[0].tolist()
        assert list(generator.stream(IDS, 12, sampling=sampling)) == expected
        assert list(generator.stream(IDS, 12, sampling=sampling, chunk=5)) == expected


def test_an_error_between_two_tokens_is_the_callers_own(model: PreTrainedModel) -> None:
    def serve() -> None:
        with GraphedGenerator(model, max_length=16) as generator:
            stream = generator.stream(IDS, 6)
            next(stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve()


def test_a_stream_that_is_half_read_ends_with_the_block_of_its_generator(model: PreTrainedModel) -> None:
    with GraphedGenerator(model, max_length=16) as generator:
        stream = generator.stream(IDS, 6)
        next(stream)
    assert list(stream) == []
