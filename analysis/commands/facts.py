"""What a trace is and how much is in it, one fact a line; None is what its tracer does not tell."""

from __future__ import annotations

from analysis import overview
from analysis.chrome_trace import ChromeTrace
from analysis.commands.about import About
from analysis.commands.sections import Fact
from analysis.commands.select import Selection, devices, processes, span_ns
from analysis.finding import Finding
from analysis.overview import Work
from analysis.trace import Trace
from analysis.tracers import tracer_of

_NS_PER_S = 1e9
_COMPARE = "compare a total with `nsys stats`"
_UNKNOWN = "; unknown: "


def origin_facts(trace: Trace, about: About) -> dict[str, Fact]:
    """Who recorded a trace, and how."""
    told: dict[str, Fact] = {
        "tracer": tracer_of(trace).name,
        "nsys_version": trace.nsys_version,
        "export_schema": trace.export_schema,
        "capture_flags": about.flags or None,
        "graph_trace_mode": None if trace.graph_trace_mode is None else str(trace.graph_trace_mode),
        "gpus_of_host": trace.gpu_names or None,
    }
    # What a file does not tell is listed, so that nobody takes it for zero.
    return told | ({"unknown": trace.unknown} if isinstance(trace, ChromeTrace) else {})


def content_facts(work: Work) -> dict[str, Fact]:
    """How much of everything is in a trace, or in the selected part of one."""
    trace, tracer, span = work.trace, tracer_of(work.trace), span_ns(work.trace)
    return {
        "devices": len(devices(trace)),
        "processes": len(processes(trace)),
        "streams": overview.stream_count(work),
        "domains": int(trace.ranges["domain"].nunique()) if tracer.domains else None,
        "ranges": len(trace.ranges),
        "api_calls": len(trace.api_calls) if tracer.all_calls else None,
        "launches": len(work.launches),
        "kernels": len(trace.kernels),
        "memcpys": len(trace.memcpys),
        "memsets": len(trace.memsets),
        **overview.graph_facts(work),
        "first_event_s": None if span is None else span[0] / _NS_PER_S,
        "last_event_s": None if span is None else span[1] / _NS_PER_S,
    }


def selection_facts(selection: Selection) -> dict[str, Fact]:
    """What was left out on request."""
    start_ns, end_ns = selection.between_ns or (None, None)
    told: dict[str, Fact] = {
        "only_process": selection.process,
        "only_device": selection.device,
        "only_from_s": None if start_ns is None else start_ns / _NS_PER_S,
        "only_until_s": None if end_ns is None else end_ns / _NS_PER_S,
        "only_domain": selection.domain,
    }
    return {name: value for name, value in told.items() if value is not None}


def reader_findings(trace: Trace) -> list[Finding]:
    """What the reader of the file has to say (`Trace.warnings`), as findings."""
    return [_finding(sentence) for sentence in trace.warnings]


def _finding(sentence: str) -> Finding:
    """A warning is `what: effect; remedy`; one about a tracer ends with what is unknown instead."""
    told, _, unknown = sentence.partition(_UNKNOWN)
    what, _, rest = told.partition(": ")
    effect, _, remedy = rest.partition("; ")
    if unknown:
        remedy = "what it cannot tell is listed as unknown and shown as '-', never as 0"
    return Finding("warning", what, 1, effect or "not all of a trace is in such a file", remedy or _COMPARE)
