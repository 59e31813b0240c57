"""Timelines as a record, and what the report shows of them without a script."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.attribute import RangeSelector
from analysis.timeline import Timeline, WorkKind
from analysis.timeline_json import read_timelines, timeline_fields, timelines_record, timelines_text
from analysis.timeline_page import sentence, time_words, timeline_panel
from analysis.timeline_svg import WIDTH, scale_of, tick_step
from analysis.timeline_trace import timeline_of
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.report_page import Page
from tests.analysis.trace_file import TraceFile

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "profiles" / "reference"
TEMPLATES = ROOT / "analysis" / "templates"
CASES = sorted(path.name for path in REFERENCE.iterdir())
HOSTILE = "<script>alert(1)</script>\"'"


def traced(case: str, strategy: str, mode: str = "node") -> Timeline:
    return timeline_of(
        read_trace(REFERENCE / case / f"{strategy}.{mode}.sqlite.gz"), RangeSelector(), strategy
    )


@pytest.fixture(scope="module")
def both() -> dict[str, tuple[Timeline, Timeline]]:
    return {case: (traced(case, "eager"), traced(case, "graph")) for case in CASES}


@pytest.fixture(scope="module")
def gpt2(both: dict[str, tuple[Timeline, Timeline]]) -> tuple[Timeline, Timeline]:
    return both["gpt2-float32-p50-m1024"]


def kernel_called(timeline: Timeline, name: str) -> Timeline:
    operations = [
        dataclasses.replace(one, name=name) if one.kind is WorkKind.KERNEL else one
        for one in timeline.operations
    ]
    return dataclasses.replace(timeline, strategy=name, operations=tuple(operations))


@pytest.mark.parametrize("case", CASES)
def test_a_record_is_small_and_read_back_the_same(
    tmp_path: Path, both: dict[str, tuple[Timeline, Timeline]], case: str
) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(timelines_text(case, both[case]), encoding="utf-8")
    assert read_timelines(path) == both[case]
    for timeline in both[case]:
        assert len(json.dumps(timeline_fields(timeline), separators=(",", ":"))) < 30_000


def test_an_empty_request_and_any_name_survive(tmp_path: Path, gpt2: tuple[Timeline, Timeline]) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    empty = timeline_of(read_trace(file.save()), RangeSelector(), "eager")
    named = kernel_called(gpt2[0], HOSTILE + "\u2028\x00é")
    path = tmp_path / "timeline.json"
    path.write_text(timelines_text("c", [empty, named]), encoding="utf-8")
    assert read_timelines(path) == (empty, named)


def remove(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda one: one.pop(name)


def put(value: object, *names: str | int) -> Callable[[dict[str, Any]], None]:
    def change(one: Any) -> None:  # noqa: ANN401 (walks through JSON)
        for name in names[:-1]:
            one = one[name]
        one[names[-1]] = value

    return change


DAMAGES = {
    "no strategy": (remove("strategy"), "strategy is missing"),
    "number as a name": (put(3, "strategy"), "strategy is missing or of another type"),
    "unknown mode": (put("both", "trace_mode"), "'both' is not known"),
    "text as a length": (put("5", "range_ns"), "range_ns is missing or of another type"),
    "true as a length": (put(True, "range_ns"), "range_ns is missing or of another type"),
    "broken sum": (put(1, "tail_ns"), "do not add up"),
    "negative": (put(-1, "undrawn"), "negative"),
    "no lane": (remove("gaps"), "gaps is missing"),
    "lane of another type": (put([], "calls"), "calls is missing or of another type"),
    "short column": (lambda one: one["calls"]["depth"].pop(), "columns of unequal length"),
    "no such name": (put(10**6, "operations", "name", 0), "operations: name out of bounds"),
    "no such call": (put(-2, "operations", "call", 0), "operations: call out of bounds"),
    "no such row": (put(7, "operations", "row", 3), "operations: row out of bounds"),
    "no such gap": (put(2, "gaps", "kind", 0), "gaps: kind out of bounds"),
    "backwards": (put(-9, "calls", "step_ns", 5), "calls: not in order of time"),
    "negative duration": (put(-9, "calls", "duration_ns", 5), "calls: not in order of time"),
    "fraction": (put(0.5, "calls", "step_ns", 5), "step_ns holds something of another type"),
    "too large": (put(2**60, "calls", "step_ns", 5), "a time that cannot be"),
    "half a range": (put(["copy", 1], "ranges", 0), "ranges holds something of another type"),
    "unknown part": (put(["cudaFree", "fun"], "call_names", 0), "'fun' is not known"),
    "unknown kind": (put(["k", "fun"], "operation_names", 0), "'fun' is not known"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_refused_in_a_line(
    tmp_path: Path, gpt2: tuple[Timeline, Timeline], damage: str
) -> None:
    change, words = DAMAGES[damage]
    record = copy.deepcopy(timelines_record("c", gpt2[:1]))
    change(record["timelines"][0])
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(LaunchgapError, match=re.escape(words)) as refused:
        read_timelines(path)
    assert str(refused.value).startswith(f"{path}: damaged (")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "latency"}', '{"kind": "timeline", "schema_version": 0}']
)
def test_what_is_no_record_of_timelines_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LaunchgapError, match=re.escape(f"{path}: ")):
        read_timelines(path)
    with pytest.raises(LaunchgapError, match="cannot be read"):
        read_timelines(tmp_path / "none.json")


def test_the_sentence_says_what_the_ledger_says(gpt2: tuple[Timeline, Timeline]) -> None:
    eager, graph = gpt2
    assert sentence(eager).startswith(
        "eager: 231 kernels in 6.38 ms, GPU busy 23 %, 237 launch-bound gaps (4.82 ms)"
    )
    assert "223 kernels in 1.75 ms, GPU busy 85 %, 1 launch-bound gap (40.3 µs), 258 device" in sentence(
        graph
    )
    whole = traced("gpt2-float32-p50-m1024", "graph", "graph")
    assert sentence(whole).startswith("graph: 1 replay in 1.62 ms, replay span 95 %")


@pytest.mark.parametrize(
    ("duration_ns", "words"),
    [(0, "0.0 µs"), (1_499, "1.5 µs"), (99_949, "99.9 µs"), (341_147, "341 µs"), (12_381_149, "12.38 ms")],
)
def test_times_in_words(duration_ns: int, words: str) -> None:
    assert time_words(duration_ns) == words


def test_node_mode_is_told_of_graphs_alone(gpt2: tuple[Timeline, Timeline]) -> None:
    told = timeline_panel(gpt2, "c1-").notes
    assert sum("node mode" in note for note in told) == 1
    assert told[1].startswith("graph: ")
    assert not any("node mode" in note for note in timeline_panel(gpt2[:1], "c1-").notes)
    hidden = dataclasses.replace(gpt2[0], undrawn=2)
    assert timeline_panel([hidden], "c1-").notes[-1].startswith("eager: 2 operations without a time")


def test_the_longest_come_first_and_name_their_calls(gpt2: tuple[Timeline, Timeline]) -> None:
    for timeline, table in zip(gpt2, timeline_panel(gpt2, "c1-", "timeline.json").longest, strict=True):
        longest = max(one.duration_ns for one in timeline.operations)
        assert table.rows[0][2].sort == longest / 1_000
        lengths = [row[2].sort or 0.0 for row in table.rows]
        assert (len(lengths), lengths) == (15, sorted(lengths, reverse=True))
        assert table.source == "timeline.json"
    assert {row[3].text for row in timeline_panel(gpt2, "c").longest[1].rows} == {"cudaGraphLaunch_v10000"}


def rendered(timelines: tuple[Timeline, ...]) -> Page:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["link"] = environment.filters["css_name"] = str
    source = '{% from "timeline.html.j2" import timeline %}{{ timeline(panel) }}'
    return Page(environment.from_string(source).render(panel=timeline_panel(timelines, "c1-")))


def test_the_picture_shows_all_bars_of_both_on_one_scale(gpt2: tuple[Timeline, Timeline]) -> None:
    page = rendered(gpt2)
    ends = {}
    for path in page.attributes("path"):
        steps = re.findall(r"m(-?\d+) 0h(\d+)", path["d"] or "")
        assert all(int(step) >= 0 and int(length) > 0 for step, length in steps)
        ends[path["class"]] = sum(int(step) + int(length) for step, length in steps)
    scale_ns = scale_of(gpt2)
    for timeline, style in zip(gpt2, ("tl-eager", "tl-graph"), strict=True):
        last = max(
            one.start_ns + one.duration_ns for one in timeline.operations if one.kind is WorkKind.KERNEL
        )
        assert ends[style] == pytest.approx(last / scale_ns * WIDTH, abs=4)
    assert ends["tl-bound"] < ends["tl-eager"] <= WIDTH
    identifiers = [values["id"] for _, values in page.elements if values.get("id")]
    assert len(identifiers) == len(set(identifiers))
    assert all(str(one).startswith("c1-") for one in identifiers)


def test_names_with_markup_stay_text(gpt2: tuple[Timeline, Timeline]) -> None:
    page = rendered((kernel_called(gpt2[0], HOSTILE), gpt2[1]))
    assert not page.attributes("script")
    assert HOSTILE in page.text
    (root,) = (one for one in page.attributes("div") if "data-timeline" in one)
    fields = json.loads(root["data-timeline"] or "")
    assert fields[0]["strategy"] == HOSTILE
    assert [HOSTILE, "kernel"] in fields[0]["operation_names"]


def test_ten_thousand_operations_take_no_more_room_in_the_picture_than_a_thousand(
    gpt2: tuple[Timeline, Timeline],
) -> None:
    def crowd(size: int) -> Timeline:
        first = dataclasses.replace(gpt2[0].operations[0], duration_ns=700)
        work = [dataclasses.replace(first, start_ns=place * 10**7 // size) for place in range(size)]
        return dataclasses.replace(gpt2[0], operations=tuple(work))

    small, large = (len(timeline_panel([crowd(size)], "c1-").picture.lanes) for size in (1_000, 10_000))
    assert large < 1.2 * small


@pytest.mark.parametrize("scale_ns", [1, 7, 12_381_149, 10**12])
def test_ticks_are_round_and_few(scale_ns: int) -> None:
    step = tick_step(scale_ns)
    assert str(step).rstrip("0") in {"1", "2", "5"}
    assert 1 <= scale_ns / step <= 7
