"""Puts together what `python -m analysis TRACE` shows: of the whole trace, or of one NVTX range."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pandas as pd

from analysis import overview, schema
from analysis.aggregate import Summary, summarise
from analysis.commands import large, ranges
from analysis.commands.about import About, read_about
from analysis.commands.export import readable
from analysis.commands.sections import Fact, Section, View
from analysis.commands.select import (
    Selection,
    devices,
    domain_name,
    domain_shown,
    processes,
    select,
    span_ns,
)
from analysis.commands.words import shown
from analysis.finding import Finding
from analysis.findings import inspect
from analysis.overview import Work, work_of
from analysis.summaries import api_summary, kernel_summary
from analysis.trace import Trace, read_trace
from contract import LaunchgapError

_PROPOSALS = "proposals"
FATAL = "fatal"
"""Severity of a finding after which no number is shown unless asked for."""

_NS_PER_S = 1e9
_FULL_NAME = ("full_name",)
_SHARES = "Times are in microseconds; the share is of the time of all rows, not of any wall time."
_HIDDEN_KERNELS = (
    "{count} of {n} instances replayed a graph that the trace shows as a whole (graph mode): kernels inside "
    "it are unknown, and those beside it would mislead. Capture with --cuda-graph-trace=node to see them."
)


_INSTANCE_NOTE = (
    "GPU busy is the union of kernels, copies and sets on each device, the span runs from the first start to "
    "the last end, and launch_api_us is the time inside launch calls: all of what the instance launched, "
    "whenever the GPU ran it. A '-' is not in the trace, which is never zero."
)
_RANGE_DETAILS = ("launching_instances", "operations", "min_us", "max_us")
_WITHHELD = "No numbers are shown because of what is fatal above; --force shows them all the same."


@dataclass(frozen=True)
class Request:
    """What is asked for: a part of the trace, a range or the whole, tables by name (none: the usual ones)."""

    selection: Selection
    range_name: str | None
    tables: tuple[str, ...]
    force: bool
    full: bool = False

    @property
    def is_summary(self) -> bool:
        """Whether a very large trace need only be summed up for this."""
        simple = self.selection.is_everything and self.range_name is None and not self.full
        return simple and set(self.tables) <= set(large.TABLES)


def view_trace(path: Path, request: Request) -> tuple[View, bool]:
    """The view of a trace, and whether a fatal finding keeps its numbers back.

    Raises:
        LaunchgapError: the file cannot be read or used, or the request asks for what it does not have.
    """
    with readable(path) as export:
        with schema.open_database(export) as database:
            about = read_about(database)
            events = large.events(database)
        if events > large.LARGE_EVENTS and request.is_summary:
            _tell(f"{path}: summing up {events:,} events")
            return _large_view(path, summarise(export), about, request, events)
        trace = read_trace(export)
    findings = (*_warnings(trace), *inspect(trace))
    if _keeps_back(findings, request):
        facts = _facts(work_of(trace), about, Selection())
        return View("trace-findings", str(path), facts, findings, (), _WITHHELD), True
    selected = select(trace, request.selection)
    work = work_of(selected)
    facts = _facts(work, about, request.selection)
    if request.range_name is not None:
        sections = _chosen(_of_range(trace, selected, request), request.tables)
        facts |= {"range": request.range_name}
        return View("trace-range", str(path), facts, findings, sections), False
    sections = _chosen(_of_whole(path, work, about), request.tables)
    return View("trace-overview", str(path), facts, findings, sections, _tip(sections)), False


def _tell(line: str) -> None:
    """One line for whoever waits at a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{shown(line, 1_000)}\n")


def _large_view(
    path: Path, summary: Summary, about: About, request: Request, events: int
) -> tuple[View, bool]:
    findings = (*_warnings(summary.rest), *large.findings(summary, events))
    facts = large.facts(summary) | {"capture_flags": about.flags}
    if _keeps_back(findings, request):
        return View("trace-findings", str(path), facts, findings, (), _WITHHELD), True
    sections = _chosen(large.sections(summary, _SHARES, _FULL_NAME), request.tables)
    return View("trace-summary", str(path), facts, findings, sections), False


def _keeps_back(findings: Sequence[Finding], request: Request) -> bool:
    return any(finding.severity == FATAL for finding in findings) and not request.force


def _warnings(trace: Trace) -> list[Finding]:
    """What the reader of the file has to say, as findings."""
    found = []
    for sentence in trace.warnings:
        what, _, rest = sentence.partition(": ")
        effect, _, remedy = rest.partition("; ")
        found.append(Finding("warning", what, 1, effect, remedy or "compare a total with `nsys stats`"))
    return found


def _facts(work: Work, about: About, selection: Selection) -> dict[str, Fact]:
    """What the trace is and how much is in it; of a selection, in the selected part."""
    trace = work.trace
    span = span_ns(trace)
    facts: dict[str, Fact] = {
        "nsys_version": trace.nsys_version,
        "export_schema": trace.export_schema,
        "capture_flags": about.flags,
        "graph_trace_mode": None if trace.graph_trace_mode is None else str(trace.graph_trace_mode),
        "gpus_of_host": trace.gpu_names,
        "devices": len(devices(trace)),
        "processes": len(processes(trace)),
        "streams": overview.stream_count(work),
        "nvtx_domains": int(trace.ranges["domain"].nunique()),
        "nvtx_ranges": len(trace.ranges),
        "api_calls": len(trace.api_calls),
        "launches": len(work.launches),
        "kernels": len(trace.kernels),
        "memcpys": len(trace.memcpys),
        "memsets": len(trace.memsets),
        **overview.graph_facts(work),
        "first_event_s": None if span is None else span[0] / _NS_PER_S,
        "last_event_s": None if span is None else span[1] / _NS_PER_S,
    }
    return facts | _selection_facts(selection)


def _selection_facts(selection: Selection) -> dict[str, Fact]:
    start_ns, end_ns = selection.between_ns or (None, None)
    told: dict[str, Fact] = {
        "only_process": selection.process,
        "only_device": selection.device,
        "only_from_s": None if start_ns is None else start_ns / _NS_PER_S,
        "only_until_s": None if end_ns is None else end_ns / _NS_PER_S,
        "only_domain": selection.domain,
    }
    return {name: value for name, value in told.items() if value is not None}


def _of_whole(path: Path, work: Work, about: About) -> dict[str, Callable[[], Section]]:
    """Tables of the whole trace, each made only if it is shown."""

    @cache
    def table() -> pd.DataFrame:
        return ranges.ranges_table(work)

    def proposals() -> pd.DataFrame:
        proposed = ranges.proposals(table())
        commands = [ranges.command_for(str(path), *key) for key in _names(proposed)]
        return proposed.assign(command=pd.Series(commands, index=proposed.index, dtype="object"))

    return {
        "devices": lambda: Section("devices", "Devices", overview.devices(work, about.gpu)),
        "processes": lambda: Section("processes", "Processes", overview.processes(work, about.process_names)),
        "streams": lambda: Section("streams", "Streams", overview.streams(work)),
        "graphs": lambda: Section("graphs", "Graph replays on the GPU", overview.graphs(work)),
        "domains": lambda: Section("domains", "NVTX domains", overview.domains(work.trace)),
        "launches": lambda: Section(
            "launches", "Launches", overview.launches(api_summary(work.trace)), _SHARES
        ),
        "kernels": lambda: Section(
            "kernels", "Kernels", overview.kernels(kernel_summary(work.trace)), _SHARES, _FULL_NAME
        ),
        "ranges": lambda: Section("ranges", "NVTX ranges", table(), long=_RANGE_DETAILS),
        _PROPOSALS: lambda: Section(
            _PROPOSALS, "Ranges worth looking at", proposals(), ranges.RANKING, ("command",)
        ),
    }


def _of_range(trace: Trace, selected: Trace, request: Request) -> dict[str, Callable[[], Section]]:
    """Tables of one range.

    Raises:
        LaunchgapError: there is no such range, or it launches nothing and that is not forced.
    """
    domain = request.selection.domain
    chosen = None if domain is None else domain_name(domain, sorted(trace.ranges["domain"].unique()))
    selector = ranges.find_range(trace, selected, str(request.range_name), chosen)
    found = ranges.range_view(selected, selector)
    if not request.force:
        ranges.require_gpu_work(selected, found, selector)
    n = len(found.instances)
    hidden = _HIDDEN_KERNELS.format(count=found.hidden, n=n) if found.hidden else ""
    title = f"{n} instances of {shown(selector.name)}, domain {domain_shown(selector.domain)}"
    sections = (
        Section("summary", title, found.summary, _INSTANCE_NOTE, whole=True),
        Section("instances", "Instance by instance", found.instances),
        Section(
            "launches", "Launches per instance", found.launches, "Means of all instances, and of all calls."
        ),
        Section("instance_launches", "Launches of each instance", found.launches_by_instance, quiet=True),
        Section("kernels", "Kernels per instance", found.kernels, hidden or _SHARES, _FULL_NAME),
    )
    return {section.name: partial(replace, section) for section in sections}


def _chosen(sections: Mapping[str, Callable[[], Section]], names: Sequence[str]) -> tuple[Section, ...]:
    """Tables in the order they were asked for; all of them where none was."""
    for name in names:
        if name not in sections:
            raise LaunchgapError(
                f"--table {name}: not among the tables here, which are {', '.join(sections)}; --range NAME "
                "has those of one range, the command without it those of the whole trace"
            )
    if not names:
        return tuple(make() for make in sections.values())
    return tuple(replace(sections[name](), quiet=False) for name in dict.fromkeys(names))


def _names(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Name and domain of each range."""
    return list(zip(table["name"].astype(str), table["domain"].astype(str), strict=True))


def _tip(sections: Sequence[Section]) -> str:
    """What to look at next, where the proposals are shown."""
    for section in sections:
        if section.name == _PROPOSALS and section.table.empty:
            return "No range repeats and launches GPU work: the tables above are all there is to see."
        if section.name == _PROPOSALS:
            return f"Next: {section.table['command'].iloc[0]}" if section.table["command"].iloc[0] else ""
    return ""
