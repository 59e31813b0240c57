"""What somebody who waits at a terminal sees, and that nobody else sees it."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from analysis.commands import progress
from analysis.commands.progress import Steps
from analysis.commands.select import Selection
from analysis.commands.views import Request, view_trace
from tests.analysis.commands.run_command import busy_trace

WHOLE = Request(Selection(), None, (), force=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch, told: io.StringIO, delay_s: float) -> None:
    # Not in a fixture: between fixtures and test, pytest puts its own stderr back.
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr(progress, "DELAY_S", delay_s)
    monkeypatch.setattr(progress, "_TICK_S", 0.01)


def test_each_step_is_named_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    watched(monkeypatch, terminal, 1e-9)
    with Steps(2) as steps:
        for name in ("first", "second\x1b[31m"):
            steps.begin(name)
            drawn, waited = terminal.tell(), time.monotonic() + 30
            # The clock draws the step although nothing else happens.
            while name[:5] not in terminal.getvalue()[drawn:] and time.monotonic() < waited:
                time.sleep(0.01)
    told = terminal.getvalue()
    assert "first: step 1 of 2, 00:" in told
    assert r"second\x1b[31m: step 2 of 2" in told
    assert told.endswith("\r")
    assert told.split("\r")[-2].strip() == ""


def test_reading_a_trace_has_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Steps, "begin", lambda _, what: begun.append(what))
    view, _ = view_trace(busy_trace(tmp_path), WHOLE)
    assert begun[0] == "reading busy.sqlite"
    assert begun[3:] == [f"making the table {section.name}" for section in view.sections]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_nobody_is_told_of_what_is_quick_or_goes_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]
) -> None:
    told = stream()
    watched(monkeypatch, told, 3600 if stream is Terminal else 0)
    view_trace(busy_trace(tmp_path), WHOLE)
    assert told.getvalue() == ""
