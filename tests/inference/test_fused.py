"""The compiled path as far as the simulation goes: traced by Dynamo, recorded as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from contract import CaptureError, LaunchgapError
from inference.backends import SimulationBackend
from inference.forward import GraphedForward
from inference.fused import Pass, fuse
from inference.generator import GraphedGenerator
from inference.sampling import Sampling
from tests.inference.tiny_models import VOCABULARY, shallow, tiny


class ReadsTheDevice(nn.Module):
    """A layer that asks the host about its input."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * 2 if hidden.sum() > 1e9 else hidden


class CannotBeTraced(nn.Module):
    """A layer that eager and a graph pass through, and Dynamo does not."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return hidden


def put_behind_the_last_norm(model: PreTrainedModel, layer: nn.Module) -> None:
    body: Any = model.base_model
    body.ln_f = nn.Sequential(body.ln_f, layer).eval()


def prompt(length: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (1, length))


@pytest.mark.parametrize("family", ["gpt2", "mistral", "mixtral"])
def test_every_length_is_compiled_and_answers_as_eager(family: str) -> None:
    model = shallow(family)
    with GraphedForward(model, (4, 16), fused=True, strict=True) as forward:
        assert [entry.not_fused for entry in forward.ledger] == [None, None]
        assert all(entry.compile_s is not None and entry.compile_s > 0 for entry in forward.ledger)
        for n in (1, 4, 9, 16):
            ids = prompt(n)
            with torch.no_grad():
                torch.testing.assert_close(forward(ids), model(ids).logits[:, -1], atol=1e-5, rtol=1e-5)


def test_a_plain_ledger_has_no_compile_time() -> None:
    with GraphedForward(tiny("gpt2"), (4,)) as forward:
        assert (forward.ledger[0].compile_s, forward.ledger[0].not_fused) == (None, None)


def test_what_cannot_be_traced_is_named_and_captured_plain() -> None:
    model = shallow("gpt2")
    put_behind_the_last_norm(model, CannotBeTraced())
    with GraphedForward(model, (4,), fused=True) as forward:
        entry = forward.ledger[0]
        assert entry.path == "graph"
        assert entry.compile_s is None
        assert entry.not_fused is not None
        assert "cannot be compiled" in entry.not_fused
        assert "test_fused.py" in entry.not_fused
        assert "\n" not in entry.not_fused
        ids = prompt(3)
        torch.testing.assert_close(forward(ids), model(ids).logits[:, -1], atol=1e-5, rtol=1e-5)
    with pytest.raises(CaptureError, match="use fused=False"):
        GraphedForward(model, (4,), fused=True, strict=True)


def test_a_model_that_no_graph_can_hold_is_left_eager() -> None:
    model = shallow("gpt2")
    put_behind_the_last_norm(model, ReadsTheDevice())
    with GraphedForward(model, (4,), fused=True) as forward:
        assert forward.ledger[0].path == "eager"
        assert "test_fused.py" in (forward.ledger[0].reason or "")


def test_generation_is_the_same_compiled_and_in_all_pieces() -> None:
    model, ids = shallow("llama"), prompt(5)
    with GraphedGenerator(model, max_length=32, unroll=2, fused=True, strict=True) as generator:
        assert generator.compare_with_generate(ids, 12).first_divergence is None
        sampled = generator.generate(ids, 6, sampling=Sampling(seed=3))
        ledger = {record.name: record for record in generator.ledger}
    with GraphedGenerator(model, max_length=32, unroll=2) as generator:
        assert torch.equal(generator.generate(ids, 6, sampling=Sampling(seed=3)), sampled)
        assert all(record.compile_s is None for record in generator.ledger)
    assert ledger["prompt 32"].compile_s
    assert ledger["step 32 greedy"].compile_s == 0.0 or ledger["step 32 greedy x2"].compile_s == 0.0
    assert ledger["step 32 greedy"].compile_s or ledger["step 32 greedy x2"].compile_s
    assert ledger["choice greedy"].compile_s is None


def test_a_generator_says_which_pieces_stay_plain() -> None:
    model = shallow("gpt2")
    put_behind_the_last_norm(model, CannotBeTraced())
    with GraphedGenerator(model, max_length=16, fused=True) as generator:
        generator.generate(prompt(3), 4)
        assert {r.name for r in generator.ledger if r.not_fused} == {"prompt 16", "step 16 greedy"}
    with (
        GraphedGenerator(model, max_length=16, fused=True, strict=True) as generator,
        pytest.raises(CaptureError, match="cannot be compiled"),
    ):
        generator.generate(prompt(3), 4)


def test_a_compiled_step_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(forward: Pass, _: object) -> tuple[Pass, float]:
        return (lambda: forward() + 1.0), 0.1

    monkeypatch.setattr("inference.decode.fuse", wrong)
    with GraphedGenerator(tiny("gpt2"), max_length=16, fused=True) as generator:
        assert generator.compare_with_generate(prompt(3), 6).first_divergence is None
        said = [record.not_fused for record in generator.ledger if record.not_fused]
    assert len(said) == 2
    assert all("gives other logits" in text for text in said)


def test_many_runners_do_not_reach_dynamos_limit() -> None:
    model = shallow("gpt2")
    with torch._dynamo.config.patch(recompile_limit=1):
        for lengths in ((2, 4), (2,)):
            with GraphedForward(model, lengths, fused=True, strict=True) as forward:
                assert len(forward.ledger) == len(lengths)


def test_a_pass_is_traced_whole_or_refused() -> None:
    def breaks() -> torch.Tensor:
        torch._dynamo.graph_break()
        return torch.ones(1)

    with pytest.raises(CaptureError, match="cannot be compiled"):
        fuse(breaks, SimulationBackend())


def test_a_prompt_is_copied_in_and_replayed_in_two_calls() -> None:
    model = tiny("gpt2")
    with GraphedForward(model, (4, 16), strict=True) as forward:
        with pytest.raises(LaunchgapError, match="call copy_in"):
            forward.replay()
        for n in (2, 9):
            ids = prompt(n)
            forward.copy_in(ids)
            assert torch.equal(forward.replay(), forward.replay())
            assert torch.equal(forward.replay(), forward(ids))
        with pytest.raises(LaunchgapError, match="call copy_in"):
            forward.replay()


def test_a_staged_prompt_is_the_callers_no_longer() -> None:
    model = tiny("gpt2")
    put_behind_the_last_norm(model, ReadsTheDevice())
    with GraphedForward(model, (4,)) as forward:
        ids = prompt(3)
        wanted = forward(ids)
        forward.copy_in(ids)
        ids.fill_(VOCABULARY + 7)
        assert torch.equal(forward.replay(), wanted)


def test_a_model_that_changes_in_between_is_not_answered_for() -> None:
    model = tiny("gpt2")
    with GraphedForward(model, (4,)) as forward:
        ids = prompt(3)
        forward.copy_in(ids)
        head: Any = model.get_output_embeddings()
        head.weight = nn.Parameter(torch.randn_like(head.weight))
        with pytest.raises(LaunchgapError, match="has changed"):
            forward.replay()
        forward.copy_in(ids)
        with torch.no_grad():
            torch.testing.assert_close(forward.replay(), model(ids).logits[:, -1], atol=1e-5, rtol=1e-5)
