"""Puts together what `python -m analysis TRACE` shows: all of it, one range, or NVIDIA's reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from analysis import schema
from analysis.aggregate import Summary, summarise
from analysis.chrome_events import is_chrome_trace
from analysis.chrome_trace import read_any_trace
from analysis.commands import large, ranges
from analysis.commands.about import About, about_trace, read_about
from analysis.commands.export import readable
from analysis.commands.facts import content_facts, origin_facts, reader_findings, selection_facts
from analysis.commands.progress import Steps
from analysis.commands.reports import report_sections
from analysis.commands.sections import Fact, Section, View
from analysis.commands.select import Selection, domain_name, domain_shown, select
from analysis.commands.whole import FULL_NAME, SHARES, tip, whole_sections
from analysis.commands.words import shown
from analysis.finding import Finding
from analysis.findings import inspect
from analysis.overview import work_of
from analysis.trace import Trace
from contract import LaunchgapError

FATAL = "fatal"
"""Severity of a finding after which no number is shown unless asked for."""

_HIDDEN_KERNELS = (
    "{count} of {n} instances replayed a graph that the trace shows as a whole (graph mode): kernels inside "
    "it are unknown, and those beside it would mislead. Capture with --cuda-graph-trace=node to see them."
)
_INSTANCE_NOTE = (
    "GPU busy is the union of kernels, copies, sets and replays recorded whole (pauses in them included) on "
    "each device, the span runs from the first start to "
    "the last end, and launch_api_us is the time inside launch calls: all of what the instance launched, "
    "whenever the GPU ran it. A '-' is not in the trace, which is never zero."
)
_WITHHELD = "No numbers are shown because of what is fatal above; --force shows them all the same."
_STEPS = 3  # reading, looking for what qualifies the numbers, finding out what launched what


@dataclass(frozen=True)
class Request:
    """What is asked for: a part of the trace, a range or the whole, tables by name (none: the usual ones).

    `reports` are NVIDIA's, by name; with any of them nothing else is shown.
    """

    selection: Selection
    range_name: str | None
    tables: tuple[str, ...]
    force: bool
    full: bool = False
    reports: tuple[str, ...] = ()

    @property
    def is_summary(self) -> bool:
        """Whether a very large trace need only be summed up for this."""
        simple = self.selection.is_everything and self.range_name is None and not self.full
        return simple and not self.reports and set(self.tables) <= set(large.TABLES)


def view_trace(path: Path, request: Request) -> tuple[View, bool]:
    """The view of a trace, and whether a fatal finding keeps its numbers back.

    Raises:
        LaunchgapError: the file cannot be read or used, or the request asks for what it does not have.
    """
    # Checks and some reports look into the file again, so an export stays until all tables are made.
    with readable(path) as export, Steps(_STEPS) as steps:
        about, events = _glance(export)
        is_large = events > large.LARGE_EVENTS
        if is_large and request.is_summary:
            steps.begin(f"summing up {events:,} events of {path.name}")
            return _large_view(path, summarise(export), about, request, events)
        size = f"all {events:,} events ({large.memory_gib(events):.1f} GiB) of " if is_large else ""
        steps.begin(f"reading {size}{path.name}")
        trace = read_any_trace(export)
        steps.begin("looking for what qualifies its numbers")
        notes = large.report_findings(events) if is_large and request.reports else ()
        findings = (*reader_findings(trace), *inspect(trace), *notes)
        about = about_trace(trace) if is_chrome_trace(export) else about
        return _view(path, trace, about, findings, request, steps)


def _glance(export: Path) -> tuple[About, int]:
    """What an export says beside its events, and how many there are; a Chrome trace cannot tell quickly."""
    if is_chrome_trace(export):
        return About((), {}, {}), 0
    with schema.open_database(export) as database:
        return read_about(database), large.events(database)


def _view(
    path: Path, trace: Trace, about: About, findings: tuple[Finding, ...], request: Request, steps: Steps
) -> tuple[View, bool]:
    facts = origin_facts(trace, about)
    if _keeps_back(findings, request):
        facts |= content_facts(work_of(trace))
        return View("trace-findings", str(path), facts, findings, (), _WITHHELD), True
    steps.begin("finding what launched what")
    selected = select(trace, request.selection)
    if request.reports:
        facts |= selection_facts(request.selection)
        sections = _chosen(report_sections(selected, request.reports), (), steps)
        return View("trace-reports", str(path), facts, findings, sections), False
    work = work_of(selected)
    facts |= content_facts(work) | selection_facts(request.selection)
    if request.range_name is not None:
        facts |= {"range": request.range_name}
        sections = _chosen(_of_range(trace, selected, request), request.tables, steps)
        return View("trace-range", str(path), facts, findings, sections), False
    sections = _chosen(whole_sections(path, work, about), request.tables, steps)
    return View("trace-overview", str(path), facts, findings, sections, tip(sections)), False


def _large_view(
    path: Path, summary: Summary, about: About, request: Request, events: int
) -> tuple[View, bool]:
    findings = (*reader_findings(summary.rest), *large.findings(summary, events))
    facts: dict[str, Fact] = origin_facts(summary.rest, about) | large.facts(summary)
    if _keeps_back(findings, request):
        return View("trace-findings", str(path), facts, findings, (), _WITHHELD), True
    sections = _chosen(large.sections(summary, SHARES, FULL_NAME), request.tables)
    return View("trace-summary", str(path), facts, findings, sections), False


def _keeps_back(findings: Sequence[Finding], request: Request) -> bool:
    return any(finding.severity == FATAL for finding in findings) and not request.force


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
        Section("kernels", "Kernels per instance", found.kernels, hidden or SHARES, FULL_NAME),
    )
    return {section.name: partial(replace, section) for section in sections}


def _chosen(
    sections: Mapping[str, Callable[[], Section]], names: Sequence[str], steps: Steps | None = None
) -> tuple[Section, ...]:
    """Tables in the order they were asked for; all of them where none was."""
    for name in names:
        if name not in sections:
            raise LaunchgapError(
                f"--table {name}: not among the tables here, which are {', '.join(sections)}; --range NAME "
                "has those of one range, the command without it those of the whole trace"
            )
    wanted = list(dict.fromkeys(names)) or list(sections)
    made = []
    for position, name in enumerate(wanted):
        if steps is not None:
            steps.expect(len(wanted) if not position else 0)
            steps.begin(f"making the table {name}")
        section = sections[name]()
        made.append(replace(section, quiet=False) if names else section)
    return tuple(made)
