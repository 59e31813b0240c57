"""Each family's tiny model, run as docs/models.md says it runs; and the shipped configs, as published."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from inference import families
from inference.command import run_command
from inference.families import FAMILIES, LENGTHS, WINDOW, Family, tiny_model, verdict
from inference.forward import GraphedForward
from inference.presets import find_preset, preset_names

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENT = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's last table, without its head."""
    section = DOCUMENT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_document_lists_every_family() -> None:
    found = [tuple(row[:2]) for row in rows("On the simulation, fp32")]
    assert found == [(family.name, family.trait) for family in FAMILIES]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_runs_as_the_document_says(family: Family) -> None:
    documented = {row[0]: (row[2], row[3]) for row in rows("On the simulation, fp32")}
    model = tiny_model(family)
    assert (verdict(model, "right"), verdict(model, "left")) == documented[family.name]


def test_the_window_lies_between_the_lengths() -> None:
    assert LENGTHS[0] < WINDOW < LENGTHS[-1]


def test_a_wrong_answer_would_be_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphedForward, "_launched", lambda *_: torch.zeros(1, families.VOCABULARY))
    assert verdict(tiny_model(FAMILIES[0]), "right").startswith("WRONG: fresh inputs, one token")


def test_half_precision_is_judged_by_an_fp32_copy() -> None:
    assert verdict(tiny_model(FAMILIES[4], dtype=torch.bfloat16), "left") == "works"


def test_a_tiny_model_is_the_same_every_time_and_draws_from_nobodys_generator() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first, second = tiny_model(FAMILIES[0]), tiny_model(FAMILIES[0])
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_the_command_prints_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(families, "FAMILIES", FAMILIES[:1])
    assert run_command(lambda: families.main(["--device", "cpu"])) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "| GPT-2 | learned positions | works | works |"
    assert run_command(lambda: families.main(["--dtype", "int8"])) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: dtype 'int8'")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_the_published_number_of_parameters(name: str) -> None:
    preset = find_preset(name)
    assert preset is not None
    content = dict(preset.config)
    config = AutoConfig.for_model(content.pop("model_type"), **content)
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    documented = {row[0]: (row[1], int(re.sub(r"\D", "", row[2]))) for row in rows("Presets")}
    assert (config.model_type, parameters) == documented[name]
