"""Loading: presets, folders, the hub's absence, and every name that leads nowhere."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from transformers import AutoModelForCausalLM

from contract import LaunchgapError
from inference import loading
from inference.families import find_family, tiny_model
from inference.loading import ModelRequest, float32_copy, load_model
from inference.presets import find_preset, preset_names


def request(model: str, **changes: object) -> ModelRequest:
    options: dict[str, object] = {
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "attn_implementation": "sdpa",
    }
    return ModelRequest(model, **(options | changes))  # type: ignore[arg-type]


def test_a_local_folder_gives_its_own_weights(tiny_folder: Path) -> None:
    loaded = load_model(request(str(tiny_folder)))
    saved = AutoModelForCausalLM.from_pretrained(tiny_folder)
    assert loaded.fields["weights"] == "pretrained"
    assert loaded.fields["max_positions"] == 32
    ids = torch.arange(5)[None]
    assert torch.equal(loaded.model(ids).logits, saved(ids).logits)


def test_a_preset_falls_back_to_random_weights_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    loaded = load_model(request("bert-tiny"))
    assert loaded.fields["weights"] == "random"
    assert "HF_HUB_OFFLINE" in loaded.fields["reason"]
    assert "Latency is real, text is not" in caplog.text
    assert loaded.fields["parameters"] == 4_416_698  # prajjwal1/bert-tiny with its decoder head


def test_random_weights_are_the_same_for_the_same_seed() -> None:
    first, second, other = (load_model(request("bert-tiny", seed=seed)).model for seed in (1, 1, 2))
    ids = torch.arange(7)[None]
    assert torch.equal(first(ids).logits, second(ids).logits)
    assert not torch.equal(first(ids).logits, other(ids).logits)


def test_bert_tiny_does_not_see_the_future() -> None:
    model = load_model(request("bert-tiny")).model
    ids = torch.arange(100, 110)[None]
    changed = ids.clone()
    changed[0, -1] = 7
    assert torch.equal(model(ids).logits[:, :-1], model(changed).logits[:, :-1])


def test_pretrained_weights_that_are_out_of_reach_are_an_error() -> None:
    with pytest.raises(LaunchgapError, match=r"weights not available"):
        load_model(request("bert-tiny", weights="pretrained"))


def test_a_hub_id_without_a_preset_is_not_replaced_by_random_weights() -> None:
    with pytest.raises(LaunchgapError, match=r"someone/model.*HF_HUB_OFFLINE"):
        load_model(request("someone/model"))


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def no_network(_self: object, repo_id: str, **options: object) -> None:
        calls.append((repo_id, options))
        raise ConnectionError("no route")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(HfApi, "model_info", no_network)
    loaded = load_model(request("bert-tiny"))
    assert "cannot be reached" in loaded.fields["reason"]
    assert calls == [("prajjwal1/bert-tiny", {"timeout": loading.HUB_TIMEOUT_S})]


def test_an_unknown_name_lists_the_presets() -> None:
    with pytest.raises(LaunchgapError, match=r"'gpt-17'.*gpt2"):
        load_model(request("gpt-17"))


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"nowhere: no such folder"):
        load_model(request(str(tmp_path / "nowhere")))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"no readable config\.json"):
        load_model(request(str(tmp_path)))


def test_a_folder_with_a_broken_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LaunchgapError, match=r"cannot be loaded"):
        load_model(request(str(tmp_path)))


def test_an_architecture_without_this_attention_says_which_it_has(tmp_path: Path) -> None:
    model = tiny_model(find_family("GPT-J"))
    model.save_pretrained(tmp_path)
    with pytest.raises(LaunchgapError, match=r"no attention 'sdpa' .*use --attn-implementation eager"):
        load_model(request(str(tmp_path), attn_implementation="sdpa"))
    assert load_model(request(str(tmp_path), attn_implementation="eager")).fields["weights"] == "pretrained"


def test_an_unknown_attention_implementation_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"cannot be loaded"):
        load_model(request(str(tiny_folder), attn_implementation="telepathy"))


def test_presets_are_found_by_name_and_by_hub_id() -> None:
    for name in preset_names():
        preset = find_preset(name)
        assert preset is not None
        assert find_preset(preset.hub_id) == preset
        assert json.dumps(preset.config)


def test_the_fp32_copy_leaves_the_model_alone(tiny_folder: Path) -> None:
    model = load_model(request(str(tiny_folder), dtype=torch.bfloat16)).model
    assert float32_copy(model).dtype is torch.float32
    assert model.dtype is torch.bfloat16
