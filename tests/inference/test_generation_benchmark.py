"""The generation benchmark on small real models; vLLM and SGLang are stand-ins of the same shape.

The real engines need a GPU and are no part of what is installed here. The stand-ins have the arguments and
answers that the engines document, run in a process of their own as those do, and the one for vLLM really
generates from the folder that it is given. They prove launchgap's side and nothing of the engines.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from analysis.generation import generation_table
from contract import GenerationRecord, GenerationStrategy, LaunchgapError
from inference import generation_benchmark
from inference.agreement import Agreement
from inference.case import CaseOptions, ReadyCase
from inference.generation_benchmark import failures, measure_generation, require_some_success
from inference.generation_case import GenerationSettings, draw_plan, open_generation_case
from inference.generation_peers import PeerJob, run_peer, why_unavailable
from inference.generation_rows import make_row, token_agreement
from tests.inference.tiny_models import tiny

GENERATE, STATIC, GRAPH, FUSED, VLLM, SGLANG = GenerationStrategy
PROMPT = torch.tensor([[3, 1, 4, 1, 5]])

VLLM_STAND_IN = """
import torch
from transformers import AutoModelForCausalLM

class TokensPrompt(dict):
    def __init__(self, *, prompt_token_ids):
        super().__init__(prompt_token_ids=prompt_token_ids)

class SamplingParams:
    def __init__(self, *, temperature, max_tokens, ignore_eos, detokenize):
        assert temperature == 0.0 and ignore_eos and not detokenize
        self.max_tokens = max_tokens

class Answer:
    def __init__(self, **fields):
        self.__dict__.update(fields)

class LLM:
    def __init__(
        self, *, model, skip_tokenizer_init, dtype, max_model_len, gpu_memory_utilization, enforce_eager
    ):
        assert skip_tokenizer_init and not enforce_eager and 0 < gpu_memory_utilization < 1
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        self.longest = max_model_len

    def generate(self, prompts, sampling_params, *, use_tqdm):
        ids = torch.tensor([prompts[0]["prompt_token_ids"]])
        count = sampling_params.max_tokens
        assert not use_tqdm and ids.shape[1] + count <= self.longest
        found = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
            eos_token_id=None, pad_token_id=0,
        )
        return [Answer(outputs=[Answer(token_ids=tuple(found[0, ids.shape[1] :].tolist()))])]
"""
SGLANG_STAND_IN = """
import pathlib

class Engine:
    def __init__(self, *, model_path, skip_tokenizer_init, dtype, log_level):
        assert skip_tokenizer_init and (pathlib.Path(model_path) / "model.safetensors").is_file()

    def generate(self, *, input_ids, sampling_params):
        assert sampling_params["temperature"] == 0.0 and sampling_params["ignore_eos"]
        assert all(isinstance(token, int) for token in input_ids)
        return {"output_ids": [0] * sampling_params["max_new_tokens"], "meta_info": {}}

    def shutdown(self):
        pass
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Make a module importable, in this process and in those that it starts."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)

    return write


def opened(folder: Path, new_tokens: int, attention: str = "sdpa") -> ReadyCase:
    options = CaseOptions(model=str(folder), device="cpu", prompt_length=5, attn_implementation=attention)
    return open_generation_case(options, new_tokens)


def measured(case: ReadyCase, *strategies: GenerationStrategy, new_tokens: int = 6) -> GenerationRecord:
    settings = GenerationSettings(strategies, new_tokens=new_tokens, runs=2)
    return measure_generation(case, settings, ["generation_benchmark.py"])


def test_all_rows_give_the_same_tokens_and_keep_every_sample(
    tiny_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = measured(opened(tiny_folder, 6), *GenerationStrategy)
    assert "captured again" not in caplog.text  # weights that `graph_fused` moves are moved before
    rows = {name: record["strategies"][name] for name in (GENERATE, STATIC, GRAPH, FUSED)}
    for name, one in rows.items():
        assert one["status"] == "ok", one["reason"]
        assert one["interleaved"]
        assert len(one["wall_ms"]) == len(one["half_wall_ms"]) == 2
        assert all(ms > 0 for ms in (*one["wall_ms"], *one["half_wall_ms"]))
        assert (one["agreement"] is None) == (name == GENERATE)
        assert one["agreement"] is None or one["agreement"]["identical"]
        assert one["first_request_s"]
    assert [one["capture_s"] is None for one in rows.values()] == [True, True, False, False]
    assert [one["compile_s"] is None for one in rows.values()] == [True, True, True, False]
    assert record["settings"]["half_tokens"] == 3
    assert record["simulated"]
    assert record["floor_ms_per_token"] is None
    assert record["weight_bytes_read"]


def test_what_is_not_installed_is_a_failure_only_if_it_was_named(tiny_folder: Path) -> None:
    record = measured(opened(tiny_folder, 6), GENERATE, VLLM, SGLANG)
    assert [record["strategies"][name]["status"] for name in (VLLM, SGLANG)] == ["unavailable"] * 2
    assert failures(record, named=False) == []
    assert [reason.split(":")[0] for reason in failures(record, named=True)] == ["vllm", "sglang"]
    require_some_success(record)


def test_one_new_token_has_no_shorter_request(tiny_folder: Path) -> None:
    record = measured(opened(tiny_folder, 1), GENERATE, GRAPH, new_tokens=1)
    for one in record["strategies"].values():
        assert len(one["wall_ms"]) == 2
        assert one["half_wall_ms"] == []


def test_generate_answers_as_the_reference_even_where_it_is_not_timed(tiny_folder: Path) -> None:
    record = measured(opened(tiny_folder, 6), GRAPH)
    assert list(record["strategies"]) == ["graph"]
    agreement = record["strategies"]["graph"]["agreement"]
    assert agreement is not None
    assert agreement["identical"]


def test_a_model_that_graphs_cannot_hold_fails_there_alone(tmp_path: Path) -> None:
    tiny("mamba").save_pretrained(tmp_path)
    case = opened(tmp_path, 6, attention="eager")
    record = measured(case, GENERATE, GRAPH, FUSED)
    assert [one["status"] for one in record["strategies"].values()] == ["ok", "failed", "failed"]
    assert len(record["strategies"]["generate"]["wall_ms"]) == 2
    graph = record["strategies"]["graph"]
    assert graph["wall_ms"] == []
    assert (graph["reason"] or "").startswith("graph: ")
    assert len((graph["reason"] or "").splitlines()) == 1
    alone = measured(case, GRAPH)
    with pytest.raises(LaunchgapError, match="nothing could be measured: graph: "):
        require_some_success(alone)


def test_a_failure_between_two_rounds_drops_its_samples_alone(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = opened(tiny_folder, 6)
    measure = generation_benchmark._time_all

    def spoiled(series: generation_benchmark._AllSeries, *more: object) -> None:
        row = series[STATIC].row
        assert row is not None
        calls = []
        answer = row.tokens

        def breaks_late(prompt: torch.Tensor, count: int) -> list[int]:
            calls.append(count)
            return answer(prompt, count)[: count if len(calls) < 3 else -1]

        monkeypatch.setattr(row, "tokens", breaks_late)
        measure(series, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(generation_benchmark, "_time_all", spoiled)
    record = measured(case, GENERATE, STATIC)
    static = record["strategies"]["generate_static"]
    assert static["status"] == "failed"
    assert "tokens where" in (static["reason"] or "")
    assert static["wall_ms"] == static["half_wall_ms"] == []
    assert len(record["strategies"]["generate"]["wall_ms"]) == 2


@pytest.mark.parametrize("strategy", [GENERATE, STATIC, GRAPH])
def test_no_end_of_sequence_stops_a_row(strategy: GenerationStrategy) -> None:
    model = tiny("llama")
    row = make_row(strategy, model, 16)
    tokens = row.tokens(PROMPT, 6)
    model.generation_config.eos_token_id = tokens[0]
    assert row.tokens(PROMPT, 6) == tokens
    row.close()


def test_a_static_cache_compiles_nothing_on_the_cpu() -> None:
    model = tiny("llama")
    row = make_row(STATIC, model, 16)
    assert row.tokens(PROMPT, 6) == make_row(GENERATE, model, 16).tokens(PROMPT, 6)
    assert not hasattr(model, "_compiled_call")


def test_other_tokens_are_told_with_the_place_and_both_logits() -> None:
    found = Agreement((1, 2, 3), (1, 5, 6), 1, (0.5, 0.25), (0.25, 0.5))
    fields = token_agreement([1, 2, 3], [1, 5, 6], found)
    assert fields["identical"] is False
    assert fields["first_divergence"] == 1
    assert fields["logits"] == [0.5, 0.25]
    assert fields["reference_logits"] == [0.25, 0.5]
    assert token_agreement([1, 2, 3], [1, 2, 6])["first_divergence"] == 2


def test_a_graph_looks_closer_and_generate_cannot() -> None:
    model = tiny("llama")
    graph, reference = make_row(GRAPH, model, 16), make_row(GENERATE, model, 16)
    found = graph.compare(PROMPT, 6)
    assert found is not None
    assert list(found.tokens) == reference.tokens(PROMPT, 6)
    assert reference.compare(PROMPT, 6) is None
    graph.close()


def test_every_request_has_a_fresh_prompt_and_a_seed_repeats_them() -> None:
    settings = GenerationSettings((GENERATE,), new_tokens=7, runs=5, seed=3)
    plan = draw_plan(settings, 9, 1000)
    requests = [*plan.warm_up, *(request for requests in plan.rounds for request in requests)]
    assert len(plan.rounds) == 5
    assert [request.new_tokens for request in requests] == [7, 3, 7, *[7, 3] * 5]
    assert len({tuple(request.prompt[0].tolist()) for request in requests}) == len(requests)
    assert {request.prompt.shape for request in requests} == {(1, 9)}
    assert torch.equal(draw_plan(settings, 9, 1000).rounds[4][1].prompt, requests[-1].prompt)


def test_the_cache_is_the_bucket_that_the_request_needs(tiny_folder: Path) -> None:
    # 11 tokens would have a bucket of 64, and the model has 32 positions.
    assert opened(tiny_folder, 6).fields["max_length"] == 32
    options = CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=5, max_length=20)
    fields = open_generation_case(options, 6).fields
    assert fields["max_length"] == 20
    assert fields["name"].endswith("p5-m20")


@pytest.mark.parametrize(
    ("new_tokens", "max_length", "words"),
    [
        (0, None, "0 new tokens: must be 1 or more"),
        (28, None, "prompt of 5 tokens and 28 new ones: the model has 32 positions"),
        (6, 10, "maximum length 10: prompt and new tokens are 11"),
        (6, 33, "use --max-length 11 to 32"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    tiny_folder: Path, new_tokens: int, max_length: int | None, words: str
) -> None:
    options = CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=5, max_length=max_length)
    with pytest.raises(LaunchgapError) as caught:
        open_generation_case(options, new_tokens)
    assert words in str(caught.value)


def test_why_a_peer_cannot_be_asked(stand_in: Callable[[str, str], None]) -> None:
    assert "not installed" in (why_unavailable(SGLANG, simulated=False) or "")
    stand_in("sglang", SGLANG_STAND_IN)
    assert why_unavailable(SGLANG, simulated=False) is None
    assert "runs on a GPU only" in (why_unavailable(SGLANG, simulated=True) or "")


def test_peers_answer_the_same_prompts_after_the_others(
    tiny_folder: Path, stand_in: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("vllm", VLLM_STAND_IN)
    stand_in("sglang", SGLANG_STAND_IN)
    monkeypatch.setattr(generation_benchmark, "why_unavailable", lambda *_, **__: None)
    record = measured(opened(tiny_folder, 6), GENERATE, VLLM, SGLANG)
    for name in (VLLM, SGLANG):
        one = record["strategies"][name]
        assert one["status"] == "ok", one["reason"]
        assert not one["interleaved"]
        assert len(one["wall_ms"]) == len(one["half_wall_ms"]) == 2
        assert one["first_request_s"]
    agreements = [record["strategies"][name]["agreement"] for name in (VLLM, SGLANG)]
    assert [one and one["identical"] for one in agreements] == [True, False]
    assert "vllm, sglang: measured after the others" in generation_table(record)


def runs(process_id: int) -> bool:
    """Whether a process is there and no zombie that nobody has collected yet."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def job(count: int = 4) -> PeerJob:
    return PeerJob("folder", "float32", 16, 0.5, [([1, 2, 3], count)])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ImportError('no libcuda')", "ImportError: no libcuda"),
        ("class Engine:\n    def __init__(self, **_): raise RuntimeError('no memory\\nat all')", "no memory"),
        ("class Motor: pass", "AttributeError: "),
        (
            "import os, sys\nclass Engine:\n    def __init__(self, **_):\n"
            "        print('scheduler died', file=sys.stderr, flush=True)\n        os.kill(os.getpid(), 9)",
            "its process ended with exit code 137 (scheduler died)",
        ),
        (
            "class Engine:\n    def __init__(self, **_): pass\n    def shutdown(self): pass\n"
            "    def generate(self, **_): return {'output_ids': [1, 2]}",
            "gave 2 tokens where 4 were asked for",
        ),
    ],
)
def test_a_peer_that_fails_says_why(stand_in: Callable[[str, str], None], source: str, words: str) -> None:
    stand_in("sglang", source)
    with pytest.raises(LaunchgapError) as caught:
        run_peer(SGLANG, job())
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_peer_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, stand_in: Callable[[str, str], None]
) -> None:
    note = tmp_path / "child"
    stand_in(
        "sglang",
        "import pathlib, subprocess, sys, time\nclass Engine:\n    def __init__(self, **_):\n"
        "        child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"        pathlib.Path({str(note)!r}).write_text(str(child.pid))\n        time.sleep(600)",
    )
    start_s = time.monotonic()
    with pytest.raises(LaunchgapError, match="not done after 4 s and was ended"):
        run_peer(SGLANG, job(), timeout_s=4)
    assert time.monotonic() - start_s < 60
    assert not runs(int(note.read_text()))


def test_a_peer_s_process_loads_no_torch_of_launchgap() -> None:
    code = "import sys, inference.generation_peers; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
