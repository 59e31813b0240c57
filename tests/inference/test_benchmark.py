"""The interleaved measurement: what is kept, what a failure costs, and that a wrong graph is called wrong."""

from pathlib import Path

import pytest
import torch
from torch import nn

from contract import DEFAULT_STRATEGIES, CaptureError, LaunchgapError, Strategy
from inference import benchmark
from inference.benchmark import BenchmarkSettings, failures, measure, require_some_success
from inference.case import CaseOptions, ReadyCase, open_case
from inference.graphed import CapturedForward
from inference.latency import measure_case
from inference.request import run_request
from inference.runner_strategies import RunnerForward
from inference.strategies import EagerForward
from tests.inference.tiny_models import WINDOW, tiny


@pytest.fixture(scope="module")
def case(tiny_folder: Path) -> ReadyCase:
    return open_case(CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=8, max_length=16))


def settings(**changes: object) -> BenchmarkSettings:
    options: dict[str, object] = {
        "strategies": DEFAULT_STRATEGIES,
        "runs": 4,
        "warmup_s": 0.0,
        "correctness_inputs": 2,
    }
    return BenchmarkSettings(**(options | changes))  # type: ignore[arg-type]


def test_every_raw_sample_is_kept(case: ReadyCase) -> None:
    record = measure_case(case, settings(), ["benchmark"])
    assert record["simulated"]
    assert list(record["strategies"]) == ["eager", "graph", "graph_padded"]
    assert len(record["aa_event_ms"]) == 4
    for fields in record["strategies"].values():
        assert fields["status"] == "ok"
        assert len(fields["event_ms"]) == len(fields["wall_ms"]) == 4
        assert all(0 < e <= w for e, w in zip(fields["event_ms"], fields["wall_ms"], strict=True))
        assert (fields["logits"], fields["compile_s"]) == ("all", None)
    graph = record["strategies"]["graph"]
    assert graph["correctness"] is not None
    assert graph["correctness"]["verdict"] == "equal"
    assert graph["graph_pool_bytes"]


def test_the_record_knows_the_weights_and_no_bandwidth_of_a_cpu(case: ReadyCase) -> None:
    floor = measure_case(case, settings(strategies=[Strategy.EAGER], runs=1), ["benchmark"])["floor"]
    every_weight = sum(weight.nbytes for weight in case.loaded.model.parameters())
    assert floor["weight_bytes_read"] is not None
    assert 0 < floor["weight_bytes_read"] < every_weight
    assert floor["bandwidth_bytes_per_s"] is floor["floor_ms"] is None


NEEDS_CUDA = {"compiled_default", "compiled", "graphed_callable"}


def test_peers_take_part_and_those_that_need_cuda_say_so(case: ReadyCase) -> None:
    results, again_ms = measure(case, settings(strategies=list(Strategy), runs=2))
    assert list(results) == list(Strategy)
    assert {name for name, fields in results.items() if fields["status"] == "failed"} == NEEDS_CUDA
    for name in NEEDS_CUDA:
        assert (results[name]["error"] or "").startswith(
            f"{name}: torch.compile and graphed callables need CUDA"
        )
        assert "logits" not in results[name]
    for name in set(results) - NEEDS_CUDA:
        assert len(results[name]["event_ms"]) == 2
        found = results[name]["correctness"]
        assert (found is None) == (name == "eager")
        assert found is None or found["verdict"] != "DIFFERENT"
    assert len(again_ms) == 2


def test_the_last_token_is_compared_with_eagers_last_token(case: ReadyCase) -> None:
    found = measure(case, settings(strategies=[Strategy.EAGER_UNMASKED, Strategy.EAGER_LAST]))[0]
    whole, last = (found[name]["correctness"] for name in ("eager_unmasked", "eager_last"))
    assert (found["eager_unmasked"]["logits"], found["eager_last"]["logits"]) == ("all", "last")
    assert whole is not None
    assert last is not None
    assert whole["verdict"] == "equal"
    assert last["verdict"] != "DIFFERENT"
    assert last["rule"] == f"{whole['rule']}, the last token's logits alone"


def test_a_runner_that_answers_another_prompt_is_called_different(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RunnerForward.copy_in
    monkeypatch.setattr(RunnerForward, "copy_in", lambda self, ids: original(self, ids.flip(-1)))
    found = measure(case, settings(strategies=[Strategy.GRAPH_LAST]))[0]["graph_last"]["correctness"]
    assert found is not None
    assert found["verdict"] == "DIFFERENT"


def test_a_model_that_needs_its_mask_has_no_unmasked_eager(tmp_path: Path) -> None:
    tiny("mistral").save_pretrained(tmp_path)
    windowed = open_case(
        CaseOptions(model=str(tmp_path), device="cpu", prompt_length=2 * WINDOW, max_length=32)
    )
    results, _ = measure(windowed, settings(strategies=[Strategy.EAGER, Strategy.EAGER_LAST]))
    assert "gives other logits without its attention mask" in (results["eager_last"]["error"] or "")
    assert results["eager"]["status"] == "ok"


def test_only_what_was_asked_for_is_reported(case: ReadyCase) -> None:
    results, _ = measure(case, settings(strategies=[Strategy.GRAPH]))
    assert list(results) == ["graph"]
    assert results["graph"]["correctness"] is not None  # eager ran as the reference all the same


def _padded_fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    original = CapturedForward._forward

    def forward(self: CapturedForward, model: nn.Module) -> torch.Tensor:
        if self._mask is not None:
            raise error
        return original(self, model)

    monkeypatch.setattr(CapturedForward, "_forward", forward)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.cuda.OutOfMemoryError("out of memory"), "graph_padded: out of GPU memory"),
        (CaptureError("aten.nonzero at model.py:1: no"), "graph_padded: aten.nonzero"),
    ],
)
def test_a_failed_strategy_leaves_the_others(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    _padded_fails(monkeypatch, error)
    results, _ = measure(case, settings())
    assert results["eager"]["status"] == results["graph"]["status"] == "ok"
    assert results["graph_padded"]["status"] == "failed"
    assert results["graph_padded"]["event_ms"] == []
    assert [words in line for line in failures(results)] == [True]
    require_some_success(results)


def test_a_strategy_that_fails_half_way_loses_its_samples(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = run_request, []

    def fails_late(strategy: object, *arguments: object, **options: object) -> object:
        if isinstance(strategy, EagerForward):
            return original(strategy, *arguments, **options)  # type: ignore[arg-type]
        calls.append(strategy)
        if len(calls) > 5:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return original(strategy, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(benchmark, "run_request", fails_late)
    results, _ = measure(case, settings(strategies=[Strategy.EAGER, Strategy.GRAPH]))
    assert len(results["eager"]["event_ms"]) == 4
    assert results["graph"]["status"] == "failed"
    assert results["graph"]["event_ms"] == []


def test_nothing_left_is_an_error(case: ReadyCase, monkeypatch: pytest.MonkeyPatch) -> None:
    _padded_fails(monkeypatch, CaptureError("no"))
    results, _ = measure(case, settings(strategies=[Strategy.GRAPH_PADDED]))
    with pytest.raises(LaunchgapError, match="every strategy failed: graph_padded"):
        require_some_success(results)


def test_a_graph_that_ignores_its_input_is_called_different(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CapturedForward, "copy_in", lambda *_: None)
    results, _ = measure(case, settings(strategies=[Strategy.EAGER, Strategy.GRAPH]))
    found = results["graph"]["correctness"]
    assert found is not None
    assert found["verdict"] == "DIFFERENT"
    assert not found["bitwise"]
    assert not found["allclose"]


def test_half_precision_is_judged_by_an_fp32_reference(tiny_folder: Path) -> None:
    half = open_case(
        CaseOptions(model=str(tiny_folder), device="cpu", dtype="bfloat16", prompt_length=8, max_length=16)
    )
    results, _ = measure(half, settings())
    found = results["graph_padded"]["correctness"]
    assert found is not None
    assert found["error_vs_fp32"] is not None
    assert found["eager_error_vs_fp32"]
    assert "fp32 reference" in found["rule"]
    assert found["verdict"] in ("equal", "within tolerance")


def test_logits_that_are_no_numbers_are_called_different(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = CapturedForward.replay
    monkeypatch.setattr(CapturedForward, "replay", lambda self: original(self) * float("nan"))
    results, _ = measure(case, settings(strategies=[Strategy.EAGER, Strategy.GRAPH]))
    found = results["graph"]["correctness"]
    assert found is not None
    assert found["verdict"] == "DIFFERENT"
    assert found["max_abs_difference"] is None
