"""What tests of the analysis share."""

import pytest


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of words and tables, for tests that look at those: drawing takes most of the time."""
    monkeypatch.setattr("analysis.report_html.case_figures", lambda _case: [])
