"""Figures drawn by several processes are those that one draws, and a figure that fails is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import report_drawing
from analysis.report_data import ReportData, gather
from analysis.report_drawing import drawing
from tests.analysis.report_samples import latency_record, write_record


@pytest.fixture(scope="module")
def two_cases(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    root = tmp_path_factory.mktemp("results")
    for model in ("gpt2", "opt"):  # not traced: one figure each
        write_record(root, latency_record(model=model))
    return gather(root / "latency", root / "tables", None, root)


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(count)))


def test_many_processes_draw_what_one_draws_in_the_same_order(
    two_cases: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for count in (1, 2):
        cores(monkeypatch, count)
        with drawing(two_cases.cases) as drawn:
            found.append(drawn())
    assert list(found[0]) == list(found[1])
    assert found[0] == found[1]
    assert len({name.split(".")[0] for name in found[0]}) == 2


def test_what_goes_wrong_in_another_process_is_told(
    two_cases: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ValueError("no such bar")

    cores(monkeypatch, 2)
    monkeypatch.setattr(report_drawing, "render_svg", broken)
    with drawing(two_cases.cases) as drawn, pytest.raises(ValueError, match="no such bar"):
        drawn()


def test_one_figure_is_drawn_here(two_cases: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 8)
    monkeypatch.setattr(report_drawing, "ProcessPoolExecutor", None)
    with drawing(two_cases.cases[:1]) as drawn:
        assert {Path(name).suffix for name in drawn()} == {".svg", ".png"}
