"""A model's own code and its pickles: refused in one line, unless they were asked for by name."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import HfApi
from transformers import AutoModelForCausalLM

from contract import LaunchgapError
from inference import trust as trust_module
from inference.loading import ModelRequest, load_model
from inference.trust import Trust
from scripts.cuda_graph_benchmark import main
from tests.in_process import in_process

CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = {model_type!r}

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def load(model: Path | str, **options: object) -> str:
    """Weights that were loaded, or the one line that says why not."""
    wanted: dict[str, object] = {"weights": "auto", "attn_implementation": "sdpa", "trust": Trust()} | options
    try:
        loaded = load_model(
            ModelRequest(str(model), torch.float32, torch.device("cpu"), **wanted)  # type: ignore[arg-type]
        )
    except LaunchgapError as error:
        return str(error)
    return " ".join([loaded.fields["weights"], *loaded.fields.get("trusted", [])])


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What appears when foreign code has run."""
    return tmp_path / "the code ran"


@pytest.fixture
def coded(tiny_folder: Path, tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that only its own code can run."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return _with_code(tiny_folder, tmp_path / "coded", mark, "own")


def _with_code(tiny_folder: Path, folder: Path, mark: Path, model_type: str) -> Path:
    AutoModelForCausalLM.from_pretrained(tiny_folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = model_type
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE.format(mark=str(mark), model_type=model_type))
    return folder


@pytest.fixture
def pickled(tiny_folder: Path, tmp_path: Path) -> Path:
    """A model whose weights are a pickle, as transformers wrote them for years."""
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_bytes((tiny_folder / "config.json").read_bytes())
    weights = AutoModelForCausalLM.from_pretrained(tiny_folder).state_dict()
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


@pytest.mark.parametrize("weights", ["auto", "pretrained", "random"])
def test_code_of_a_model_is_not_run(coded: Path, mark: Path, weights: str) -> None:
    said = load(coded, weights=weights)
    assert "needs code of its own, which is not run unasked; read it, then give --trust-remote-code" in said
    assert not mark.exists()


def test_nobody_is_asked_whether_code_may_run(coded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to itself transformers asks on the terminal, and waits."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    assert "--trust-remote-code" in load(coded)


def test_code_that_is_not_needed_is_not_run_either(tiny_folder: Path, tmp_path: Path, mark: Path) -> None:
    folder = _with_code(tiny_folder, tmp_path / "llama", mark, "llama")
    assert load(folder) == "pretrained"
    assert not mark.exists()


def test_code_that_was_asked_for_runs_and_the_record_says_so(coded: Path, mark: Path, tmp_path: Path) -> None:
    quick = ["--device=cpu", "--runs=1", "--warmup-s=0", "--prompt-length=8", "--max-length=16"]
    options = [f"--model={coded}", "--strategies", "eager", *quick, "--output-dir", str(tmp_path / "out")]
    assert "--trust-remote-code" in in_process(main, *options).complaint
    assert not mark.exists()
    assert in_process(main, *options, "--trust-remote-code").code == 0
    assert mark.exists()
    record = json.loads((tmp_path / "out/latency.json").read_text())
    assert record["model"]["trusted"] == ["remote code"]


def test_a_pickle_is_refused_unless_it_was_asked_for(pickled: Path) -> None:
    said = load(pickled)
    assert "its weights, pytorch_model.bin, are a pickle, which can run code when it is read" in said
    assert said.endswith("convert it to safetensors, or give --allow-pickle")
    assert load(pickled, trust=Trust(pickle=True)) == "pretrained pickle"
    assert load(pickled, weights="random") == "random"


def test_safetensors_beside_a_pickle_are_read(pickled: Path, tiny_folder: Path, mark: Path) -> None:
    (pickled / "model.safetensors").write_bytes((tiny_folder / "model.safetensors").read_bytes())
    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    assert load(pickled) == "pretrained"
    assert not mark.exists()


def test_a_pickle_that_would_run_code_does_not_even_if_pickles_are_allowed(pickled: Path, mark: Path) -> None:
    """torch and transformers unpickle tensors alone; this holds should they ever stop."""
    torch.save(Bomb(mark), pickled / "pytorch_model.bin")
    assert "holds more than tensors, so it is not read" in load(pickled, trust=Trust(pickle=True))
    assert not mark.exists()


def test_a_pickle_that_only_the_config_names(pickled: Path) -> None:
    (pickled / "pytorch_model.bin").rename(pickled / "adapter_model.bin")
    config = json.loads((pickled / "config.json").read_text())
    (pickled / "config.json").write_text(json.dumps(config | {"transformers_weights": "adapter_model.bin"}))
    assert "it names weights that are a pickle" in load(pickled)


def test_a_pickle_that_only_an_index_names(pickled: Path) -> None:
    names = dict.fromkeys(torch.load(pickled / "pytorch_model.bin"), "pytorch_model.bin")
    index = {"metadata": {"total_size": 1}, "weight_map": names}
    (pickled / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "it names weights that are a pickle" in load(pickled)


def _hub(monkeypatch: pytest.MonkeyPatch, *files: str) -> None:
    """A hub that has these files of every model. A stand-in: the tests run without a network."""
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in files])
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: info)


def test_a_pickle_on_the_hub_is_refused_and_a_preset_goes_on_with_random_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _hub(monkeypatch, "config.json", "pytorch_model.bin")
    assert "its weights, pytorch_model.bin, are a pickle" in load("someone/model")
    assert "are a pickle" in load("bert-tiny", weights="pretrained")
    assert load("bert-tiny") == "random"


def test_pickles_in_the_hubs_cache_do_not_count_unless_allowed(
    pickled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: str(pickled / name) for name in ("config.json", "pytorch_model.bin")}
    monkeypatch.setattr("inference.loading.try_to_load_from_cache", lambda _model, name: files.get(name))
    assert "are a pickle" in load("someone/model")
    # Allowed, it is looked for where transformers keeps it: nowhere, since only our question was answered.
    assert "pickle" not in load("someone/model", trust=Trust(pickle=True))


@pytest.mark.parametrize("attention", ["kernels-community/flash-attn2", "someone/kernel@main:attention"])
def test_attention_from_the_hub_is_code_as_well(tiny_folder: Path, attention: str) -> None:
    assert "is code from the hub, which is not run unasked" in load(
        tiny_folder, attn_implementation=attention
    )


def test_flash_attention_that_would_be_fetched(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without flash-attn, and with the package `kernels`, transformers takes it from the hub."""
    monkeypatch.setattr(trust_module, "find_spec", lambda name: name == "kernels" or None)
    said = load(tiny_folder, attn_implementation="flash_attention_2")
    assert "is code from the hub" in said
    monkeypatch.setattr(trust_module, "find_spec", lambda name: name == "flash_attn" or None)
    assert "is code from the hub" not in load(tiny_folder, attn_implementation="flash_attention_2")
