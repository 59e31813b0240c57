"""Cuts a trace down to a process, a device or a span of time, and complains if that leaves nothing.

What counts is the host: a launch call is in or out, and the GPU work that it started goes with it, wherever
on the time line the GPU ran it. So no kernel loses its launch, and no range a part of its work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pandas as pd

from analysis.attribute import NO_CALL, call_of, has_time
from analysis.commands.words import shown
from analysis.launches import launch_calls
from analysis.overview import OPERATIONS, process_id
from analysis.schema import HOST_DEVICE
from analysis.trace import DEFAULT_DOMAIN, Trace
from contract import LaunchgapError

DEFAULT_DOMAIN_SHOWN = "(default)"
"""How tables call the NVTX domain that has no name."""

_OPERATIONS = tuple(OPERATIONS.values())
_UNITS_NS = {None: 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1}
_TIME = re.compile(r"([+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})) ?(s|ms|us|µs|ns)?", re.ASCII)
_LARGEST_NS = 2**63 - 1


@dataclass(frozen=True)
class Selection:
    """The part of a trace to look at; None: all of it.

    `process` is the system's process id, `device` the CUDA device number, `between_ns` start and end in
    nanoseconds since the session's start. `domain` names one NVTX domain, '' the default one.
    """

    process: int | None = None
    device: int | None = None
    between_ns: tuple[int, int] | None = None
    domain: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing at all is left out."""
        return self == Selection()


def parse_time_ns(text: str) -> int:
    """Nanoseconds in a time such as `1.5` (seconds), `250ms`, `-3us` or `1200ns`.

    Raises:
        ValueError: it is no such time, or none that a trace can hold.
    """
    match = _TIME.fullmatch(text.strip())
    # Not by way of a float: nanoseconds of a long session have more digits than one holds.
    time_ns = int(Decimal(match[1]) * _UNITS_NS[match[2]]) if match else _LARGEST_NS + 1
    if abs(time_ns) > _LARGEST_NS:
        raise ValueError(
            f"{text.strip()[:40]!r} is no time; give seconds since the session's start, as 1.5, or a number "
            "with its unit, as 250ms, 40us or 1200ns"
        )
    return time_ns


def select(trace: Trace, selection: Selection) -> Trace:
    """The selected part of a trace.

    Raises:
        LaunchgapError: the trace has no such process, device or domain, or nothing in that span of time.
    """
    if selection.process is not None:
        trace = _of_process(trace, selection.process)
    if selection.between_ns is not None:
        trace = _between(trace, *selection.between_ns)
    if selection.device is not None:
        trace = _on_device(trace, selection.device)
    if selection.domain is not None:
        trace = _in_domain(trace, selection.domain)
    return trace if selection.is_everything else replace(trace, device_count=len(devices(trace)))


def devices(trace: Trace) -> list[int]:
    """Numbers of the devices that ran anything."""
    found = {int(key) for table in _operations(trace) for key in table["device"].unique()}
    return sorted(found - {HOST_DEVICE})


def processes(trace: Trace) -> list[int]:
    """System ids of the processes that ran GPU work, called CUDA or opened a range."""
    tables = (*_operations(trace), trace.api_calls, trace.ranges)
    return sorted({process_id(int(key)) for table in tables for key in table["process"].unique()})


def span_ns(trace: Trace) -> tuple[int, int] | None:
    """Start of the trace's first event and end of its last; None for a trace without events."""
    timed = [*(table[has_time(table)] for table in _operations(trace)), trace.api_calls, trace.ranges]
    starts = [int(table["start_ns"].min()) for table in timed if len(table)]
    ends = [int(table["end_ns"].max()) for table in timed if table["end_ns"].notna().any()]
    return (min(starts), max(starts + ends)) if starts else None


def _operations(trace: Trace) -> list[pd.DataFrame]:
    return [getattr(trace, name) for name in _OPERATIONS]


def _of_process(trace: Trace, process: int) -> Trace:
    known = processes(trace)
    if process not in known:
        raise LaunchgapError(
            f"--process {process}: not in the trace, {_listed('which has', known, 'no process')}"
        )
    names = (*_OPERATIONS, "api_calls", "ranges")
    tables = {name: getattr(trace, name) for name in names}
    return replace(trace, **{n: t[(t["process"] // 2**24) % 2**24 == process] for n, t in tables.items()})


def _on_device(trace: Trace, device: int) -> Trace:
    known = devices(trace)
    if device not in known:
        raise LaunchgapError(
            f"--device {device}: ran nothing here, {_listed('GPU work is on', known, 'nor did any other')}"
        )
    calls = {name: call_of(getattr(trace, name), trace.api_calls) for name in _OPERATIONS}
    kept = {name: getattr(trace, name)["device"] == device for name in _OPERATIONS}
    working = {int(call) for name in _OPERATIONS for call in pd.unique(calls[name][kept[name].to_numpy()])}
    launches = launch_calls(trace.api_calls).index
    elsewhere = launches[~launches.isin(list(working))]
    tables = {name: getattr(trace, name)[kept[name]] for name in _OPERATIONS}
    return replace(trace, **tables, api_calls=trace.api_calls.drop(index=elsewhere))


def _between(trace: Trace, start_ns: int, end_ns: int) -> Trace:
    def inside(table: pd.DataFrame) -> pd.Series[bool]:
        return (table["start_ns"] >= start_ns) & (table["end_ns"] <= end_ns).fillna(False)

    calls = trace.api_calls[inside(trace.api_calls)]
    tables = {}
    for name in _OPERATIONS:
        table = getattr(trace, name)
        call = call_of(table, trace.api_calls)
        # Work whose launch was not recorded has nothing but its own time.
        tables[name] = table[(inside(table) & (call == NO_CALL)) | pd.Index(call).isin(calls.index)]
    ranges = trace.ranges[inside(trace.ranges)]
    if calls.empty and ranges.empty and all(table.empty for table in tables.values()):
        span = span_ns(trace)
        recorded = (
            f"the trace goes from {seconds(span[0])} to {seconds(span[1])} s" if span else "it is empty"
        )
        raise LaunchgapError(
            f"--between {seconds(start_ns)} {seconds(end_ns)}: nothing lies in these seconds; {recorded}"
        )
    return replace(trace, **tables, api_calls=calls, ranges=ranges)


def seconds(time_ns: int) -> str:
    """Nanoseconds as seconds, exactly."""
    return f"{Decimal(time_ns).scaleb(-9).normalize():f}"


def domain_name(given: str, domains: Sequence[str]) -> str:
    """The domain that `--domain` means: '' may also be written as the tables show it."""
    is_shown_name = given == DEFAULT_DOMAIN_SHOWN and given not in domains
    return DEFAULT_DOMAIN if is_shown_name else given


def domain_shown(domain: str) -> str:
    """A domain's name in a sentence or a table."""
    return shown(domain) or DEFAULT_DOMAIN_SHOWN


def _in_domain(trace: Trace, given: str) -> Trace:
    known = sorted(trace.ranges["domain"].unique())
    domain = domain_name(given, known)
    if domain not in known:
        listed = _listed("which has", [domain_shown(name) for name in known], "nor is any other NVTX domain")
        raise LaunchgapError(f"--domain {shown(given)!r}: not in the trace, {listed}")
    return replace(trace, ranges=trace.ranges[trace.ranges["domain"] == domain])


def _listed(lead: str, known: Sequence[object], nothing: str) -> str:
    if not known:
        return nothing
    names = ", ".join(map(str, known[:12])) + (", ..." if len(known) > 12 else "")
    return f"{lead} {names}; give one of these"
