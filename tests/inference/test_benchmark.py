"""The interleaved measurement: what is kept, what a failure costs, and that a wrong graph is called wrong."""

from pathlib import Path

import pytest
import torch
from torch import nn

from contract import CaptureError, LaunchgapError, Strategy
from inference import benchmark
from inference.benchmark import BenchmarkSettings, failures, measure, require_some_success
from inference.case import CaseOptions, ReadyCase, open_case
from inference.graphed import CapturedForward
from inference.latency import measure_case
from inference.request import run_request
from inference.strategies import EagerForward

ALL = list(Strategy)


@pytest.fixture(scope="module")
def case(tiny_folder: Path) -> ReadyCase:
    return open_case(CaseOptions(model=str(tiny_folder), device="cpu", prompt_length=8, max_length=16))


def settings(**changes: object) -> BenchmarkSettings:
    options: dict[str, object] = {"strategies": ALL, "runs": 4, "warmup_s": 0.0, "correctness_inputs": 2}
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
    graph = record["strategies"]["graph"]
    assert graph["correctness"] is not None
    assert graph["correctness"]["verdict"] == "equal"
    assert graph["graph_pool_bytes"]


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
