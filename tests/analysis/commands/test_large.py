"""A trace too large to hold is summed up to the same numbers, and what that leaves out is said."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.commands import large
from analysis.commands.select import Selection
from analysis.commands.views import Request, view_trace
from analysis.database import open_sqlite
from analysis.trace import read_trace
from tests.analysis.commands.run_command import busy_trace
from tests.analysis.trace_file import EXAMPLES, TraceFile

WHOLE = Request(Selection(), None, (), force=False)


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "LARGE_EVENTS", 0)


def tables(path: Path, request: Request) -> dict[str, pd.DataFrame]:
    view, fatal = view_trace(path, request)
    assert not fatal
    return {section.name: section.table for section in view.sections}


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_summed_up_is_the_same_as_looked_at(name: str) -> None:
    path = EXAMPLES[name]
    some, every = tables(path, WHOLE), tables(path, Request(Selection(), None, (), force=False, full=True))
    assert set(some) == set(large.TABLES)
    for table in ("launches", "kernels"):
        pd.testing.assert_frame_equal(some[table], every[table])
    columns = ["domain", "name", "instances", "total_us"]
    first, second = (
        part["ranges"][columns].sort_values(columns, ignore_index=True) for part in (some, every)
    )
    pd.testing.assert_frame_equal(first, second, check_dtype=False)
    few, many = (
        view_trace(path, request)[0].facts
        for request in (WHOLE, Request(Selection(), None, (), force=False, full=True))
    )
    shared = set(few) & set(many)
    assert {"kernels", "launches", "memcpys", "memsets", "graph_launches", "capture_flags"} <= shared
    assert {key: few[key] for key in shared} == {key: many[key] for key in shared}


@pytest.mark.usefixtures("nothing_is_small")
def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    view, _ = view_trace(busy_trace(tmp_path), WHOLE)
    (note,) = (finding for finding in view.findings if "summed up" in finding.what)
    assert note.severity == "note"
    assert "--full" in note.remedy


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize(
    "request_",
    [
        Request(Selection(), "step", (), force=False),
        Request(Selection(device=0), None, (), force=False),
        Request(Selection(), None, ("kernels", "devices"), force=False),
    ],
)
def test_what_cannot_be_summed_up_is_looked_at(tmp_path: Path, request_: Request) -> None:
    view, _ = view_trace(busy_trace(tmp_path), request_)
    assert view.kind != "trace-summary"
    assert not any("summed up" in finding.what for finding in view.findings)


@pytest.mark.usefixtures("nothing_is_small")
def test_launches_without_any_gpu_work_are_fatal_there_too(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "launches.sqlite")
    file.call("cudaLaunchKernel_v7000", 10, 20)
    view, fatal = view_trace(file.save(), WHOLE)
    assert fatal
    assert view.findings[0].severity == "fatal"
    assert view.sections == ()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_events_are_counted_without_reading_them(name: str) -> None:
    trace = read_trace(EXAMPLES[name])
    with open_sqlite(EXAMPLES[name]) as database:
        assert large.events(database) == len(trace.kernels) + len(trace.api_calls)
