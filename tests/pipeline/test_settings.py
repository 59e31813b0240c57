"""The configuration: a mistake is answered with one line: the key, the value and what is allowed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from contract import DEFAULT_STRATEGIES, Dtype, LaunchgapError, Strategy
from rules.settings import (
    calibration,
    cases,
    check_config,
    check_folders,
    profiler,
    strategies_of,
    trace_files,
    tracer,
    wanted_traces,
)
from tests.pipeline.settings_files import ROOT, SCHEMA, Config, load, refusal

CASE = {"model": "gpt2", "dtype": "float32", "prompt_length": 50, "max_length": 1024}


@pytest.fixture
def config() -> Config:
    return load("config.yaml")


def test_a_decode_step_is_a_case_of_its_own_with_its_own_strategies() -> None:
    config = {"cases": [CASE, CASE | {"phase": "decode"}], "strategies": ["eager", "graph", "graph_padded"]}
    prefill, step = cases(config).values()
    assert (prefill["name"], step["name"]) == ("gpt2-float32-p50-m1024", "gpt2-float32-p50-m1024-decode")
    assert "phase" not in prefill
    assert strategies_of(config, prefill, "strategies") == ["eager", "graph", "graph_padded"]
    assert strategies_of(config, step, "strategies") == ["eager", "graph"]


def test_defaults_are_accepted(config: Config) -> None:
    check_config(config, SCHEMA)
    check_config(config | load("cpu.yaml"), SCHEMA)


def test_every_key_is_in_schema_defaults_and_readme(config: Config) -> None:
    schema = load("config.schema.yaml")
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == set(schema["required"]) == set(config)
    readme = (ROOT / "config/README.md").read_text()
    keys = [*config, *schema["properties"]["cases"]["items"]["properties"]]
    assert [key for key in keys if f"`{key}`" not in readme] == []


def test_the_default_strategies_are_measured_and_traced(config: Config) -> None:
    assert config["strategies"] == config["traced_strategies"] == list(DEFAULT_STRATEGIES)


def test_every_strategy_is_explained() -> None:
    for name in Strategy:
        assert f"`{name}`" in (ROOT / "config/README.md").read_text()
        assert name in (ROOT / "docs/definitions.md").read_text()


def test_schema_knows_the_names_of_the_contract() -> None:
    properties = load("config.schema.yaml")["properties"]
    assert properties["strategies"]["items"]["enum"] == list(Strategy)
    assert properties["traced_strategies"]["items"]["enum"] == list(Strategy)
    assert sorted(properties["cases"]["items"]["properties"]["dtype"]["enum"]) == sorted(Dtype)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rusn": 5}, "config: unknown key 'rusn'; did you mean 'runs'?"),
        ({"nothing_like_it": 5}, "config: unknown key 'nothing_like_it'; use device, profiler, "),
        (
            {"runs": 0},
            "config: runs: 0 is not allowed; give a whole number from 1 to 1000000, the timed runs",
        ),
        ({"runs": -5}, "config: runs: -5 is not allowed; give a whole number from 1"),
        ({"runs": 10.0}, "config: runs: 10.0 is not allowed; give a whole number"),
        ({"runs": "many"}, "config: runs: 'many' is not allowed; give a whole number"),
        ({"runs": True}, "config: runs: True is not allowed; give a whole number"),
        ({"runs": None}, "config: runs: None is not allowed; give a whole number"),
        ({"warmup_s": -1}, "config: warmup_s: -1 is not allowed; give seconds from 0 to 3600"),
        ({"warmup_s": float("inf")}, "config: warmup_s: inf is not allowed; give seconds from 0 to 3600"),
        ({"seed": -1}, "config: seed: -1 is not allowed; give a whole number from 0"),
        ({"capture_timeout_s": 0}, "config: capture_timeout_s: 0 is not allowed; give seconds from 1"),
        ({"traced_requests": 0}, "config: traced_requests: 0 is not allowed; give a whole number from 1"),
        ({"device": "gpu"}, "config: device: 'gpu' is not allowed; give auto, cuda, or cpu"),
        (
            {"profiler": "nvprof"},
            "config: profiler: 'nvprof' is not allowed; give auto, required, torch, or off",
        ),
        ({"profiler": True}, "config: profiler: True is not allowed; give auto, required, torch, or off"),
        ({"weights": 1}, "config: weights: 1 is not allowed; give auto, pretrained, or random"),
        (
            {"strategies": ["eager", "turbo"]},
            "config: strategies[1]: 'turbo' is not allowed; give eager, graph, graph_padded or another",
        ),
        ({"strategies": ["graph"]}, "config: strategies: ['graph'] is not allowed; give a list of different"),
        (
            {"strategies": ["eager", "eager"]},
            "config: strategies: ['eager', 'eager'] is not allowed; give a list",
        ),
        ({"strategies": "eager"}, "config: strategies: 'eager' is not allowed; give a list"),
        (
            {"strategies": ["eager"]},
            "config: traced_strategies: 'graph' is not measured; add it to strategies",
        ),
        ({"cases": []}, "config: cases: there are none; give one or more, or a sweep"),
        ({"cases": {}}, "config: cases: {} is not allowed; give a list of cases"),
        ({"cases": ["gpt2"]}, "config: cases[0]: 'gpt2' is not allowed; give a case with the keys model"),
        (
            {"cases": [CASE, CASE]},
            "config: cases[1]: the name gpt2-float32-p50-m1024 is taken by an earlier case",
        ),
    ],
)
def test_mistakes(config: Config, change: Config, message: str) -> None:
    assert refusal(config | change).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modle": "gpt2"}, "config: cases[0]: unknown key 'modle'; did you mean 'model'?"),
        ({"model": ""}, "config: cases[0].model: '' is not allowed; give a preset (gpt2, bert-tiny)"),
        ({"model": "--help"}, "config: cases[0].model: '--help' is not allowed"),
        (
            {"model": "./absent"},
            "config: cases[0].model: './absent' is no folder; give one that holds a model",
        ),
        (
            {"dtype": "fp32"},
            "config: cases[0].dtype: 'fp32' is not allowed; give float32, bfloat16 or float16",
        ),
        (
            {"prompt_length": 0},
            "config: cases[0].prompt_length: 0 is not allowed; give a whole number of tokens",
        ),
        (
            {"prompt_length": 2000},
            "config: cases[0].prompt_length: 2000 is more than max_length, 1024; shorten",
        ),
        (
            {"prompt_length": 1, "phase": "decode"},
            "config: cases[0].prompt_length: 1 leaves a decode step no token before it; give 2 or more",
        ),
        ({"phase": "train"}, "config: cases[0].phase: 'train' is not allowed; give prefill, a pass"),
        (
            {"max_length": "1k"},
            "config: cases[0].max_length: '1k' is not allowed; give a whole number of tokens",
        ),
        (
            {"attn_implementation": "a/b"},
            "config: cases[0].attn_implementation: 'a/b' is not allowed; give the name",
        ),
        ({"x" * 500: 1}, "config: cases[0]: unknown key 'xxx"),
        ({"prompt_length": "x" * 500}, "config: cases[0].prompt_length: 'xxx"),
    ],
)
def test_mistakes_in_a_case(config: Config, change: Config, message: str) -> None:
    assert refusal(config | {"cases": [CASE | change]}).startswith(message)


def test_calibration(config: Config, tmp_path: Path) -> None:
    assert calibration(config, "cuda") is None
    chosen = config | {"calibration": "measure"}
    check_config(chosen, SCHEMA)
    assert calibration(chosen, "cuda") == "results/calibration.json"
    assert calibration(chosen, "cpu") is None
    mine = tmp_path / "mine.json"
    chosen = config | {"calibration": str(mine)}
    assert "is no file; give a record of scripts.calibrate, measure, or null" in refusal(chosen)
    mine.write_text("{}")
    check_config(chosen, SCHEMA)
    assert calibration(chosen, "cuda") == str(mine)
    assert refusal(config | {"calibration": 3}).startswith("config: calibration: 3 is not allowed; give null")


def test_missing_keys(config: Config) -> None:
    del config["runs"]
    assert refusal(config).startswith("config: key 'runs' is missing; give a whole number from 1")
    config["runs"] = 1
    config["cases"] = [{key: value for key, value in CASE.items() if key != "dtype"}]
    assert refusal(config).startswith("config: cases[0]: key 'dtype' is missing; give float32")


def test_long_values_are_cut(config: Config) -> None:
    assert len(refusal(config | {"runs": "x" * 10_000})) < 250


def test_local_folder(config: Config, tmp_path: Path) -> None:
    local = tmp_path / "my model"
    local.mkdir()
    config["cases"] = [CASE | {"model": str(local)}]
    check_config(config, SCHEMA)
    assert list(cases(config)) == ["my-model-float32-p50-m1024"]


def test_cases_are_complete(config: Config) -> None:
    config["cases"] = [CASE, CASE | {"attn_implementation": "eager"}]
    assert cases(config) == {
        "gpt2-float32-p50-m1024": {"name": "gpt2-float32-p50-m1024", "attn_implementation": "sdpa", **CASE},
        "gpt2-float32-p50-m1024-eager": {
            "name": "gpt2-float32-p50-m1024-eager",
            **CASE,
            "attn_implementation": "eager",
        },
    }


@pytest.mark.parametrize(
    ("written", "meant"), [("off", "off"), ('"off"', "off"), ("auto", "auto"), ("torch", "torch")]
)
def test_bare_off_is_off(config: Config, written: str, meant: str) -> None:
    config["profiler"] = yaml.safe_load(written)
    check_config(config, SCHEMA)
    assert profiler(config) == meant


def test_output_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_folders(["results", "profiles/nsys"])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "profiles").touch()
    with pytest.raises(LaunchgapError, match=r"profiles/nsys: cannot be written \(Not a directory\); give"):
        check_folders(["results", "profiles/nsys"])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(LaunchgapError, match=r"results: cannot be written \(no permission\); give"):
        check_folders(["results"])


Records = Callable[..., tuple[Path, Path]]


@pytest.fixture
def records(tmp_path: Path) -> Records:
    def write(
        device: str, nsys_version: str | None, failed: str = "", **tracer: str | None
    ) -> tuple[Path, Path]:
        preflight, latency = tmp_path / "preflight.json", tmp_path / "latency.json"
        can_trace = tracer.get("tracer", nsys_version) is not None
        host = {"device": device, "can_trace": can_trace, "nsys_version": nsys_version, **tracer}
        preflight.write_text(json.dumps({"schema_version": 1, "kind": "preflight", **host}))
        strategies = {name: {"status": "failed" if name == failed else "ok"} for name in Strategy}
        latency.write_text(json.dumps({"schema_version": 1, "kind": "latency", "strategies": strategies}))
        return preflight, latency

    return write


NODE = ["eager.node", "graph.node", "graph_padded.node"]
BOTH = ["eager.node", "graph.node", "graph.graph", "graph_padded.node", "graph_padded.graph"]


@pytest.mark.parametrize(
    ("device", "version", "failed", "traces"),
    [
        ("cuda", "2025.3.1.90-253135822126v0", "", BOTH),
        ("cuda", "2024.2.3.38-242334140272v0", "", BOTH),
        ("cuda", "2022.4.2.1-df9881f", "", NODE),
        ("cuda", "2023.4.4.54-234433681190v0", "", NODE),
        ("cpu", "2025.3.1.90-253135822126v0", "", NODE),
        ("cuda", "2025.3.1.90-253135822126v0", "graph_padded", BOTH[:3]),
        ("cuda", None, "", []),
    ],
)
def test_traces_that_can_be_made(
    config: Config, records: Records, device: str, version: str | None, failed: str, traces: list[str]
) -> None:
    assert wanted_traces(config["traced_strategies"], *records(device, version, failed)) == traces


def test_a_graph_alone_has_a_graph_mode(config: Config, records: Records) -> None:
    config["traced_strategies"] = list(map(str, Strategy))
    names = wanted_traces(config["traced_strategies"], *records("cuda", "2025.3.1.90-253135822126v0"))
    assert [name for name in names if name.endswith(".node")] == [f"{one}.node" for one in Strategy]
    assert {name.removesuffix(".graph") for name in names if name.endswith(".graph")} == {
        "graph",
        "graph_padded",
        "graph_last",
        "graph_bucketed",
        "graph_fused",
        "compiled",
        "graphed_callable",
    }


def test_only_traced_strategies(config: Config, records: Records) -> None:
    config["traced_strategies"] = ["graph"]
    assert wanted_traces(config["traced_strategies"], *records("cuda", "2025.3.1.90-253135822126v0")) == [
        "graph.node",
        "graph.graph",
    ]
    config["traced_strategies"] = []
    assert wanted_traces(config["traced_strategies"], *records("cuda", "2025.3.1.90-253135822126v0")) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("version", ["2025.3.1.90-253135822126v0", None])
def test_torch_has_no_graph_mode(config: Config, records: Records, device: str, version: str | None) -> None:
    preflight, latency = records(device, version, tracer="torch")
    assert tracer(preflight) == "torch"
    assert wanted_traces(config["traced_strategies"], preflight, latency) == NODE


def test_the_tracer_is_what_the_preflight_found(records: Records) -> None:
    version = "2025.3.1.90-253135822126v0"
    assert tracer(records("cuda", version, tracer="nsys")[0]) == "nsys"
    assert tracer(records("cuda", version, tracer=None)[0]) is None
    # As records were before there was a choice.
    assert tracer(records("cuda", version)[0]) == "nsys"
    assert tracer(records("cuda", None)[0]) is None


def test_files_of_each_tracer() -> None:
    assert trace_files("nsys", "case", ["a.node"]) == [
        "profiles/nsys/case/a.node.sqlite",
        "profiles/nsys/case/a.node.json",
    ]
    assert trace_files("torch", "case", ["a.node"]) == [
        "profiles/torch/case/a.node.json.gz",
        "profiles/torch/case/a.node.json",
    ]
    assert trace_files(None, "case", []) == []
