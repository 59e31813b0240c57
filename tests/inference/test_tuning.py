"""Where Inductor's timed launches get their wait. tests/gpu/test_fused.py sees what they measure then."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._inductor.runtime import benchmarking

from inference.tuning import _WAIT_CYCLES, timed_by_the_gpu

GPU = torch.device("cuda", 0)


class Benchmarker:
    """A stand-in for Inductor's, whose events only a GPU has."""

    def get_event_pairs(self, iters: int, device_type: str | None = None) -> list[str | None]:
        return [device_type] * iters


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "_sleep", asked.append)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(benchmarking, "benchmarker", Benchmarker())
    return asked


def events(count: int) -> object:
    inductor: Any = benchmarking.benchmarker
    return inductor.get_event_pairs(count, device_type="cuda")


def test_a_series_waits_for_as_long_as_its_launches_take(waits: list[int]) -> None:
    with timed_by_the_gpu(GPU):
        assert events(5) == ["cuda"] * 5
        assert events(100) == ["cuda"] * 100
    assert waits == [5 * _WAIT_CYCLES, 100 * _WAIT_CYCLES]
    events(5)
    assert len(waits) == 2


def test_an_error_leaves_nothing_behind(waits: list[int]) -> None:
    with pytest.raises(RuntimeError, match="no kernel"), timed_by_the_gpu(GPU):
        raise RuntimeError("no kernel")
    events(5)
    assert waits == []


def test_without_a_gpu_or_the_hook_all_is_as_it_was(
    waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with timed_by_the_gpu(torch.device("cpu")):
        events(5)
    assert waits == []
    monkeypatch.setattr(benchmarking, "benchmarker", object())
    with timed_by_the_gpu(GPU):
        assert not hasattr(benchmarking.benchmarker, "get_event_pairs")


def test_inductor_has_the_hook() -> None:
    """The torch of the pins; another would go on without, unseen."""
    assert hasattr(benchmarking.InductorBenchmarker, "get_event_pairs")
