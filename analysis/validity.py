"""Whether a trace of launchgap's own can be trusted: what makes it useless, what its numbers lack.

What any trace must hold is found by `analysis.findings`; here it is asked for what the file name and the
record beside a trace promise, request by request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, RangeSelector, count_by_request, hidden_requests
from analysis.finding import Finding, one_line
from analysis.findings import inspect, nsys_findings, recording_findings
from analysis.launches import LaunchKind
from analysis.trace import DEFAULT_DOMAIN, Trace
from analysis.tracers import NSYS, Tracer, tracer_of
from contract import TraceMode

__all__ = ["Expectation", "Finding", "Validity", "check", "inspect"]


_FEWEST_TO_COMPARE = 3
"""Requests: what two of them lack at the same place may be chance."""


@dataclass(frozen=True)
class Expectation:
    """What the file name and the record beside a trace promise. `requests` is None without a record."""

    trace_mode: TraceMode
    requests: int | None
    simulated: bool
    selector: RangeSelector


@dataclass(frozen=True)
class Validity:
    """`error` makes the trace useless; `findings` qualify its numbers. Each is one line."""

    error: str | None
    findings: tuple[str, ...]


def check(trace: Trace, attributed: Attributed, expected: Expectation) -> Validity:
    """Judge a trace that was read and attributed. Notes, which leave the numbers alone, are left out."""
    error = _error(trace, attributed, expected)
    if error is not None:
        said = [finding for finding in nsys_findings(trace) if finding.severity != "note"]
        return Validity(one_line(error), tuple(finding.sentence for finding in said))
    found = list(_request_findings(attributed, expected))
    if not expected.simulated:
        found += _mode_findings(trace, attributed, expected)
        found += _launch_findings(attributed, tracer_of(trace))
        found += _operation_findings(trace, attributed)
        found += _varying(attributed)
    found += recording_findings(trace)
    fatal = [finding.sentence for finding in found if finding.severity == "fatal"]
    warnings = [finding.sentence for finding in found if finding.severity == "warning"]
    return Validity("; ".join(fatal) or None, tuple(warnings))


def _error(trace: Trace, attributed: Attributed, expected: Expectation) -> str | None:
    if not expected.simulated and not trace.has_gpu_work:
        return _why_no_gpu_work(trace)
    if attributed.requests.empty:
        return _why_no_requests(trace, expected.selector)
    recorded = trace.graph_trace_mode
    if not expected.simulated and recorded is not None and recorded is not expected.trace_mode:
        return (
            f"recorded in {recorded} mode, but filed as {expected.trace_mode} mode, so its counts would be "
            f"taken for another's; capture it again with --trace-mode {expected.trace_mode}"
        )
    if not expected.simulated and attributed.operations.empty:
        return (
            f"none of the {len(attributed.requests)} requests launched anything, though the GPU ran "
            f"{len(trace.kernels)} kernels: they were launched from another thread than the ranges are on; "
            "put the ranges around the launches"
        )
    return None


def _why_no_gpu_work(trace: Trace) -> str:
    tracer = tracer_of(trace)
    if trace.api_calls.empty:
        return (
            "no CUDA activity recorded, so there is nothing to count: "
            f"{tracer.record_again}; {tracer.see_that}"
        )
    return (
        f"no kernels recorded, though {len(trace.api_calls)} CUDA calls were: {tracer.why_no_gpu_work}; "
        f"close other profilers {tracer.rivals}, install a newer {tracer.newer}, {tracer.record_again}"
    )


def _why_no_requests(trace: Trace, selector: RangeSelector) -> str:
    own = trace.ranges[trace.ranges["domain"] == selector.domain]
    if len(own):
        names = ", ".join(sorted(set(own["name"]))[:5])
        return (
            f"no complete range {selector.name!r} among its ranges ({names}): the capture ended before the "
            "first request did; capture again with a longer time-out"
        )
    if selector.domain == DEFAULT_DOMAIN:
        return f"no range {selector.name!r} in the default domain; name another range"
    seen = f"{len(trace.kernels)} kernels but " if trace.has_gpu_work else ""
    lead = f"{seen}no {selector.domain} ranges, so no request can be told from another: "
    if tracer_of(trace) is not NSYS:
        return lead + tracer_of(trace).add_ranges
    version = f" (recorded by {trace.nsys_version})" if trace.nsys_version else ""
    return (
        f"{lead}nvtx 0.2.12 and newer record nothing under nsys older than 2025{version}; run `pip "
        "install 'nvtx<0.2.12'` and capture again"
    )


def _request_findings(attributed: Attributed, expected: Expectation) -> Iterator[Finding]:
    seen = len(attributed.requests)
    if expected.requests is None:
        yield _warning(
            "no record beside the trace",
            0,
            "how many requests it should hold is unchecked",
            "keep both together",
        )
    elif seen < expected.requests:
        yield _warning(
            f"{seen} of {expected.requests} requests are in the trace",
            expected.requests - seen,
            f"the capture ended early, and means are over {seen}",
            "capture again with a longer time-out",
        )
    elif seen > expected.requests:
        yield _warning(
            f"{seen} request ranges, but the record tells of {expected.requests}",
            seen - expected.requests,
            f"means are over all {seen}",
            "capture again so that both are of one run",
        )


def _mode_findings(trace: Trace, attributed: Attributed, expected: Expectation) -> Iterator[Finding]:
    graphs = int((attributed.launches["kind"] == LaunchKind.GRAPH).sum())
    if trace.graph_trace_mode is None and graphs:
        yield _warning(
            "the trace does not say how it recorded graphs",
            graphs,
            f"taken for {expected.trace_mode} mode by its file name",
            "nsys 2023 and newer say it",
        )


def _launch_findings(attributed: Attributed, tracer: Tracer) -> Iterator[Finding]:
    launches = attributed.launches
    silent = launches[~launches["answered"]]
    of_graphs = int((silent["kind"] == LaunchKind.GRAPH).sum())
    graphs = int((launches["kind"] == LaunchKind.GRAPH).sum())
    if of_graphs:
        yield _warning(
            f"{of_graphs} of {graphs} graph launches show no GPU work",
            of_graphs,
            "GPU times of their requests are left empty",
            tracer.find_replays,
        )
    idle = int(_idle(attributed).sum())
    if idle:
        yield _warning(
            f"{idle} of {len(launches) - graphs} launches show no GPU operation, the same fills of a request",
            idle,
            "most likely of no bytes, which start nothing; they are counted as launches",
            "compare with a graph's node-mode trace, where they leave no node",
        )
    lost = len(silent) - of_graphs - idle
    if lost:
        yield _warning(
            f"{lost} of {len(launches) - graphs} launches show no GPU operation",
            lost,
            "GPU counts and times may be too low: records were dropped, or calls failed or had nothing to do",
            f"trace fewer requests or use a newer {tracer.newer}",
        )
    for name, count in attributed.launched_by_others.items():
        yield _warning(
            f"{count} GPU operations came from {name}, which is not known as a launch",
            count,
            "they are counted, the call's time is not",
            "name the call to launchgap's authors",
        )


def _idle(attributed: Attributed) -> pd.Series[bool]:
    """Which fills had nothing to do, as those of no bytes that cuBLAS asks for.

    They show nothing on the GPU as the n-th fill of every request, while other fills do. Records that were
    dropped are missing here and there, so of one or two requests nothing is said.
    """
    launches, requests = attributed.launches, len(attributed.requests)
    idle = pd.Series(False, index=launches.index)
    fills = launches[launches["kind"] == LaunchKind.MEMSET].sort_values("start_ns", kind="stable")
    if requests >= _FEWEST_TO_COMPARE and fills["answered"].any():
        place = fills.groupby("request").cumcount()
        idle[fills.index] = (~fills["answered"]).groupby(place).transform("sum") == requests
    return idle


def _operation_findings(trace: Trace, attributed: Attributed) -> Iterator[Finding]:
    if attributed.unlaunched:
        yield _warning(
            f"{attributed.unlaunched} GPU operations have no launch call in the trace",
            attributed.unlaunched,
            "they belong to no request and are not counted",
            "start the capture before the program's first launch",
        )
    if trace.device_count > 1:
        yield _warning(
            f"GPU work on {trace.device_count} devices",
            trace.device_count,
            "busy time is the sum over devices and may exceed the span",
            "make one GPU visible with CUDA_VISIBLE_DEVICES to compare strategies",
        )


def _varying(attributed: Attributed) -> Iterator[Finding]:
    n = len(attributed.requests)
    hidden = hidden_requests(attributed)
    visible = np.setdiff1d(np.arange(n), hidden)
    counts = {name: getattr(attributed, name) for name in ("kernels", "memcpys", "memsets")}
    for name, rows, of in (
        *((name, rows, visible) for name, rows in counts.items()),
        ("launches", attributed.launches, np.arange(n)),
    ):
        per_request = count_by_request(rows, n)[of]
        if per_request.size and per_request.min() != per_request.max():
            yield _warning(
                f"{name} vary between requests, from {per_request.min()} to {per_request.max()}",
                int((per_request != per_request.min()).sum()),
                "the tables give their mean",
                "the first requests may still warm up, so trace more of them",
            )


def _warning(what: str, count: int, effect: str, remedy: str) -> Finding:
    return Finding("warning", what, count, effect, remedy)
