"""Where Inductor's timed launches get their wait. tests/gpu/test_fused.py sees what they measure then."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config
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


def test_nested_it_stays_until_the_outer_one_ends_and_anothers_hook_stays(waits: list[int]) -> None:
    inductor: Any = benchmarking.benchmarker
    inductor.get_event_pairs = others = lambda count, **_: [None] * count
    with timed_by_the_gpu(GPU):
        with timed_by_the_gpu(GPU):
            pass
        events(5)
    assert waits == [5 * _WAIT_CYCLES]
    assert inductor.get_event_pairs is others


def test_what_another_thread_times_meanwhile_does_not_wait(waits: list[int]) -> None:
    with timed_by_the_gpu(GPU), ThreadPoolExecutor(1) as other:
        other.submit(events, 5).result()
        assert waits == []
        events(2)
    assert waits == [2 * _WAIT_CYCLES]


def test_two_threads_tune_one_after_the_other(waits: list[int]) -> None:
    def tune(count: int) -> None:
        with timed_by_the_gpu(GPU):
            events(count)

    with ThreadPoolExecutor(2) as others:
        with timed_by_the_gpu(GPU):
            later = [others.submit(tune, count) for count in (3, 3)]
            events(2)
        for one in later:
            one.result(timeout=10)
    assert waits == [count * _WAIT_CYCLES for count in (2, 3, 3)]
    assert "get_event_pairs" not in vars(benchmarking.benchmarker)


def test_without_a_gpu_or_the_hook_all_is_as_it_was(
    waits: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with timed_by_the_gpu(torch.device("cpu")):
        events(5)
    assert waits == []
    monkeypatch.setattr(benchmarking, "benchmarker", object())
    with timed_by_the_gpu(GPU):
        assert not hasattr(benchmarking.benchmarker, "get_event_pairs")
    assert "may time the host" in caplog.text


def test_inductor_has_the_hook() -> None:
    """The torch of the pins, where there is a GPU; another would go on without."""
    assert inductor_config.use_experimental_benchmarker
    assert hasattr(benchmarking.InductorBenchmarker, "get_event_pairs")
