"""`baseline_infer` and `cuda_graph_infer`: prompt in, milliseconds out."""

from pathlib import Path

import pytest
import torch

from contract import LaunchgapError
from inference import session
from inference.case import CaseOptions
from inference.session import Session


@pytest.fixture
def tiny(tiny_folder: Path) -> Session:
    return Session(CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=8))


@pytest.mark.parametrize("length", [1, 8, 32])
def test_both_give_milliseconds_for_any_length(tiny: Session, length: int) -> None:
    ids = torch.randint(64, (1, length))
    for infer in (tiny.baseline_infer, tiny.cuda_graph_infer):
        value = infer(ids)
        assert isinstance(value, float)
        assert value > 0


def test_a_length_is_captured_once(tiny: Session) -> None:
    for _ in range(3):
        tiny.cuda_graph_infer(torch.randint(64, (5,)))
    assert list(tiny._graphs) == [5]
    tiny.close()
    assert not tiny._graphs


@pytest.mark.parametrize(
    ("input_ids", "words"),
    [
        (torch.zeros(1, 4), "token ids are integers"),
        (torch.zeros(2, 4, dtype=torch.int64), "batch size is 1"),
        (torch.zeros(1, 0, dtype=torch.int64), "at least one token"),
        (torch.tensor([[1, 64]]), "token id 64: outside the vocabulary of 64"),
        (torch.tensor([[-1, 3]]), "token id -1"),
        (torch.zeros(1, 33, dtype=torch.int64), "32 positions"),
    ],
)
def test_prompts_that_cannot_be(tiny: Session, input_ids: torch.Tensor, words: str) -> None:
    for infer in (tiny.baseline_infer, tiny.cuda_graph_infer):
        with pytest.raises(LaunchgapError, match=words):
            infer(input_ids)


def test_the_module_functions_use_the_configured_model(tiny_folder: Path) -> None:
    session.configure(CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=8))
    ids = torch.randint(64, (1, 8))
    assert session.baseline_infer(ids) > 0
    assert session.cuda_graph_infer(ids) > 0
