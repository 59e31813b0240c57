"""The benchmark as a user runs it: options, config file, outputs, exit codes and one-line errors."""

import json
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from contract import LaunchgapError, Strategy
from inference.graphed import CapturedForward
from scripts.cuda_graph_benchmark import EXIT_BELOW_THRESHOLD, main
from tests.in_process import in_process

QUICK = ["--device", "cpu", "--runs", "3", "--warmup-s", "0", "--prompt-length", "8", "--max-length", "16"]
PNG = b"\x89PNG\r\n"


@pytest.fixture(autouse=True)
def hub_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny gpt2"
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


def test_it_prints_the_table_and_saves_figure_and_record(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", model, *QUICK, "--output-dir", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    for word in ("mean ms", "median ms", "p95 ms", "min ms", "max ms", "bitwise", "eager", "graph_padded"):
        assert word in said
    assert "no speed-up is to be expected" in said
    assert "30 %" not in said
    record = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert [len(fields["event_ms"]) for fields in record["strategies"].values()] == [3, 3, 3]
    assert record["environment"]["torch"] == torch.__version__
    assert (tmp_path / "out" / "latency_comparison.png").read_bytes().startswith(PNG)


def test_peers_are_every_strategy_and_none_ends_the_run(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", model, *QUICK, "--output-dir", str(tmp_path / "out"), "--peers"]
    assert main(arguments) == 2
    said = capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert list(record["strategies"]) == list(Strategy)
    assert {name for name, one in record["strategies"].items() if one["status"] == "failed"} == {
        "compiled_default",
        "compiled",
        "graphed_callable",
    }
    assert "compiled: torch.compile and graphed callables need CUDA" in said
    assert "graph_fused *" in said
    assert (tmp_path / "out" / "latency_comparison.png").read_bytes().startswith(PNG)


def test_the_command_line_wins_over_the_config_file(model: str, tmp_path: Path) -> None:
    config = tmp_path / "benchmark.yaml"
    config.write_text(
        f"model: {model}\ndevice: cpu\nruns: 7\nwarmup-s: 0\nprompt_length: 8\nmax_length: 16\n"
        f"strategies: [eager, graph]\noutput_dir: {tmp_path / 'out'}\n"
    )
    assert main(["--config", str(config), "--runs", "2"]) == 0
    record = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert list(record["strategies"]) == ["eager", "graph"]
    assert record["settings"]["runs"] == 2
    assert main(["--config", str(config), "--runs", "1", "--strategies", "eager_last"]) == 0
    record = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert list(record["strategies"]) == ["eager_last"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("speed: 9", "unknown key 'speed'"),
        ("runs: many", "runs: 'many' is not a whole number"),
        ("runs: 0", "runs: 0 is below 1"),
        ("runs: 2.5", "runs: '2.5' is not a whole number"),
        ("runs: true", "runs: True is not a single value"),
        ("model: 7", "model: 7 is not text"),
        ("strategies: eager", "strategies is 'eager'; give a list"),
        ("strategies: [eager, warp]", "strategies is 'warp'; use one of eager, graph"),
        ("allow_partial: 1", "allow_partial is 1; give true or false"),
        ("- runs", "holds no `key: value` lines"),
        ("runs: [", "not valid YAML"),
    ],
)
def test_a_config_file_with_a_mistake_is_refused_by_name(tmp_path: Path, content: str, words: str) -> None:
    config = tmp_path / "benchmark.yaml"
    config.write_text(content)
    with pytest.raises(LaunchgapError) as caught:
        main(["--config", str(config)])
    assert words in str(caught.value)


def test_a_config_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"nowhere\.yaml: cannot be read"):
        main(["--config", str(tmp_path / "nowhere.yaml")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--runs", "0"], "argument --runs: 0 is below 1"),
        (["--runs", "-5"], "argument --runs: -5 is below 1"),
        (["--prompt-length", "0"], "argument --prompt-length: 0 is below 1"),
        (["--prompt-length", "33", "--max-length", "64"], "the model has 32 positions"),
        (["--prompt-length", "20"], "above the maximum length 16"),
        (["--max-length", "33"], "maximum length 33: the model has 32 positions"),
        (["--strategies", "warp"], "argument --strategies: invalid choice: 'warp'"),
        (["--dtype", "int4"], "dtype 'int4': unknown"),
        (["--dtype", "float16"], "float16: not supported on the CPU"),
        (["--model", "gpt-17"], "model 'gpt-17': unknown"),
        (["--model", "./nowhere"], "no such folder"),
        (["--device", "tpu"], "device 'tpu': unknown"),
        (["--attn-implementation", "telepathy"], "cannot be loaded"),
        (["--warmup-s", "-1"], "not a time of zero or more seconds"),
        (["--fail-under", "130"], "not a percentage"),
        (["--fail-under", "30"], "no speed-up to judge"),
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


def test_a_strategy_that_cannot_be_captured_leaves_the_others_and_exits_2(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = CapturedForward._forward

    def reads_on_the_host(self: CapturedForward, module: torch.nn.Module) -> torch.Tensor:
        logits = original(self, module)
        return logits if self._mask is None else logits * logits.sum().item()

    monkeypatch.setattr(CapturedForward, "_forward", reads_on_the_host)
    arguments = ["--model", model, *QUICK, "--output-dir", str(tmp_path / "out")]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].startswith("error: graph_padded: ")
    assert "test_cuda_graph_benchmark.py" in said.err
    record = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert [fields["status"] for fields in record["strategies"].values()] == ["ok", "ok", "failed"]
    assert main([*arguments, "--allow-partial"]) == 0


def test_fail_under_is_an_exit_code_of_its_own() -> None:
    assert EXIT_BELOW_THRESHOLD not in (0, 2)


def test_asking_for_cuda_without_it_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = in_process(main, "--device", "cuda", "--output-dir", tmp_path / "out", log=True)
    if torch.cuda.is_available():
        assert done.code == 0
    else:
        assert "--device cpu for the simulation" in done.complaint
        assert not list(tmp_path.glob("out/*"))


def test_an_output_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = in_process(main, "--device", "cpu", "--output-dir", tmp_path / "file" / "out", log=True)
    assert "Not a directory" in done.complaint
