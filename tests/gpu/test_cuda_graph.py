"""Real CUDA graphs on a real GPU: run with `make gpu-test`."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from contract import DEFAULT_STRATEGIES, CaptureError, Strategy
from inference.backends import CudaBackend
from inference.benchmark import BenchmarkSettings, measure
from inference.case import CaseOptions, ReadyCase, open_case
from inference.graphed import CapturedForward
from inference.session import Session

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def case() -> ReadyCase:
    return open_case(CaseOptions(model="bert-tiny", device="cuda", weights="random", max_length=512))


def prompt(length: int) -> torch.Tensor:
    return torch.randint(1000, 20_000, (1, length))


def eager(case: ReadyCase, ids: torch.Tensor) -> torch.Tensor:
    logits = case.loaded.model(input_ids=ids.cuda(), use_cache=False).logits
    assert isinstance(logits, torch.Tensor)
    return logits


def test_a_replay_is_bitwise_eager_on_fresh_inputs(case: ReadyCase) -> None:
    graph = CapturedForward(case.loaded.model, 50, case.backend, padded=False)
    for _ in range(3):
        ids = prompt(50)
        assert torch.equal(graph(ids), eager(case, ids))


def test_a_padded_replay_follows_the_prompt_length(case: ReadyCase) -> None:
    graph = CapturedForward(case.loaded.model, 512, case.backend, padded=True)
    for length in (50, 1, 512, 7):
        ids = prompt(length)
        torch.testing.assert_close(graph(ids), eager(case, ids), atol=1e-5, rtol=1e-5)


def test_the_view_is_overwritten_and_the_copy_is_not(case: ReadyCase) -> None:
    graph = CapturedForward(case.loaded.model, 50, case.backend, padded=False)
    first, second = prompt(50), prompt(50)
    kept = graph(first)
    graph.copy_in(first)
    view = graph.replay()
    before = view.clone()
    graph(second)
    assert not torch.equal(view, before)
    assert torch.equal(kept, before)


class _ReadsOnTheHost(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 8)

    def forward(self, input_ids: torch.Tensor, **_: object) -> SimpleNamespace:
        logits = self.embedding(input_ids)
        return SimpleNamespace(logits=logits * float(logits.sum()))


def test_a_host_read_breaks_the_capture_by_name_and_the_gpu_lives_on(case: ReadyCase) -> None:
    backend = CudaBackend(torch.device("cuda"))
    with pytest.raises(CaptureError, match=r"test_cuda_graph\.py:\d+ .*float\(logits\.sum\(\)\)"):
        CapturedForward(_ReadsOnTheHost().cuda(), 4, backend, padded=False)
    ids = prompt(20)
    assert torch.equal(CapturedForward(case.loaded.model, 20, backend, padded=False)(ids), eager(case, ids))


def _measure(case: ReadyCase) -> dict[str, str]:
    settings = BenchmarkSettings(DEFAULT_STRATEGIES, runs=5, warmup_s=0.0, correctness_inputs=1)
    return {name: fields["status"] for name, fields in measure(case, settings)[0].items()}


def _broken_padded_graph(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], object]) -> None:
    original = CapturedForward._forward

    def forward(self: CapturedForward, model: nn.Module) -> torch.Tensor:
        if self._mask is not None and torch.cuda.is_current_stream_capturing():
            fail()
        return original(self, model)

    monkeypatch.setattr(CapturedForward, "_forward", forward)


def test_out_of_memory_in_one_strategy_leaves_the_others(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken_padded_graph(monkeypatch, lambda: torch.empty(2**45, device="cuda"))
    assert _measure(case) == {"eager": "ok", "graph": "ok", "graph_padded": "failed"}


def test_a_broken_capture_in_one_strategy_leaves_the_others(
    case: ReadyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken_padded_graph(monkeypatch, torch.cuda.synchronize)
    assert _measure(case) == {"eager": "ok", "graph": "ok", "graph_padded": "failed"}


def test_eager_attention_of_transformers_is_captured_with_a_mask_made_on_the_device() -> None:
    case = open_case(CaseOptions(model="gpt2", device="cuda", weights="random", attn_implementation="eager"))
    results, _ = measure(case, BenchmarkSettings([Strategy.EAGER, Strategy.GRAPH], runs=3, warmup_s=0.0))
    assert results["eager"]["status"] == "ok"
    assert results["graph"]["status"] == "ok"
    assert results["graph"]["attention_mask"] == "explicit"


def test_the_graph_is_faster_than_eager() -> None:
    session = Session(CaseOptions(model="bert-tiny", device="cuda", weights="random"))
    ids = prompt(50)
    eager_ms = sorted(session.baseline_infer(ids) for _ in range(20))[10]
    graph_ms = sorted(session.cuda_graph_infer(ids) for _ in range(20))[10]
    session.close()
    assert graph_ms < eager_ms
