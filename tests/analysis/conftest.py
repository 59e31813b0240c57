"""What tests of the analysis share."""

import pytest


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
