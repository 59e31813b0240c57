"""Every way to run a forward pass on the CPU: what it gives, what it leaves of the model, what it costs."""

import tempfile
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch._inductor import config
from transformers import PreTrainedModel

from contract import LaunchgapError, Strategy
from inference.backends import SimulationBackend
from inference.peers import Compiled, compilers_reset
from inference.prepare import prepare
from inference.request import run_request
from inference.runner_strategies import RunnerForward, bucketed_lengths
from inference.strategies import ForwardStrategy, UnmaskedForward
from tests.inference.tiny_models import POSITIONS, VOCABULARY, shallow, tiny

LENGTH = 8
NEEDS_CUDA = (Strategy.COMPILED_DEFAULT, Strategy.COMPILED, Strategy.GRAPHED_CALLABLE)
ON_THE_CPU = [strategy for strategy in Strategy if strategy not in NEEDS_CUDA]
LAST = (Strategy.EAGER_LAST, Strategy.GRAPH_LAST, Strategy.GRAPH_BUCKETED, Strategy.GRAPH_FUSED)


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return tiny("llama")


def prompt(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(VOCABULARY, (1, length))


def make(strategy: Strategy, model: PreTrainedModel) -> ForwardStrategy:
    return prepare(strategy, model, SimulationBackend(), prompt_length=LENGTH, max_length=24)


def eager(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    assert isinstance(logits, torch.Tensor)
    return logits


@pytest.mark.parametrize("strategy", ON_THE_CPU)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_each_answers_fresh_prompts_as_eager_does(strategy: Strategy, family: str) -> None:
    model = shallow(family)
    runner = make(strategy, model)
    assert runner.logits == ("last" if strategy in LAST else "all")
    for _ in range(2):
        ids = prompt()
        runner.copy_in(ids)
        expected = eager(model, ids)
        expected = expected[:, -1] if strategy in LAST else expected
        torch.testing.assert_close(runner.run(), expected, atol=1e-5, rtol=1e-5)
    runner.close()


@pytest.mark.parametrize("strategy", ON_THE_CPU)
def test_each_leaves_the_model_as_it_was(strategy: Strategy) -> None:
    model = shallow("llama")
    before = [tensor.clone() for tensor in chain(model.parameters(), model.buffers())]
    run_request(runner := make(strategy, model), prompt(), SimulationBackend())
    runner.close()
    assert model.config._attn_implementation == "sdpa"
    after = chain(model.parameters(), model.buffers())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("strategy", NEEDS_CUDA)
def test_what_needs_cuda_says_what_to_do(strategy: Strategy, llama: PreTrainedModel) -> None:
    with pytest.raises(LaunchgapError, match=r"need CUDA, since .*; run it on a GPU, or choose other"):
        make(strategy, llama)


def test_unmasked_eager_reads_the_models_own_weights() -> None:
    model = tiny("llama")
    runner = UnmaskedForward(model, LENGTH, SimulationBackend(), logits="all")
    ids = prompt()
    runner.copy_in(ids)
    before = runner.run()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-2.0)
    runner.copy_in(ids)
    assert not torch.equal(runner.run(), before)
    assert torch.equal(runner.run(), eager(model, ids))


def test_unmasked_eager_needs_a_prompt_first(llama: PreTrainedModel) -> None:
    with pytest.raises(LaunchgapError, match="copy_in"):
        UnmaskedForward(llama, LENGTH, SimulationBackend(), logits="last").run()


@pytest.mark.parametrize(
    ("max_length", "lengths"),
    [
        (16, (16,)),
        (64, (64,)),
        (100, (64, 100)),
        (1024, (64, 128, 256, 512, 1024)),
        (1100, (64, 128, 256, 512, 1024, 1100)),
    ],
)
def test_buckets_end_with_the_maximum_length(max_length: int, lengths: tuple[int, ...]) -> None:
    assert bucketed_lengths(max_length) == lengths


def test_a_bucket_takes_the_smallest_length_that_fits(llama: PreTrainedModel) -> None:
    runner = RunnerForward(llama, (16, POSITIONS))
    assert runner.capture_s is not None
    assert runner.capture_s > 0
    assert runner.compile_s is None
    assert runner.attention_mask == "none"
    for length in (1, 16, 17, POSITIONS):
        ids = prompt(length)
        runner.copy_in(ids)
        torch.testing.assert_close(runner.run(), eager(llama, ids)[:, -1], atol=1e-5, rtol=1e-5)


def test_only_a_compiler_takes_time_to_compile(llama: PreTrainedModel) -> None:
    fused = make(Strategy.GRAPH_FUSED, llama)
    assert fused.compile_s is not None
    assert fused.compile_s > 0
    assert make(Strategy.GRAPH_LAST, llama).compile_s is None


@pytest.mark.usefixtures("compiler")
def test_torch_compile_gives_the_last_logits() -> None:
    model = shallow("llama")
    runner = Compiled(model, LENGTH, SimulationBackend(), "reduce-overhead")
    assert runner.compile_s is not None
    assert runner.compile_s > 0
    for _ in range(2):
        ids = prompt()
        runner.copy_in(ids)
        torch.testing.assert_close(runner.run(), eager(model, ids)[:, -1], atol=1e-5, rtol=1e-5)
    runner.close()


def test_what_the_compiler_says_becomes_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        compilers_reset(),
        config.patch({"cpp.cxx": (None, "no-such-compiler")}),
        pytest.raises(LaunchgapError, match=r"torch\.compile failed") as caught,
    ):
        Compiled(shallow("llama"), LENGTH, SimulationBackend(), "default")
    assert "\n" not in str(caught.value)
    assert "measure the other strategies" in str(caught.value)
    assert list(tmp_path.iterdir()) == []  # the compiler's cache
