"""The doctor on models that break on purpose, each named with its line; and on models that do not."""

import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from contract import LaunchgapError
from inference.backends import SimulationBackend
from inference.blame import place_of
from inference.doctor import Diagnosis, Harm, diagnose
from inference.doctor_parts import parts_of, record_inputs
from inference.doctor_trial import Inputs, try_capture
from inference.doctor_watch import WAITS, Watched, _Operations, _sync_warnings, watch
from inference.doctor_words import diagnosis_text
from scripts.doctor import main, request_lengths
from tests.inference.breaking_models import (
    BREAKERS,
    Branch,
    GrowingCache,
    Innocent,
    Item,
    marked_place,
    with_norm,
)
from tests.inference.tiny_models import VOCABULARY, tiny

CPU = torch.device("cpu")


def prompts(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(VOCABULARY, (1, n), generator=generator) for n in lengths]


def examined(model: nn.Module, *lengths: int) -> Diagnosis:
    return diagnose(model, prompts(*(lengths or (8, 8, 4))), SimulationBackend())


def harmful(found: Diagnosis) -> list[tuple[str, str]]:
    return [(str(a.harm), a.place) for a in found.ailments if a.harm in (Harm.BREAKS, Harm.CORRUPTS)]


@pytest.mark.parametrize("name", BREAKERS)
def test_each_breaker_is_named_with_its_line_and_nothing_else_is(name: str) -> None:
    module, harm = BREAKERS[name]
    found = examined(with_norm(module()))
    assert harmful(found) == [(harm, marked_place(module))]
    assert not found.capturable
    assert {part.name: part.capturable for part in found.parts} == {
        "model.embed_tokens": True,
        "model.layers.0": True,
        "model.layers.1": True,
        "model.norm": False,
        "model.rotary_emb": True,
        "lm_head": True,
    }
    (norm,) = [part for part in found.parts if part.name == "model.norm"]
    assert norm.why.endswith(marked_place(module))
    assert all("; " in ailment.why for ailment in found.ailments)


@pytest.mark.parametrize("name", ["item", "nonzero", "host copy", "branch", "host data"])
def test_the_trial_capture_breaks_on_the_very_line(name: str) -> None:
    found = examined(with_norm(BREAKERS[name][0]()))
    assert found.trial.refused is not None
    assert marked_place(BREAKERS[name][0]) in found.trial.refused


def test_all_obstacles_are_found_and_not_only_the_first() -> None:
    model = with_norm(Item())
    model.model.layers[0].mlp.act_fn = nn.Sequential(Branch(), GrowingCache())
    assert {place for _, place in harmful(examined(model))} == {
        marked_place(module) for module in (Item, Branch, GrowingCache)
    }


def test_of_a_layer_that_fails_the_parts_are_tried_too() -> None:
    model = tiny("llama")
    model.model.layers[1].mlp = nn.Sequential(model.model.layers[1].mlp, Item())
    parts = {part.name: part.capturable for part in examined(model).parts}
    assert parts["model.layers.0"] is True
    assert parts["model.layers.1"] is False
    assert parts["model.layers.1.self_attn"] is True
    assert parts["model.layers.1.mlp"] is False
    assert "model.layers.0.mlp" not in parts


def test_a_part_that_nobody_calls_is_told_as_such() -> None:
    model = with_norm(Item())
    model.spare = nn.Linear(2, 2)
    (spare,) = [part for part in examined(model).parts if part.name == "spare"]
    assert spare.capturable is None


@pytest.mark.parametrize("family", ["gpt2", "bert", "opt", "llama", "mixtral", "gemma3"])
def test_models_that_can_be_captured_are(family: str) -> None:
    found = examined(tiny(family))
    assert found.capturable
    assert found.trial.refused is None
    assert found.trial.difference is not None
    assert found.trial.difference < 1e-3
    assert found.parts == ()


def test_state_in_one_tensor_that_is_written_into_does_no_harm() -> None:
    assert examined(with_norm(Innocent())).capturable


def test_what_only_eager_asks_is_told_apart() -> None:
    """transformers asks whether a prompt packs several sequences, and not while a stream captures."""
    (asked,) = examined(tiny("gpt2")).ailments
    assert asked.harm is Harm.EAGER_ONLY
    assert asked.place.startswith("transformers/masking_utils.py:")
    assert asked.per_request == 1.0


def test_work_that_depends_on_the_length_is_to_be_checked() -> None:
    found = examined(tiny("mamba"), 6, 6, 3)
    assert found.capturable
    assert [a.harm for a in found.ailments] == [Harm.CHECK]
    assert "mamba/modeling_mamba.py:" in found.ailments[0].place


def test_a_replay_that_differs_from_eager_is_found() -> None:
    """Looks at no value, and no two calls but the first differ: only a replay shows what the capture kept."""
    added = [1.0]

    def call(inputs: Inputs) -> object:
        return inputs.args[0] + (added.pop() if added else 2.0)

    first, second = (Inputs((torch.full((2, 3), float(n)),), {}) for n in (1, 2))
    trial = try_capture(call, first, second, SimulationBackend())
    assert trial.refused is None
    assert trial.is_wrong
    assert trial.difference == pytest.approx(0.25)  # 3 where eager gives 4


def test_a_replay_is_compared_on_other_inputs() -> None:
    first, second = (Inputs((torch.full((2, 3), float(n)),), {}) for n in (1, 2))
    trial = try_capture(lambda inputs: inputs.args[0] * 3.0, first, second, SimulationBackend())
    assert (trial.difference, trial.is_wrong) == (0.0, False)
    other = Inputs((torch.ones(5),), {})
    assert (
        try_capture(lambda inputs: inputs.args[0] * 3.0, first, other, SimulationBackend()).difference is None
    )


def test_inputs_are_recorded_before_anyone_changes_them() -> None:
    class InPlace(nn.Module):
        def forward(self, hidden: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
            return hidden.mul_(scale)

    part, hidden = InPlace(), torch.ones(2)
    recorded = record_inputs({"part": part}, [lambda: part(part(hidden, scale=hidden + 1), scale=hidden)])
    ((inputs),) = recorded["part"]
    assert torch.equal(inputs.args[0], torch.ones(2))
    assert torch.equal(inputs.kwargs["scale"], torch.full((2,), 2.0))
    assert not part._forward_pre_hooks


def test_parts_are_layers_and_what_stands_beside_them() -> None:
    assert list(parts_of(tiny("bert"))) == [
        "bert.embeddings",
        "bert.encoder.layer.0",
        "bert.encoder.layer.1",
        "cls",
    ]
    assert list(parts_of(tiny("gpt2")))[:4] == [
        "transformer.wte",
        "transformer.wpe",
        "transformer.drop",
        "transformer.h.0",
    ]


def test_a_watched_call_counts_each_stop() -> None:
    def call() -> None:
        for _ in range(3):
            torch.ones(2).sum().item()

    (count,) = watch(call, CPU, as_capturing=True).stops.values()
    assert count == 3


def test_torchs_own_generator_does_no_harm() -> None:
    own = watch(lambda: torch.rand(3, generator=torch.default_generator), CPU, as_capturing=True)
    assert own.stops == Counter()


def test_a_wait_is_given_to_the_line_that_runs_and_other_warnings_go_on() -> None:
    """As torch warns under its sync debug mode, which needs a GPU: within the call that waits."""
    watched = Watched()

    def call() -> None:
        warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)
        with _sync_warnings(watched, _Operations(watched, [], judged=False)):
            warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)
            warnings.warn("another matter", stacklevel=1)

    with pytest.warns(UserWarning, match="synchronizing") as given:
        call()
    assert [str(one.message) for one in given][1:] == ["another matter"]
    ((stop, count),) = watched.stops.items()
    line = call.__code__.co_firstlineno + 3
    assert (stop.place, stop.why, count) == (place_of(__file__, line), WAITS, 1)


@pytest.mark.parametrize("lengths", [(8,), (8, 4)])
def test_too_few_requests_of_one_length_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(LaunchgapError, match="two prompts of one length"):
        examined(tiny("llama"), *lengths)


def test_a_model_that_fails_eagerly_is_refused_with_the_line() -> None:
    model = with_norm(nn.Linear(3, 3))
    with pytest.raises(
        LaunchgapError, match=r"eager request fails at llama/modeling_llama\.py:\d+ .*mend that"
    ):
        examined(model)


def test_the_text_names_lines_remedies_parts_and_verdict() -> None:
    text = diagnosis_text("a model", examined(with_norm(Item())), simulated=True)
    assert f"breaks      aten._local_scalar_dense            1  {marked_place(Item)}" in text
    assert "keep it on the device" in text
    assert "  no   model.norm" in text
    assert "  yes  model.layers.0" in text
    assert "verdict: not capturable" in text


def run(model: nn.Module, folder: Path, *words: str) -> int:
    model.save_pretrained(folder)  # type: ignore[operator]
    return main([str(folder), "--device", "cpu", "--prompt-length", "8", "--max-length", "16", *words])


def test_the_command_says_capturable_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tiny("llama"), tmp_path) == 0
    told = capsys.readouterr().out
    assert "LlamaForCausalLM" in told
    assert "4 requests of 8, 8, 4, 2 tokens" in told
    assert "verdict: capturable" in told


def test_the_command_says_not_capturable_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The attention of that name makes a tensor from host data for every mask."""
    assert run(tiny("llama"), tmp_path, "--attn-implementation", "eager", "--requests", "2") == 1
    told = capsys.readouterr().out
    assert "masking_utils.py:" in told
    assert told.count("launchgap's own graphs make this mask on the device") == 1
    assert "what cannot be captured lies in the model's own code between these" in told


def test_too_few_requests_on_the_command_line() -> None:
    with pytest.raises(LaunchgapError, match="--requests"):
        main(["gpt2", "--requests", "1"])


def test_lengths_of_the_requests() -> None:
    assert request_lengths(50, 4) == [50, 50, 25, 12]
    assert request_lengths(2, 5) == [2, 2, 1, 1, 1]
