"""Puts together what `python -m analysis ledger` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.commands.progress import Steps
from analysis.commands.requests import Requests, about_side, check_same_case, read_requests
from analysis.commands.sections import Fact, Section, View
from analysis.commands.select import domain_shown
from analysis.commands.words import shown
from analysis.finding import Finding
from analysis.host_ledger import HOST_PARTS, host_ledger
from analysis.ledger import GPU_PARTS, gpu_ledger, gpu_ledger_by_device, mean_ledger
from analysis.ledger_findings import ledger_findings, no_floor
from analysis.overview import process_id
from analysis.tracers import tracer_of
from analysis.waterfall import BUSY_IS_SPAN, Picture, Waterfall, floor_us_of, median_request
from contract import LaunchgapError, TraceMode, read_record

_NS_PER_US = 1_000.0
_SUM = "range"
_ADDS_UP = (
    "The last row is the range itself. Means, totals and the parts of the median request add up to it; "
    "medians need not."
)
_SPAN = f"{BUSY_IS_SPAN}, so compare it with no eager's."
_GPU_LONG = ("start_s", "launch_bound_gaps", "device_gaps", "operations", "outside_ns", "timed")


@dataclass(frozen=True)
class Request:
    """What is asked for; see the command's options."""

    range_name: str | None
    domain: str | None
    graph: Path | None
    graph_range: str | None
    latency: Path | None


@dataclass(frozen=True)
class Ledgers:
    """Both ledgers of a trace's requests; `median` is the number of the request whose range is the median."""

    gpu: pd.DataFrame
    host: pd.DataFrame
    median: int

    @property
    def exact(self) -> int:
        """Ledgers, of both kinds, whose parts add up to their range to the nanosecond."""
        pairs = ((self.gpu, GPU_PARTS), (self.host, HOST_PARTS))
        return sum(int((table[list(parts)].sum(axis=1) == table["range_ns"]).sum()) for table, parts in pairs)

    def median_us(self, column: str) -> float:
        """A column in nanoseconds of the median request's GPU ledger, in microseconds."""
        return float(self.gpu[column].to_numpy(dtype=np.int64)[self.median]) / _NS_PER_US


def ledger_view(path: Path, request: Request) -> tuple[View, Picture]:
    """The view of a trace's ledgers, and what a figure of them shows.

    Raises:
        LaunchgapError: a file cannot be read or used, has no such requests, or is not what it is given for.
    """
    latency = None if request.latency is None else read_record(request.latency, "latency")
    with Steps(3 if request.graph is None else 5) as steps:
        one = read_requests(path, request.range_name, request.domain, steps)
        other = _graph_side(one, request, steps)
        steps.begin("adding up")
        ledgers = ledgers_of(one)
        beside = None if other is None else ledgers_of(other)
        sections = [*_sections(one, ledgers, ""), *_device_section(one)]
    _check_case(one, request.latency, latency)
    findings = [*_findings(one, ledgers)]
    floor_us = floor_us_of(latency)
    if latency is not None and floor_us is None:
        findings.append(no_floor(request.latency))
    if other is not None and beside is not None:
        about = _findings(other, beside)
        findings = [*about_side(tuple(findings), "eager"), *about_side(about, "graph")]
        findings += check_same_case(one, other)
        compared = _compared(ledgers, beside, floor_us, _is_span(other))
        sections = [compared, *sections, *_sections(other, beside, "graph ")]
    facts = _facts(one, ledgers, floor_us) | ({} if other is None else _graph_facts(other, beside))
    sides = [(one, ledgers), *([] if other is None or beside is None else [(other, beside)])]
    picture = _picture(sides, floor_us)
    return View("trace-ledger", str(path), facts, tuple(findings), tuple(sections)), picture


def ledgers_of(requests: Requests) -> Ledgers:
    """Both ledgers of the requests, each with the start of its range."""
    gpu = gpu_ledger(requests.attributed)
    host = host_ledger(requests.trace, requests.selector)
    start_s = requests.attributed.requests["start_ns"].to_numpy() / 1e9
    for table in (gpu, host):
        table.insert(1, "start_s", start_s)
    return Ledgers(gpu, host, median_request(gpu["range_ns"].tolist()))


def pooled(ledger: pd.DataFrame, parts: Sequence[str], median: int) -> pd.DataFrame:
    """A ledger pooled over its requests: a row for each part, and one for the range, which they add up to."""
    table = mean_ledger(ledger, parts)
    columns = [*parts, "range_ns"]
    ranges = ledger["range_ns"]
    whole = {
        "part": _SUM,
        "total_ns": int(ranges.sum()),
        "us_per_request": float(ranges.mean()) / _NS_PER_US,
        "share_percent": float(table["share_percent"].sum()),
    }
    table = pd.concat([table, pd.DataFrame([whole])], ignore_index=True)
    table = table.rename(columns={"us_per_request": "mean_us"})
    table.insert(1, "median_request_us", ledger.loc[median, columns].to_numpy(np.float64) / _NS_PER_US)
    table.insert(1, "median_us", ledger[columns].median().to_numpy(np.float64) / _NS_PER_US)
    return table[["part", "median_us", "mean_us", "median_request_us", "share_percent", "total_ns"]]


def _graph_side(one: Requests, request: Request, steps: Steps) -> Requests | None:
    if request.graph is None:
        return None
    if one.replays:
        raise LaunchgapError(
            f"{one.path}: it replays graphs, so it is not what --graph is to be compared with; give the "
            "trace of the eager run"
        )
    other = read_requests(request.graph, request.graph_range or request.range_name, request.domain, steps)
    if not other.replays:
        raise LaunchgapError(f"{other.path}: its requests replay no graph; give --graph the graph's trace")
    return other


def _findings(requests: Requests, ledgers: Ledgers) -> tuple[Finding, ...]:
    return (*requests.findings, *ledger_findings(requests.trace, requests.attributed, ledgers.gpu))


def _sections(requests: Requests, ledgers: Ledgers, lead: str) -> Iterator[Section]:
    """Tables of one trace; `lead` is "graph " for those of the one beside it."""
    key, of = lead.replace(" ", "_"), " of the graph" if lead else ""
    named = f"{requests.count} requests, range {shown(requests.selector.name)}"
    gpu, host = (
        pooled(table, parts, ledgers.median)
        for table, parts in ((ledgers.gpu, GPU_PARTS), (ledgers.host, HOST_PARTS))
    )
    note = f"{_ADDS_UP} {_SPAN}" if _is_span(requests) else _ADDS_UP
    yield Section(f"{key}gpu", f"GPU ledger{of}: {named}", gpu, note, whole=True)
    yield Section(f"{key}host", f"Host ledger{of}: {named}", host, _ADDS_UP, whole=True)
    yield Section(f"{key}gpu_requests", f"GPU ledger of each {lead}request", ledgers.gpu, long=_GPU_LONG)
    calls = tuple(str(name) for name in ledgers.host if str(name).endswith("_calls"))
    title = f"Host ledger of each {lead}request"
    yield Section(f"{key}host_requests", title, ledgers.host, long=("start_s", *calls))


def _device_section(requests: Requests) -> Iterator[Section]:
    """Where several devices work, the ledger of each by itself."""
    ledger = gpu_ledger_by_device(requests.attributed)
    tables = []
    for _, rows in ledger.groupby(["process", "device"], sort=True):
        table = mean_ledger(rows).rename(columns={"us_per_request": "mean_us"})
        table.insert(0, "device", int(rows["device"].iloc[0]))
        table.insert(0, "process", process_id(int(rows["process"].iloc[0])))
        tables.append(table)
    if len(tables) > 1:
        note = "The range from each device's side: each adds up to it by itself, not with the others."
        yield Section("gpu_devices", "GPU ledger of each device", pd.concat(tables), note, whole=True)


def _compared(eager: Ledgers, graph: Ledgers, floor_us: float | None, is_span: bool) -> Section:
    """The median request of both sides, part by part; `is_span`: busy of the graph is its replay span."""
    rows: list[dict[str, object]] = []
    for name in (*GPU_PARTS, "range_ns"):
        before, after = (side.median_us(name) for side in (eager, graph))
        rows.append(
            {
                "part": name.removesuffix("_ns"),
                "eager_us": before,
                "graph_us": after,
                "difference_us": after - before,
            }
        )
    if floor_us is not None:
        rows.append({"part": "floor", "eager_us": np.nan, "graph_us": floor_us, "difference_us": np.nan})
    title = "Eager's median request and the graph's"
    note = "The request with the median range of each trace, as traced; floor: the time to read the weights."
    note += f" {_SPAN}" if is_span else ""
    return Section("compared", title, pd.DataFrame(rows), note, whole=True)


def _is_span(requests: Requests) -> bool:
    """Whether busy is that of replays recorded whole, pauses between their nodes included."""
    return requests.replays and requests.trace.graph_trace_mode is TraceMode.GRAPH


def _facts(requests: Requests, ledgers: Ledgers, floor_us: float | None) -> dict[str, Fact]:
    mode = requests.trace.graph_trace_mode
    told: dict[str, Fact] = {
        "tracer": tracer_of(requests.trace).name,
        "graph_trace_mode": None if mode is None else str(mode),
        "range": requests.selector.name,
        "domain": domain_shown(requests.selector.domain),
        "requests": requests.count,
        "median_request": ledgers.median,
        "adds_up": _adds_up(ledgers),
    }
    return told | ({} if floor_us is None else {"floor_us": floor_us})


def _graph_facts(requests: Requests, ledgers: Ledgers | None) -> dict[str, Fact]:
    if ledgers is None:
        return {}
    return {
        "graph": str(requests.path),
        "graph_range": requests.selector.name,
        "graph_requests": requests.count,
        "graph_median_request": ledgers.median,
        "graph_adds_up": _adds_up(ledgers),
    }


def _adds_up(ledgers: Ledgers) -> str:
    return f"{ledgers.exact} of {len(ledgers.gpu) + len(ledgers.host)} ledgers, to the nanosecond"


def _check_case(one: Requests, path: Path | None, latency: Mapping[str, Any] | None) -> None:
    if one.record is None or latency is None:
        return
    ours, theirs = one.record["case"]["name"], latency["case"]["name"]
    if ours != theirs:
        raise LaunchgapError(
            f"{path}: of {theirs}, but {one.path.name} is of {ours}; give the latency record of the same case"
        )


def _picture(sides: Sequence[tuple[Requests, Ledgers]], floor_us: float | None) -> Picture:
    one, _ = sides[0]
    title = one.path.name if one.record is None else str(one.record["case"]["name"])
    names = ("graph" if one.replays else "eager", "graph")
    return Picture(
        title=shown(f"Where the time of the median request went: {title}", 200),
        waterfalls=tuple(
            Waterfall(name, tuple(found.median_us(part) for part in GPU_PARTS), _is_span(side))
            for name, (side, found) in zip(names, sides, strict=False)
        ),
        floor_us=floor_us,
    )
