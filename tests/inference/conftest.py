"""Small real models, so that the CPU tests run transformers' own code in seconds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._inductor import config
from transformers import LlamaConfig, LlamaForCausalLM

from inference.peers import compilers_reset

VOCABULARY = 64
POSITIONS = 32


@pytest.fixture(autouse=True)
def hub_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tensors of tiny models are done before a second thread has heard of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of a few kilobytes, saved as transformers saves it."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny"
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def compiler() -> Iterator[None]:
    """Inductor for the CPU, with nothing of it left to later tests. Scalar code compiles in half the time."""
    if shutil.which("g++") is None:
        pytest.skip("Inductor needs a C++ compiler on the CPU")
    with compilers_reset(), config.patch({"cpp.vec_isa_ok": False}):
        yield
