"""What tests of the analysis share."""

import gc

import pytest


def pytest_collection_finish() -> None:
    """What is loaded by now stays: to look through it for garbage takes a tenth of these tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of words and tables, for tests that look at those: drawing takes most of the time."""
    monkeypatch.setattr("analysis.report_html.case_figures", lambda _case: [])


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that are named but empty, for tests that ask which there are."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr("analysis.report_drawing.render_svg", lambda _figure: b"")
    monkeypatch.setattr("analysis.report_drawing.render_png", lambda _figure: b"")
