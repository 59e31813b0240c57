"""The graphed runner over real CUDA graphs: run with `make gpu-test`."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference.battery import run_battery
from inference.families import FAMILIES, find_family, tiny_model
from inference.forward import GraphedForward

pytestmark = pytest.mark.gpu

LENGTHS = (4, 8, 16)


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny_model(FAMILIES[4], torch.device("cuda", 0))


@pytest.fixture
def forward(model: PreTrainedModel) -> Iterator[GraphedForward]:
    with GraphedForward(model, LENGTHS, strict=True, only_if_faster=False) as made:
        yield made


def prompt(length: int) -> Tensor:
    return torch.randint(96, (1, length))


def eager(model: PreTrainedModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids.to(model.device), use_cache=False).logits
    return logits[:, -1]


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_battery_passes(dtype: torch.dtype) -> None:
    model = tiny_model(FAMILIES[4], torch.device("cuda", 0), dtype)
    assert [check for check in run_battery(model, LENGTHS, strict=True) if not check.passed] == []


@pytest.mark.parametrize("name", ["GPT-J", "GPT-OSS", "Gemma 2"])
def test_attention_of_transformers_own_is_captured(name: str) -> None:
    family = find_family(name)
    model = tiny_model(family, torch.device("cuda", 0), torch.bfloat16, attn_implementation="eager")
    assert [check for check in run_battery(model, LENGTHS, strict=True) if not check.passed] == []


def test_requests_may_be_queued_faster_than_they_are_answered(
    model: PreTrainedModel, forward: GraphedForward
) -> None:
    prompts = [prompt(n) for n in torch.randint(1, 17, (200,)).tolist()]
    torch.cuda._sleep(50_000_000)  # cycles: keeps the device busy while the host queues
    answers = [forward(ids) for ids in prompts]
    for ids, answer in zip(prompts, answers, strict=True):
        close(answer, eager(model, ids))


def test_the_stream_may_change_between_requests(model: PreTrainedModel, forward: GraphedForward) -> None:
    streams = [torch.cuda.Stream() for _ in range(3)]
    prompts = [prompt(7) for _ in range(30)]
    answers = []
    for index, ids in enumerate(prompts):
        stream = streams[index % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            answers.append(forward(ids))
    torch.cuda.synchronize()
    for ids, answer in zip(prompts, answers, strict=True):
        close(answer, eager(model, ids))


def test_weights_that_were_replaced_and_freed_poison_nothing(
    model: PreTrainedModel, forward: GraphedForward
) -> None:
    ids = prompt(5)
    forward(ids)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)
    torch.cuda.empty_cache()
    close(forward(ids), eager(model, ids))
    assert forward.recaptures == 1


def test_a_model_moved_to_the_host_is_captured_there(model: PreTrainedModel, forward: GraphedForward) -> None:
    nn.Module.to(model, "cpu")
    torch.cuda.empty_cache()
    answer = forward(ids := prompt(5))
    assert answer.device.type == "cpu"
    close(answer, eager(model, ids))
    torch.cuda.synchronize()


def test_a_refused_model_leaves_the_process_usable() -> None:
    refused = tiny_model(next(f for f in FAMILIES if f.experts == "eager"), torch.device("cuda", 0))
    with GraphedForward(refused, LENGTHS) as forward:
        assert {entry.path for entry in forward.ledger} == {"eager"}
        assert "modeling_mixtral.py" in str(forward.ledger[0].reason)
        close(forward(ids := prompt(5)), eager(refused, ids))
    usable = tiny_model(FAMILIES[0], torch.device("cuda", 0))
    with GraphedForward(usable, LENGTHS, strict=True, only_if_faster=False) as forward:
        close(forward(ids), eager(usable, ids))


def test_ids_out_of_range_never_reach_the_device(forward: GraphedForward) -> None:
    for ids in (torch.tensor([[96]]), torch.tensor([[-1]]), torch.tensor([[96]]).cuda()):
        with pytest.raises(LaunchgapError, match="outside the vocabulary"):
            forward(ids)
    torch.cuda.synchronize()


def test_memory_does_not_grow_over_mixed_requests(forward: GraphedForward) -> None:
    sizes = torch.randint(1, 17, (10_000,)).tolist()
    forward(prompt(16))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for n in sizes:
        forward(prompt(n))
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_closing_gives_the_memory_back(model: PreTrainedModel) -> None:
    GraphedForward(model, LENGTHS, only_if_faster=False).close()  # workspaces of the libraries stay
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        GraphedForward(model, LENGTHS, only_if_faster=False).close()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= before
