"""From lists to cases, and what the settings refuse of a sweep: one line with what, why and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from rules.settings import cases, check_config, settings_by_case, strategies_of
from rules.sweep import OWN_SETTINGS, expand
from tests.pipeline.settings_files import SCHEMA, Config, load, refusal

LISTS: dict[str, Any] = {
    "models": ["gpt2", "bert-tiny"],
    "dtypes": ["float32", "bfloat16"],
    "prompt_lengths": [16, 64],
    "max_lengths": [64, 128],
}


@pytest.fixture
def config() -> Config:
    return load("config.yaml") | {"cases": []}


def _names(config: Config, **sweep: object) -> list[str]:
    config = config | {"sweep": LISTS | sweep}
    check_config(config, SCHEMA)
    return list(cases(config))


def test_every_combination_is_a_case_in_the_order_of_the_lists(config: Config) -> None:
    names = _names(config)
    assert len(names) == 16
    assert names[:5] == [
        "gpt2-float32-p16-m64",
        "gpt2-float32-p16-m128",
        "gpt2-float32-p64-m64",
        "gpt2-float32-p64-m128",
        "gpt2-bfloat16-p16-m64",
    ]
    assert names[8].startswith("bert-tiny")


def test_attention_and_phase_are_lists_too(config: Config) -> None:
    names = _names(
        config, dtypes=["float32"], attn_implementations=["sdpa", "eager"], phases=["prefill", "decode"]
    )
    assert len(names) == 32
    assert "gpt2-float32-p16-m64-eager-decode" in names


def test_a_prompt_that_does_not_fit_is_no_case(config: Config) -> None:
    names = _names(config, models=["gpt2"], dtypes=["float32"], max_lengths=[16, 64])
    assert names == ["gpt2-float32-p16-m16", "gpt2-float32-p16-m64", "gpt2-float32-p64-m64"]


def test_exclude_takes_out_what_has_all_its_values(config: Config) -> None:
    every = _names(config)
    without = _names(
        config, exclude=[{"model": "gpt2", "dtype": "bfloat16"}, {"prompt_length": [64], "max_length": 128}]
    )
    gone = {name for name in every if name.startswith("gpt2-bfloat16") or name.endswith("p64-m128")}
    assert without == [name for name in every if name not in gone]
    # What an entry does not name is as usual: sdpa and prefill.
    assert (
        _names(config, attn_implementations=["sdpa", "eager"], exclude=[{"attn_implementation": "eager"}])
        == every
    )


def test_include_adds_and_takes_from_the_lists_what_it_leaves_out(config: Config) -> None:
    more = _names(config, include=[{"model": "gpt2", "dtype": "float16", "prompt_length": 16, "runs": 7}])
    assert more[16:] == ["gpt2-float16-p16-m64", "gpt2-float16-p16-m128"]
    found = expand(
        LISTS | {"include": [{"model": "gpt2", "dtype": "float16", "prompt_length": 16, "runs": 7}]}
    )
    assert [case.get("runs") for case in found[15:]] == [None, 7, 7]


def test_overrides_give_settings_to_what_they_match_and_the_later_wins(config: Config) -> None:
    overrides = [
        {"where": {"prompt_length": 64}, "runs": 30, "strategies": ["eager", "graph"]},
        {"where": {"prompt_length": 64, "model": ["gpt2"]}, "runs": 10, "traced_requests": 5},
    ]
    config |= {"sweep": LISTS | {"overrides": overrides}}
    check_config(config, SCHEMA)
    own = settings_by_case(config)
    long = own["gpt2-float32-p64-m64"]
    assert (long["runs"], long["traced_requests"], long["warmup_s"]) == (10, 5, config["warmup_s"])
    assert own["bert-tiny-float32-p64-m64"]["runs"] == 30
    assert own["bert-tiny-float32-p16-m64"] == config
    # Without a word on traces, those of all cases that this one measures.
    case = cases(config)["gpt2-float32-p64-m64"]
    assert strategies_of(long, case, "traced_strategies") == ["eager", "graph"]
    assert config["traced_strategies"] == ["eager", "graph", "graph_padded"]


def test_cases_stand_beside_a_sweep_and_may_have_settings_of_their_own(config: Config) -> None:
    one = {"model": "gpt2", "dtype": "float32", "prompt_length": 9, "max_length": 99, "runs": 3}
    config |= {"cases": [one], "sweep": LISTS}
    check_config(config, SCHEMA)
    names = list(cases(config))
    assert names[0] == "gpt2-float32-p9-m99"
    assert len(names) == 17
    assert settings_by_case(config)["gpt2-float32-p9-m99"]["runs"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modles": ["gpt2"]}, "config: sweep: unknown key 'modles'; did you mean 'models'?"),
        ({"dtypes": ["float8"]}, "config: sweep.dtypes[0]: 'float8' is not allowed; give float32, bfloat16"),
        ({"dtypes": []}, "config: sweep.dtypes: [] is not allowed; give a list of different dtypes"),
        ({"models": "gpt2"}, "config: sweep.models: 'gpt2' is not allowed; give a list of different"),
        ({"prompt_lengths": [16, 16]}, "config: sweep.prompt_lengths: [16, 16] is not allowed; give a"),
        ({"prompt_lengths": [16.5]}, "config: sweep.prompt_lengths[0]: 16.5 is not allowed; give a whole"),
        ({"max_lengths": [8]}, "config: sweep: no case is left; exclude less, or give a longer max_length"),
        (
            {"exclude": [{"model": "gtp2", "dtype": "float32"}]},
            "config: sweep.exclude[0]: no case has model: gtp2, dtype: float32; mend it or remove it",
        ),
        ({"exclude": [{}]}, "config: sweep.exclude[0]: {} is not allowed; give one or more keys of a case"),
        ({"exclude": [{"runs": 3}]}, "config: sweep.exclude[0]: unknown key 'runs'; use model, dtype, "),
        (
            {"include": [{"model": "opt-1.3b", "prompt_length": 512}]},
            "config: sweep.include[0]: its prompts are longer than max_length; mend its lengths",
        ),
        ({"include": [{"dtype": "float32"}]}, "config: sweep: gpt2-float32-p16-m64: comes twice; remove one"),
        (
            {"overrides": [{"where": {"prompt_length": 17}, "runs": 3}]},
            "config: sweep.overrides[0].where: no case has prompt_length: 17; mend it or remove it",
        ),
        ({"overrides": [{"runs": 3}]}, "config: sweep.overrides[0]: key 'where' is missing; give one"),
        (
            {"overrides": [{"where": {"model": "gpt2"}, "traced_strategies": ["graph_last"]}]},
            "config: sweep: gpt2-float32-p16-m64: traced_strategies: 'graph_last' is not measured; add it",
        ),
        ({"models": ["./absent"]}, "config: sweep: absent-float32-p16-m64.model: './absent' is no folder"),
        (
            {"prompt_lengths": [*range(1, 33)], "max_lengths": [*range(32, 64)]},
            "config: sweep: its lists make 4096 cases, more than 1000; shorten them",
        ),
        ({"phases": ["decode"], "prompt_lengths": [1]}, "config: sweep: gpt2-float32-p1-m64-decode.prompt_"),
    ],
)  # fmt: skip
def test_mistakes(config: Config, change: Config, message: str) -> None:
    assert refusal(config | {"sweep": LISTS | change}).startswith(message)


def test_neither_cases_nor_a_sweep(config: Config) -> None:
    assert refusal(config) == "config: cases: there are none; give one or more, or a sweep"


def test_a_list_that_is_missing(config: Config) -> None:
    sweep = {key: value for key, value in LISTS.items() if key != "dtypes"}
    assert refusal(config | {"sweep": sweep}).startswith(
        "config: sweep: key 'dtypes' is missing; give a list"
    )


@pytest.mark.parametrize(("name", "count"), [("sweep.yaml", 12), ("sweep-cpu.yaml", 24)])
def test_the_sweeps_that_are_shipped(config: Config, name: str, count: int) -> None:
    config |= load(name)
    check_config(config, SCHEMA)
    assert len(cases(config)) == count
    assert len(config["sweep"]["models"]) == (3 if count == 12 else 1)


def test_a_case_and_a_sweep_may_change_the_same_settings(config: Config) -> None:
    properties = load("config.schema.yaml")["properties"]
    case = properties["cases"]["items"]["properties"]
    sweep = properties["sweep"]["properties"]
    for of_entry in (
        case,
        sweep["include"]["items"]["properties"],
        sweep["overrides"]["items"]["properties"],
    ):
        assert {key: of_entry[key] for key in OWN_SETTINGS} == {key: properties[key] for key in OWN_SETTINGS}
    assert set(OWN_SETTINGS) < set(config)
