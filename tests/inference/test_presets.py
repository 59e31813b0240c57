"""The shipped configs: every published field reaches the model, in transformers' present spelling."""

from typing import Any

import pytest
from transformers import AutoConfig, PretrainedConfig

from inference.presets import find_preset, preset_names

ROPE = {"rope_theta": "rope_theta", "rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}
"""Published names of what transformers keeps in `rope_parameters`."""

WITHOUT_EFFECT = {"activation_dropout", "n_ctx"}
"""Published fields that transformers has dropped: dropout in training, and GPT-2's second `n_positions`."""


def published(name: str) -> dict[str, Any]:
    preset = find_preset(name)
    assert preset is not None
    return dict(preset.config)


def built(name: str) -> PretrainedConfig:
    content = published(name)
    config: PretrainedConfig = AutoConfig.for_model(content.pop("model_type"), **content)
    return config


def rope(config: PretrainedConfig) -> dict[str, Any]:
    return dict(getattr(config, "rope_parameters", None) or {})


@pytest.mark.parametrize("name", preset_names())
def test_no_field_is_unknown_to_the_model(name: str) -> None:
    """transformers takes a misspelt field without a word, and then uses its own default for the right one."""
    known = type(built(name))().to_dict().keys() | ROPE.keys() | {"rope_scaling"} | WITHOUT_EFFECT
    assert published(name).keys() <= known | rope(built(name)).keys()


@pytest.mark.parametrize("name", preset_names())
def test_every_field_has_the_published_value(name: str) -> None:
    config, content = built(name), published(name)
    scaling = content.pop("rope_scaling", {})
    if not content.get("use_sliding_window", True):
        content.pop("sliding_window", None)  # a width without effect, which transformers drops
    found = rope(config) | config.to_dict()
    for field, value in content.items():
        assert found[ROPE.get(field, field)] == value, field
    assert scaling.items() <= found.items()
    assert found.get("rope_type", "default") == scaling.get("rope_type", "default")


@pytest.mark.parametrize("name", preset_names())
def test_rotary_models_say_their_base(name: str) -> None:
    """Where a config is silent transformers takes 10,000, a hundredth of what some were trained with."""
    assert bool(rope(built(name))) == bool(published(name).keys() & {"rope_theta", "rotary_emb_base"})
