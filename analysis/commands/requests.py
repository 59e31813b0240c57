"""The requests of one trace: its range found or proposed, its work attributed, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.chrome_trace import read_any_trace
from analysis.commands.export import readable
from analysis.commands.facts import reader_findings
from analysis.commands.progress import Steps
from analysis.commands.ranges import find_range, proposals, ranges_table
from analysis.commands.select import Selection, domain_name, select
from analysis.commands.words import shown
from analysis.finding import Finding
from analysis.findings import inspect
from analysis.ledger_findings import has_replays
from analysis.overview import work_of
from analysis.trace import Trace
from contract import NVTX_DOMAIN, LaunchgapError, RangeName, read_record

TRACE_ENDINGS = (".sqlite.gz", ".sqlite", ".nsys-rep", ".json.gz")
"""What the names of traces end with. Those of torch.profiler may also end with .json, as records do."""


@dataclass(frozen=True)
class Requests:
    """The requests of a trace. `record` is what launchgap wrote beside its own trace, None for a foreign one.

    `findings` are warnings of the reader and of the trace's own checks.
    """

    path: Path
    trace: Trace
    selector: RangeSelector
    attributed: Attributed
    findings: tuple[Finding, ...]
    record: Mapping[str, Any] | None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.attributed.requests)

    @property
    def replays(self) -> bool:
        """Whether any of them replays a graph."""
        return has_replays(self.attributed)


def read_requests(path: Path, name: str | None, domain: str | None, steps: Steps) -> Requests:
    """The requests that a range names, launchgap's own if none is named.

    Raises:
        LaunchgapError: the trace cannot be read or trusted, has no such range, or nothing runs in it; where
            none is named and launchgap's own are absent, says which ranges look like a request.
    """
    steps.begin(f"reading {path.name}")
    with readable(path) as export:
        trace = read_any_trace(export)
    steps.begin(f"finding what launched what in {path.name}")
    findings = trusted(path, trace, "account for")
    selector = request_range(trace, path, name, domain)
    attributed = attribute(trace, selector)
    if attributed.operations.empty:
        raise LaunchgapError(
            f"{path}: none of the {len(attributed.requests)} ranges {shown(selector.name)!r} launched GPU "
            f"work on its own thread; {_proposed(trace, 'these do, name one with --range: ')}"
        )
    return Requests(
        path, trace, selector, attributed, (*findings, *_overlaps(attributed)), record_beside(path)
    )


def overlapping(attributed: Attributed) -> int:
    """Requests that begin before an earlier one of their thread has ended: their launches count in both."""
    ranges = attributed.requests.sort_values(["thread", "start_ns"], kind="stable")
    before = ranges.groupby("thread")["end_ns"].cummax().groupby(ranges["thread"]).shift(1)
    return int((ranges["start_ns"] < before).sum())


def about_side(findings: tuple[Finding, ...], title: str) -> tuple[Finding, ...]:
    """Findings that say which of two traces they are about."""
    return tuple(replace(finding, what=f"{title}: {finding.what}") for finding in findings)


def check_same_case(one: Requests, other: Requests) -> Iterator[Finding]:
    """Compare what launchgap recorded beside both traces; foreign traces tell nothing.

    Raises:
        LaunchgapError: they are of different models.
    """
    if one.record is None or other.record is None:
        return
    ours, theirs = (dict(side.record["case"]) for side in (one, other) if side.record is not None)
    if ours["model"] != theirs["model"]:
        raise LaunchgapError(
            f"{other.path}: of {theirs['model']}, but {one.path.name} is of {ours['model']}; give two "
            "traces of one model"
        )
    if ours["name"] != theirs["name"]:
        yield Finding(
            "warning",
            f"{one.path.name} is of {ours['name']}, {other.path.name} of {theirs['name']}",
            1,
            "their work differs for that reason as well",
            "compare two traces of one case",
        )


def trusted(path: Path, trace: Trace, purpose: str) -> tuple[Finding, ...]:
    """Warnings of the reader and about the trace.

    Raises:
        LaunchgapError: a finding is fatal, or nothing ran on a GPU.
    """
    if not trace.has_gpu_work:
        raise LaunchgapError(
            f"{path}: shows no GPU work, so there is nothing to {purpose}; "
            "capture on a GPU with `-t cuda,nvtx`"
        )
    found = inspect(trace)
    fatal = [finding for finding in found if finding.severity == "fatal"]
    if fatal:
        raise LaunchgapError(f"{path}: {fatal[0].sentence}")
    return (*reader_findings(trace), *(finding for finding in found if finding.severity == "warning"))


def request_range(trace: Trace, path: Path, name: str | None, domain: str | None) -> RangeSelector:
    """The range that is asked for, launchgap's own if none is.

    Raises:
        LaunchgapError: there is none, or several domains have it.
    """
    request = RangeName.REQUEST.value
    if name is None and ((trace.ranges["name"] == request) & (trace.ranges["domain"] == NVTX_DOMAIN)).any():
        name, domain = request, NVTX_DOMAIN if domain is None else domain
    elif name is None:
        told = _proposed(trace, "name the range of one with --range: ")
        raise LaunchgapError(f"{path}: has no requests of launchgap; {told}")
    within = select(trace, Selection(domain=domain))
    chosen = None if domain is None else domain_name(domain, sorted(trace.ranges["domain"].unique()))
    return find_range(trace, within, name, chosen)


def _proposed(trace: Trace, lead: str) -> str:
    better = proposals(ranges_table(work_of(trace)))["name"].drop_duplicates()
    names = ", ".join(repr(shown(str(each))) for each in better)
    return lead + names if names else "no range of it repeats and launches GPU work"


def _overlaps(attributed: Attributed) -> Iterator[Finding]:
    count, n = overlapping(attributed), len(attributed.requests)
    if count:
        yield Finding(
            "warning",
            f"{count} of {n} ranges begin before an earlier one of their thread has ended",
            count,
            "work in several ranges counts in each of them",
            "name a range that does not hold itself",
        )


def record_beside(path: Path) -> Mapping[str, Any] | None:
    """The record beside launchgap's own trace; None for a foreign one."""
    for ending in TRACE_ENDINGS:
        beside = path.with_name(path.name.removesuffix(ending) + ".json")
        if path.name.endswith(ending) and beside.is_file():
            try:
                return read_record(beside, "trace")
            except LaunchgapError:
                return None  # of something else, as any foreign trace may have one beside it
    return None
