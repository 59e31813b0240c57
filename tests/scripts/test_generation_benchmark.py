"""The generation benchmark as a user runs it: options, config file, outputs, exit codes, one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from contract import LaunchgapError, read_record
from scripts.generation_benchmark import main
from tests.in_process import in_process
from tests.inference.tiny_models import tiny
from tests.scripts.as_main import as_main

QUICK = ["--device", "cpu", "--runs", "2", "--prompt-length", "8", "--new-tokens", "6"]


@pytest.fixture(autouse=True)
def hub_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny gpt2"
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


def test_it_prints_the_table_and_saves_the_record(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", model, *QUICK, "--output-dir", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    for word in ("tokens/s", "ms a token", "x floor", "first request s", "graph_fused", "unavailable"):
        assert word in said
    assert "no speed-up is to be expected" in said
    record = read_record(tmp_path / "out" / "generation.json", "generation")
    assert list(record["strategies"]) == [
        "generate",
        "generate_static",
        "graph",
        "graph_fused",
        "vllm",
        "sglang",
    ]
    assert [len(one["wall_ms"]) for one in record["strategies"].values()] == [2, 2, 2, 2, 0, 0]
    assert record["environment"]["torch"] == torch.__version__
    assert record["settings"]["new_tokens"] == 6
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["generation.json"]


def test_the_command_line_wins_over_the_config_file(model: str, tmp_path: Path) -> None:
    config = tmp_path / "generation.yaml"
    config.write_text(
        f"model: {model}\ndevice: cpu\nruns: 7\nprompt_length: 8\nnew_tokens: 4\n"
        f"strategies: [generate, graph]\noutput_dir: {tmp_path / 'out'}\n"
    )
    assert main(["--config", str(config), "--runs", "2"]) == 0
    record = json.loads((tmp_path / "out" / "generation.json").read_text())
    assert list(record["strategies"]) == ["generate", "graph"]
    assert record["settings"]["runs"] == 2
    assert record["settings"]["new_tokens"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--new-tokens", "0"], "argument --new-tokens: 0 is below 1"),
        (["--new-tokens", "many"], "'many' is not a whole number"),
        (["--new-tokens", "25"], "8 tokens and 25 new ones: the model has 32 positions"),
        (["--runs", "0"], "argument --runs: 0 is below 1"),
        (["--prompt-length", "40"], "the model has 32 positions"),
        (["--max-length", "9"], "maximum length 9: prompt and new tokens are 14"),
        (["--strategies", "warp"], "argument --strategies: invalid choice: 'warp'"),
        (["--strategies", "vllm"], "nothing could be measured: vllm: not installed"),
        (["--model", "gpt-17"], "model 'gpt-17': unknown"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(
    model: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    with pytest.raises(LaunchgapError) as caught:
        main(["--model", model, *QUICK, "--output-dir", str(tmp_path / "out"), *arguments])
    assert words in str(caught.value)
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("source", "names", "reason"),
    [("gpt2", ["generate", "sglang"], "sglang: not installed"), ("mamba", ["generate", "graph"], "graph: ")],
)
def test_what_fails_or_was_named_and_is_missing_leaves_the_others_and_exits_2(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, names: list[str], reason: str
) -> None:
    if source == "mamba":
        model = str(tmp_path / "mamba")
        tiny("mamba").save_pretrained(model)
    output = ["--output-dir", str(tmp_path / "out")]
    arguments = ["--model", model, *QUICK, "--attn-implementation", "eager", *output, "--strategies", *names]
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {reason}")
    record = read_record(tmp_path / "out" / "generation.json", "generation")
    assert [one["status"] == "ok" for one in record["strategies"].values()] == [True, False]
    assert main([*arguments, "--allow-partial"]) == 0


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    options = ("--device", "cpu", "--new-tokens", "0", "--output-dir", tmp_path / "out")
    done = as_main("scripts/generation_benchmark.py", *options)
    assert done.code == 2
    assert done.err.splitlines() == ["error: argument --new-tokens: 0 is below 1; see --help"]


def test_an_output_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = in_process(main, "--device", "cpu", "--output-dir", tmp_path / "file" / "out", log=True)
    assert "Not a directory" in done.complaint
