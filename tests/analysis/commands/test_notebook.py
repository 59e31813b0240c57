"""What the notebook asks for, in this process; `test_explore` runs the notebook itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from analysis.attribute import RangeSelector
from analysis.commands.notebook import (
    Fixed,
    bullets,
    chosen_range,
    menu,
    next_commands,
    open_trace,
    range_choices,
    request_number,
    requests_in,
    setting,
)
from analysis.finding import Finding
from contract import NVTX_DOMAIN, LaunchgapError
from tests.analysis.commands.run_command import busy_trace
from tests.analysis.trace_file import TraceFile


def two_domains(folder: Path) -> Path:
    file = TraceFile(folder / "two.sqlite")
    file.domain("other", 7)
    for begin in (0, 1_000):
        file.range("step", begin, begin + 500, domain=0)
        file.range("step", begin, begin + 500, domain=7)
        file.launch("matmul", (begin + 10, begin + 20), (begin + 30, begin + 40))
    return file.save()


def test_without_a_name_it_is_launchgaps_own_range_or_the_best_proposal(tmp_path: Path) -> None:
    foreign = busy_trace(tmp_path)
    trace, findings = open_trace(foreign)
    chosen = chosen_range(trace, foreign, "", "")
    assert chosen == RangeSelector("step", "engine")
    assert findings == ()
    assert list(range_choices(trace, chosen))[:2] == ["step, domain engine", "forward, domain engine"]
    file = TraceFile(tmp_path / "own.sqlite")
    file.requests((0, 100), (200, 300))
    file.launch("matmul", (10, 20), (30, 40))
    own = file.save()
    assert chosen_range(open_trace(own)[0], own, "", "") == RangeSelector("request", NVTX_DOMAIN)


def test_a_range_that_no_one_proposes_may_be_chosen_and_stands_in_the_menu(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    trace, _ = open_trace(path)
    chosen = chosen_range(trace, path, "load", "")
    assert next(iter(range_choices(trace, chosen).values())) == RangeSelector("load", "")
    with pytest.raises(LaunchgapError, match=r"none of the 1 ranges 'load' launched GPU work .*; give RANGE"):
        requests_in(trace, path, chosen)


def test_a_name_in_two_domains_needs_one(tmp_path: Path) -> None:
    path = two_domains(tmp_path)
    trace, _ = open_trace(path)
    with pytest.raises(LaunchgapError, match="2 domains have it"):
        chosen_range(trace, path, "step", "")
    assert chosen_range(trace, path, "step", "other") == RangeSelector("step", "other")
    assert chosen_range(trace, path, "step", "(default)") == RangeSelector("step", "")


def test_without_ranges_there_is_nothing_to_choose(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "bare.sqlite")
    file.launch("matmul", (10, 20), (30, 40))
    path = file.save()
    trace, _ = open_trace(path)
    with pytest.raises(LaunchgapError, match="no range of it repeats and launches GPU work"):
        chosen_range(trace, path, "", "")


def test_a_trace_without_gpu_work_is_refused(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "idle.sqlite")
    file.requests((0, 100))
    with pytest.raises(LaunchgapError, match="shows no GPU work, so there is nothing to explore"):
        open_trace(file.save())


@pytest.mark.parametrize(("given", "number"), [("0", 0), ("2", 2), ("", 1)])
def test_a_request_is_chosen_by_number_or_by_the_median_range(
    tmp_path: Path, given: str, number: int
) -> None:
    file = TraceFile(tmp_path / "three.sqlite")
    file.requests((0, 100), (1_000, 1_300), (2_000, 2_900))
    file.launch("matmul", (10, 20), (30, 40))
    path = file.save()
    trace, _ = open_trace(path)
    requests = requests_in(trace, path, RangeSelector())
    assert request_number(given, requests) == number
    for wrong in ("3", "-1", "1.0", "²", "one"):
        with pytest.raises(LaunchgapError, match="there are 3 requests; give a number from 0 to 2"):
            request_number(wrong, requests)


def test_a_menu_offers_the_options_and_without_widgets_tells_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"first": 1, "second": 2}
    box = menu("number", options, 2)
    assert (box.value, box.options) == (2, (("first", 1), ("second", 2)))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    fixed = menu("number", options, 2)
    assert fixed == Fixed("number", "second", 2)
    assert repr(fixed) == "number: second"


def test_settings_come_from_outside_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAUNCHGAP_TRACE", raising=False)
    assert setting("TRACE", "a.sqlite") == "a.sqlite"
    monkeypatch.setenv("LAUNCHGAP_TRACE", "b.sqlite")
    assert setting("TRACE", "a.sqlite") == "b.sqlite"


def test_names_of_a_trace_are_neither_markup_nor_commands() -> None:
    path, graph = Path("it's.sqlite"), Path("graph.sqlite")
    lines = next_commands(path, RangeSelector("a b", ""), graph)
    assert lines[1] == """python -m analysis ledger 'it'"'"'s.sqlite' --range 'a b' --domain ''"""
    assert sum(" match " in line for line in lines) == 1
    hostile = next_commands(path, RangeSelector("```\n# no", ""), None)
    assert all("perfetto" in line for line in hostile)
    assert bullets([Finding("warning", "<b>", 1, "*x*", "y")]) == "- warning: &lt;b&gt;: \\*x\\*; y"
    assert bullets([]) == "No warnings."
