"""The parity battery passes on a right runner, and fails on every mistake that is planted into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference import parity
from inference.backends import SimulationBackend
from inference.battery import check_runner, run_battery
from inference.command import run_command
from inference.families import find_family, tiny_model
from inference.forward import GraphedForward
from inference.poison import poison
from inference.rung import Rung
from inference.simulation import RecordedGraph
from inference.staging import StaticInputs
from inference.subject import Check
from tests.inference.tiny_models import READS_BACK
from tests.scripts.as_main import as_main

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (4, 16)


def tiny(name: str = "Llama", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return tiny_model(find_family(name), dtype=dtype)


def failed(forward: GraphedForward) -> set[str]:
    return {check.name for check in check_runner(forward) if not check.passed}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_runner_passes_every_check(dtype: torch.dtype) -> None:
    checks = run_battery(tiny(dtype=dtype), LENGTHS)
    assert [check for check in checks if not check.passed] == []
    names = {check.runner: sum(c.runner == check.runner for c in checks) for check in checks}
    assert names == dict.fromkeys(("last, right", "last, left", "all, right", "all, left"), 14)
    judged = {check.rule for check in checks if check.name == "fresh inputs"}
    expected = (
        "allclose(atol=1e-05, rtol=1e-05)" if dtype is torch.float32 else "error vs fp32 <= 1.5 x eager's"
    )
    assert judged == {expected}


def test_no_memory_for_the_checks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("tried to allocate too much")

    monkeypatch.setattr("inference.judge._logits_over", no_memory)
    monkeypatch.setattr("inference.judge.HALF_TOLERANCE_FACTOR", 0.0)
    with pytest.raises(LaunchgapError, match="out of GPU memory for the checks; use fewer or shorter"):
        run_battery(tiny(dtype=torch.bfloat16), LENGTHS)


@pytest.fixture
def runner() -> Iterator[GraphedForward]:
    with GraphedForward(tiny(), LENGTHS) as forward:
        yield forward


def test_a_replay_that_does_nothing_is_noticed(
    runner: GraphedForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordedGraph, "replay", lambda _: None)
    assert {"fresh inputs", "one token", "lengths at bucket edges", "full length"} <= failed(runner)


def test_a_stale_index_of_the_last_token_is_noticed(
    runner: GraphedForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = StaticInputs.fill

    def stale(inputs: StaticInputs, *others: object) -> None:
        before = inputs.last.clone()
        fill(inputs, *others)  # type: ignore[arg-type]
        inputs.last.copy_(before)

    monkeypatch.setattr(StaticInputs, "fill", stale)
    assert "mixed lengths, random order" in failed(runner)


def test_padding_that_is_seen_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = StaticInputs.fill

    def unmasked(inputs: StaticInputs, *others: object) -> None:
        fill(inputs, *others)  # type: ignore[arg-type]
        assert inputs.mask is not None
        inputs.mask.fill_(1)

    with GraphedForward(tiny(), LENGTHS, padding_side="left") as forward:
        monkeypatch.setattr(StaticInputs, "fill", unmasked)
        found = failed(forward)
    assert "one token" in found
    assert "full length" not in found


def test_positions_that_count_the_padding_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = StaticInputs.fill

    def by_place(inputs: StaticInputs, *others: object) -> None:
        fill(inputs, *others)  # type: ignore[arg-type]
        assert inputs.positions is not None
        inputs.positions.copy_(torch.arange(inputs.length))

    with GraphedForward(tiny("GPT-2"), LENGTHS, padding_side="left") as forward:
        monkeypatch.setattr(StaticInputs, "fill", by_place)
        assert "one token" in failed(forward)


def test_an_output_that_is_not_copied_is_noticed(runner: GraphedForward) -> None:
    runner._copy = False
    assert "copy: later calls leave an answer alone" in failed(runner)


def test_an_answer_from_memory_is_noticed_by_the_poison(
    runner: GraphedForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Rung.replay
    seen: dict[int, torch.Tensor] = {}

    def only_what_is_new(rung: Rung) -> None:
        if not torch.equal(seen.get(rung.length, torch.empty(0)), rung.inputs.ids):
            replay(rung)
            seen.clear()
            seen[rung.length] = rung.inputs.ids.clone()

    monkeypatch.setattr(Rung, "replay", only_what_is_new)
    assert failed(runner) == {"poisoned inputs, output and pool"}


def test_poison_reaches_inputs_output_and_pool(runner: GraphedForward) -> None:
    ids = torch.tensor([[5, 3, 2]])
    wanted = runner(ids)
    built = runner._built
    assert built is not None
    rung = built.ladder.rungs[4]
    before = rung.inputs.ids.clone()
    poison(rung, SimulationBackend(), 0)
    assert rung.output.isnan().all()
    assert not torch.equal(rung.inputs.ids, before)
    assert isinstance(rung.graph, RecordedGraph)
    weights = rung.graph._tape.operations[-1].args[1]  # what is copied to the output lies in the pool
    assert weights.isnan().all()
    assert torch.equal(runner(ids), wanted)


def test_the_table_has_a_line_for_each_check() -> None:
    checks = [
        Check("last, right", "fresh inputs", "5 prompts", 1.5e-6, "allclose", passed=True),
        Check("last, right", "replay twice", "3 prompts", None, "bitwise equal", passed=False),
    ]
    lines = parity.table(checks).splitlines()
    assert lines[0].split() == ["runner", "check", "inputs", "largest", "difference", "rule", "result"]
    assert "1.5e-06" in lines[1]
    assert lines[1].rstrip().endswith("pass")
    assert lines[2].rstrip().endswith("FAIL")


def run(*arguments: str) -> int:
    return run_command(lambda: parity.main([*arguments, "--device", "cpu"]))


def test_the_command_passes_on_a_folder(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tiny_folder), "--lengths", "4", "12") == 0
    printed = capsys.readouterr().out
    assert "56 checks, 0 failed" in printed
    assert "lengths at bucket edges" in printed


def test_the_command_fails_where_a_check_does(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphedForward, "_launched", lambda *_: torch.zeros(1, 64))
    assert run(str(tiny_folder), "--lengths", "4") == 1
    assert "FAIL" in capsys.readouterr().out


def test_a_refused_model_is_served_eagerly_and_said_to_be(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (str(tiny_folder), "--lengths", "4", "--attn-implementation", READS_BACK)
    assert run(*arguments) == 0
    said = "length 4 is left eager: aten._local_scalar_dense at inference/tiny_models.py"
    assert said in capsys.readouterr().out
    assert run(*arguments, "--strict") == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: aten._local_scalar_dense at")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gpt-17",), "error: model 'gpt-17': unknown"),
        (("bert-tiny", "--dtype", "int8"), "error: dtype 'int8': unknown"),
        (("bert-tiny", "--lengths", "0"), "error: length 0: must be a whole number"),
        (("bert-tiny", "--lengths", "513"), "error: length 513: the model has 512 positions"),
        (("bert-tiny", "--lengths", "x"), "error: argument --lengths: invalid int value: 'x'; see --help"),
        ((), "error: the following arguments are required: model; see --help"),
    ],
)
def test_a_users_mistake_is_one_line(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(words)


def test_the_module_runs_as_a_command(tmp_path: Path) -> None:
    done = as_main("inference/parity.py", tmp_path, "--device", "cpu")
    assert done.complaint.startswith("error: model folder ")
