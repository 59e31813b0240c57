"""Puts together what `python -m analysis match` shows, and says what of it is an alarm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.commands.progress import Steps
from analysis.commands.render import finding_line
from analysis.commands.requests import (
    Requests,
    about_side,
    check_same_case,
    overlapping,
    read_requests,
)
from analysis.commands.sections import Fact, Section, View
from analysis.commands.words import shown
from analysis.equivalence import Match, match_kernels, match_totals
from analysis.equivalence_verdict import alarms, check_related, verdict
from analysis.escaped import equivalence_findings, escaped_work
from contract import LaunchgapError

_SHORT = {
    f"{side}_{unit}_per_request": f"{side}_{unit}" for side in ("eager", "graph") for unit in ("calls", "us")
} | {"outside_calls_per_request": "outside_calls"}
_EACH = "Calls and microseconds of GPU time are per request, means over the requests of each trace."
_KERNELS_LONG = ("kind", "full_name", "eager_shape", "graph_shape", "outside_calls", "instead")
_BESIDE = "A request cannot do without what is expected; all else escaped the replay. Per request."


@dataclass(frozen=True)
class Request:
    """What is asked for; see the command's options."""

    range_name: str | None
    graph_range: str | None
    domain: str | None


def match_view(eager_path: Path, graph_path: Path, request: Request) -> tuple[View, tuple[str, ...]]:
    """The view of a match, and those of its lines that are alarms: none where the graph does eager's work.

    Raises:
        LaunchgapError: a file cannot be read or used, or the two cannot be compared.
    """
    with Steps(5) as steps:
        eager = read_requests(eager_path, request.range_name, request.domain, steps)
        _check_eager(eager)
        name = request.graph_range or request.range_name
        graph = read_requests(graph_path, name, request.domain, steps)
        _check_graph(graph)
        cases = tuple(check_same_case(eager, graph))
        steps.begin("matching")
        matched = _matched(eager, graph)
    escaped = escaped_work(graph.attributed)
    found = equivalence_findings(matched, escaped)
    told = alarms(matched, escaped)
    summary = verdict(matched, told)
    sides = (*about_side(eager.findings, "eager"), *about_side(graph.findings, "graph"))
    facts = _facts(eager, graph, summary)
    view = View("trace-match", str(eager_path), facts, (*found, *cases, *sides), _sections(matched, escaped))
    # The lines of findings about the same things are red as well.
    lines = [summary, *(finding_line(one) for one in found if one.severity != "note")] if told else []
    return view, tuple(lines)


def _check_eager(eager: Requests) -> None:
    if eager.replays:
        raise LaunchgapError(
            f"{eager.path}: its requests replay graphs, so it is no baseline; give the trace of the eager "
            "run first and the graph's second"
        )
    _check_ranges(eager)


def _check_graph(graph: Requests) -> None:
    if not graph.replays:
        raise LaunchgapError(
            f"{graph.path}: its requests replay no graph; give the trace of the run with graphs second, or "
            "name its range with --graph-range"
        )
    _check_ranges(graph)


def _check_ranges(side: Requests) -> None:
    named = f"{side.path}: range {shown(side.selector.name)!r}"
    if side.count < 2:
        raise LaunchgapError(
            f"{named} is there once, and often the first request does what no later one does; capture several"
        )
    count = overlapping(side.attributed)
    if count:
        raise LaunchgapError(
            f"{named}: {count} of {side.count} begin before an earlier one of their thread has ended, so "
            "work would count twice; name a range that does not hold itself"
        )


def _matched(eager: Requests, graph: Requests) -> pd.DataFrame:
    """The match.

    Raises:
        LaunchgapError: replays are recorded whole, or the two have no kernel in common.
    """
    try:
        matched = match_kernels(eager.attributed, graph.attributed)
        check_related(matched, eager.path.name)
    except LaunchgapError as error:
        raise LaunchgapError(f"{graph.path}: {error}") from error
    return matched


def _facts(eager: Requests, graph: Requests, summary: str) -> dict[str, Fact]:
    return {
        "verdict": summary,
        "graph": str(graph.path),
        "range": eager.selector.name,
        "graph_range": graph.selector.name,
        "requests": eager.count,
        "graph_requests": graph.count,
    }


def _sections(matched: pd.DataFrame, escaped: pd.DataFrame) -> tuple[Section, ...]:
    table = matched.rename(columns=_SHORT)
    is_same = table["match"] == Match.SAME
    most = table[["eager_us", "graph_us"]].max(axis=1)
    # What weighs most comes first; where two weigh the same the order of the request stays.
    order = most[~is_same].sort_values(ascending=False, kind="stable").index
    return (
        Section(
            "totals",
            "Kernels by what became of them",
            match_totals(matched).rename(columns=_SHORT),
            _EACH,
            whole=True,
        ),
        Section("differences", "Not the same in the graph", table.loc[order], "", _KERNELS_LONG),
        Section(
            "escaped",
            "Beside the replay",
            _unexpected_first(escaped),
            _BESIDE,
            ("kind", "full_name", "shape"),
        ),
        Section("same", "The same in both", table[is_same], "", (*_KERNELS_LONG, "match", "reason")),
    )


def _unexpected_first(escaped: pd.DataFrame) -> pd.DataFrame:
    return escaped.sort_values("expected", key=lambda names: names != "", kind="stable")
