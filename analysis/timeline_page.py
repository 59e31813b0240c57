"""What the report shows of timelines: words, tables, the static picture, and the data for the browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.kernel_names import shorten_all
from analysis.report_cells import Table, columns, number_cell, signed, text_cell
from analysis.timeline import GapKind, Operation, Timeline, WorkKind
from analysis.timeline_json import timeline_fields
from analysis.timeline_svg import Picture, draw, strategy_class
from analysis.waterfall import busy_is_span
from contract import WITHOUT_GRAPH, TraceMode

LONGEST = 15
"""Operations in the table of the longest."""

_NS_PER_US, _NS_PER_MS = 1_000.0, 1_000_000.0
_NODE_NOTE = (
    "{names}: traced in node mode, which records each node of the graph by itself. That lengthens the launch "
    "call and the gaps between nodes: a replay without it is shorter."
)
_AS_TRACED = (
    "The request with the median range of each trace, on one scale; times as traced, so no latencies."
)


@dataclass(frozen=True)
class TimelinePanel:
    """Timelines as `timeline.html.j2` wants them.

    Attributes:
        prefix: what the identifiers on the page begin with; another one for each panel.
        strategies: name and CSS class of each timeline.
        summary: what the picture shows, in a sentence for each timeline.
        picture: the static drawing, for paper and for pages without scripts.
        data: JSON for `timeline.js`.
        notes: what to know before reading it.
        longest: the longest operations of each timeline.
    """

    prefix: str
    strategies: tuple[tuple[str, str], ...]
    summary: str
    picture: Picture
    data: str
    notes: tuple[str, ...]
    longest: tuple[Table, ...]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Class and words of each kind of bar."""
        kernels = tuple((style, f"kernel, {name}") for name, style in self.strategies)
        return (
            *kernels,
            ("tl-copy", "copy or fill"),
            ("tl-launch", "launch call"),
            ("tl-wait", "waiting call"),
            ("tl-call", "other call"),
            ("tl-bound", "launch-bound gap"),
            ("tl-device", "device gap"),
        )


def timeline_panel(timelines: Sequence[Timeline], prefix: str, source: str = "") -> TimelinePanel:
    """The panel of a case's timelines, eager's first; `source` is the file that the numbers came from."""
    headings = [heading(one) for one in timelines]
    return TimelinePanel(
        prefix=prefix,
        strategies=tuple((one.strategy, strategy_class(one.strategy)) for one in timelines),
        summary="; ".join(map(sentence, timelines)) + ".",
        picture=draw(timelines, headings),
        data=browser_data(timelines, headings),
        notes=notes(timelines),
        longest=tuple(longest_table(one, source) for one in timelines),
    )


def sentence(timeline: Timeline) -> str:
    """What a timeline shows: its kernels, its range, how busy the GPU was, and its gaps by kind."""
    told = [f"{timeline.strategy}: {_worked(timeline)} in {time_words(timeline.range_ns)}"]
    told.append(f"{_busy_name(timeline)} {busy_percent(timeline)}")
    for kind in GapKind:
        found = [gap.duration_ns for gap in timeline.gaps if gap.kind is kind]
        if found:
            told.append(f"{len(found)} {kind} gap{_s(len(found))} ({time_words(sum(found))})")
    return ", ".join(told)


def heading(timeline: Timeline) -> str:
    """What stands above a timeline, beside its name."""
    busy = f"{_busy_name(timeline)} {busy_percent(timeline)}"
    return f"{time_words(timeline.range_ns)} · {_worked(timeline)} · {busy}"


def _busy_name(timeline: Timeline) -> str:
    """What the busy time of a timeline is: graph mode draws a replay whole, pauses included."""
    return "replay span" if busy_is_span(timeline.strategy, timeline.trace_mode) else "GPU busy"


def busy_percent(timeline: Timeline) -> str:
    """Busy in percent of the range, as traced."""
    return f"{timeline.busy_ns / max(timeline.range_ns, 1) * 100:.0f} %"


def time_words(duration_ns: int) -> str:
    """A time with three digits or so, in the unit that suits it."""
    if duration_ns >= _NS_PER_MS:
        return f"{signed(duration_ns / _NS_PER_MS, 2 if duration_ns < 100 * _NS_PER_MS else 0)} ms"
    decimals = 1 if duration_ns < 100 * _NS_PER_US else 0
    return f"{signed(duration_ns / _NS_PER_US, decimals)} µs"


def notes(timelines: Sequence[Timeline]) -> tuple[str, ...]:
    """What to know before reading: that times are as traced, what node mode does, what is not drawn."""
    told = [_AS_TRACED]
    nodes = [
        one.strategy
        for one in timelines
        if one.trace_mode is TraceMode.NODE and one.strategy not in WITHOUT_GRAPH and one.tracer == "nsys"
    ]
    if nodes:
        told.append(_NODE_NOTE.format(names=", ".join(nodes)))
    for one in timelines:
        if one.undrawn:
            what = f"{one.undrawn} operation{_s(one.undrawn)}"
            told.append(f"{one.strategy}: {what} without a time on the GPU cannot be drawn.")
    return tuple(told)


def longest_table(timeline: Timeline, source: str = "") -> Table:
    """The longest operations, longest first; what is on the canvas for those who cannot see it."""
    short = short_names(timeline.operations)
    chosen = sorted(timeline.operations, key=lambda one: (-one.duration_ns, one.start_ns))[:LONGEST]
    rows = []
    for one in chosen:
        call = timeline.calls[one.call] if one.call >= 0 else None
        rows.append(
            (
                text_cell(short[one.name], title=one.name, code=one.kind is WorkKind.KERNEL),
                number_cell(one.start_ns / _NS_PER_US, 1),
                number_cell(one.duration_ns / _NS_PER_US, 1),
                text_cell(call.name if call else "–", code=call is not None),
                number_cell(call.start_ns / _NS_PER_US if call else None, 1),
            )
        )
    what = "operation" if len(chosen) == 1 else f"{len(chosen)} operations"
    return Table(
        f"{timeline.strategy}: the longest {what} of {len(timeline.operations)}.",
        columns(":operation", "start, µs", "duration, µs", ":launched by", "call's start, µs"),
        tuple(rows),
        source=source,
    )


def short_names(operations: Sequence[Operation]) -> dict[str, str]:
    """Names that fit into a cell or a bar, by full name; those of copies and fills are short already."""
    kernels = shorten_all(one.name for one in operations if one.kind is WorkKind.KERNEL)
    return {one.name: kernels.get(one.name, one.name) for one in operations}


def browser_data(timelines: Sequence[Timeline], headings: Sequence[str]) -> str:
    """JSON for `timeline.js`: the record's fields, with short names and headings; ASCII."""
    found = []
    for one, text in zip(timelines, headings, strict=True):
        fields, short = timeline_fields(one), short_names(one.operations)
        labels = [short[name] for name, _ in fields["operation_names"]]
        found.append(fields | {"labels": labels, "heading": text, "style": strategy_class(one.strategy)})
    return json.dumps(found, separators=(",", ":"))


def _worked(timeline: Timeline) -> str:
    kernels, replays = timeline.count(WorkKind.KERNEL), timeline.count(WorkKind.GRAPH)
    if replays and not kernels:
        return f"{replays} replay{_s(replays)}"
    return f"{signed(kernels, 0)} kernel{_s(kernels)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
