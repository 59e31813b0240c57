"""Data that a process of its own gathers are those that this one would, and its refusal is the same line."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from analysis.report_ahead import collecting_seldom, gathering
from analysis.report_data import gather
from contract import LaunchgapError
from tests.analysis.report_samples import latency_record, write_record


@pytest.mark.parametrize("cores", [1, 2])
def test_one_core_or_two_gather_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    write_record(tmp_path, latency_record())
    folders = (tmp_path / "latency", tmp_path / "tables", None, tmp_path)
    with gathering(*folders, (), {}) as gathered:
        assert gathered() == gather(*folders)
    nowhere = gathering(tmp_path / "nowhere", *folders[1:], (), {})
    with nowhere as gathered, pytest.raises(LaunchgapError, match="nowhere: cannot be read"):
        gathered()


def test_garbage_is_looked_for_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with collecting_seldom():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
