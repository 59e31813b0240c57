"""The sections of a case in the order of every format: what came of it first, what it rests on last."""

from __future__ import annotations

from dataclasses import replace

from analysis.report_data import CaseReport
from analysis.report_sections import (
    Line,
    Section,
    blockers_section,
    match_section,
    prediction_section,
    present,
    time_section,
)
from analysis.report_views import (
    capture_table,
    commands,
    correctness_table,
    environment_table,
    latency_table,
    peers_table,
)
from analysis.report_views_time import cost_steps_table
from analysis.report_views_traced import (
    comparison_table,
    counts_table,
    kernel_table,
    launches_table,
    slowed_sentence,
    traces_table,
)
from analysis.timeline_page import longest_table, notes, sentence
from contract import Strategy

BEFORE, TIMELINE = "before", "timeline"
"""Sections to which the page adds something that only a page can show."""


def case_sections(case: CaseReport) -> list[Section]:
    """The sections that a case has anything for, in their order."""
    found = case.explained
    made = [Section(BEFORE, "Before and after", tables=(latency_table(case),), figures=("where_time_went",))]
    said = slowed_sentence(case)
    slowed = () if said is None else (Line(said, "warning"),)
    if found is not None:
        time = time_section(case, found)
        made += [replace(time, lines=(*slowed, *time.lines)), prediction_section(case, found)]
    made += _kernels(case)
    if found is not None:
        made += [match_section(case, found), blockers_section(case, found)]
    made += [
        _timeline(case),
        Section("requests", "Every request", figures=("latency_comparison",)),
        Section("output", "Is the output the same?", tables=present(correctness_table(case))),
        Section("cost", "What a graph costs", tables=present(capture_table(case), cost_steps_table(case))),
        Section("peers", "Other ways to run it", tables=present(peers_table(case))),
        Section("traces", "The traces", () if found else slowed, present(traces_table(case))),
        Section("measured", "How it was measured", whole=(environment_table(case),), commands=commands(case)),
    ]
    return [section for section in made if not section.empty]


def _kernels(case: CaseReport) -> list[Section]:
    graphs = [one.name for one in case.strategies if one.name != Strategy.EAGER]
    first, *others = present(*(comparison_table(case, name) for name in graphs)) or (None,)
    counted = present(counts_table(case), launches_table(case))
    each = present(*(kernel_table(case, one.name) for one in case.strategies))
    return [
        Section(
            "launches",
            "Launches and kernels of one request",
            tables=counted,
            more_figures=("launches_by_api",),
        ),
        Section(
            "kernels",
            "Kernels by name",
            tables=present(first) or each[:1],
            page_only=(*present(*others), *(each if first is not None else each[1:])),
            more_figures=("top_kernels",),
        ),
    ]


def _timeline(case: CaseReport) -> Section:
    """In words and tables; the page draws it."""
    source = f"{case.tables.source}/timeline.json" if case.tables else ""
    longest = tuple(longest_table(one, source) for one in case.timelines)
    said = [sentence(one) + "." for one in case.timelines]
    said += notes(case.timelines) if case.timelines else ()
    return Section(TIMELINE, "One request on a time axis", tuple(map(Line, said)), page_only=longest)
