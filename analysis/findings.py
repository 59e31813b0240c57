"""What stands in the way of trusting a trace, any trace: looked for before any number is given.

`inspect` looks at the whole trace. What a trace that launchgap itself made must hold besides is judged by
`analysis.validity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.attribute import NO_CALL, IntArray, call_of, calls_in_ranges
from analysis.clocks import clock_findings
from analysis.diagnostics import is_doubtful, lost_records
from analysis.finding import SEVERITIES, Finding, shown
from analysis.launches import LaunchKind, api_name, launch_calls
from analysis.schema import DIAGNOSTIC_ERROR_LABEL
from analysis.trace import Trace
from analysis.tracers import Tracer, tracer_of

_BEGIN_CAPTURE = re.compile(r"cu(?:da)?StreamBeginCapture\w*")
_END_CAPTURE = re.compile(r"cu(?:da)?StreamEndCapture\w*")
_SHOWN_NAMES = 5


@dataclass(frozen=True)
class _Work:
    """GPU work of all kinds, and the launch calls that should have made it.

    Attributes:
        operations: process, correlation, start_ns, end_ns of each operation.
        call: position in the trace's API calls of the call of each operation, or `NO_CALL`; as `operations`.
        launches: launch calls, without those that a stream capture recorded instead of running them.
        answered: whether the GPU shows work of the launch; as `launches`.
    """

    operations: pd.DataFrame
    call: IntArray
    launches: pd.DataFrame
    answered: npt.NDArray[np.bool_]


def inspect(trace: Trace) -> tuple[Finding, ...]:
    """Everything about a trace that qualifies its numbers, the worst first; empty where nothing does."""
    work = _work(trace)
    found = [*_presence(trace, work)]
    if trace.has_gpu_work:
        found += [*_launches(work, tracer_of(trace)), *_operations(trace, work), *_modes(trace, work)]
    found += [*_ranges(trace), *clock_findings(trace, work.operations, work.call), *nsys_findings(trace)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def recording_findings(trace: Trace) -> tuple[Finding, ...]:
    """The part of `inspect` that is about how well it was recorded: times, and what nsys says itself."""
    operations, call = _operations_and_calls(trace)
    return (*clock_findings(trace, operations, call), *nsys_findings(trace))


def nsys_findings(trace: Trace) -> Iterator[Finding]:
    """What the tracer itself reports: lost records, errors, doubts."""
    tracer = tracer_of(trace)
    texts = [text if isinstance(text, str) else "" for text in trace.diagnostics["text"]]
    lost = {place: count for place, text in enumerate(texts) if (count := lost_records(text)) is not None}
    if lost:
        first = shown(texts[min(lost)])
        yield Finding(
            "warning",
            f"{tracer.name} lost {sum(lost.values())} records or buffers of CUDA events ({first!r})",
            sum(lost.values()),
            "GPU counts and times are too low",
            tracer.lose_less,
        )
    is_error = (trace.diagnostics["severity"] == DIAGNOSTIC_ERROR_LABEL).to_numpy()
    errors = [text for place, text in enumerate(texts) if is_error[place] and place not in lost]
    if errors:
        yield Finding(
            "warning",
            f"{tracer.name} itself reports {len(errors)} errors, the first being {shown(errors[0])!r}",
            len(errors),
            "records may be missing",
            tracer.where_messages,
        )
    doubts = [text for place, text in enumerate(texts) if place not in lost and is_doubtful(text)]
    if doubts:
        yield Finding(
            "note",
            f"{tracer.name} says {len(doubts)} times that events may be missing ({shown(doubts[0])!r})",
            len(doubts),
            "it says so of most programs; what is missing shows as launches without GPU work",
            "nothing, unless such launches are found too",
        )


def _work(trace: Trace) -> _Work:
    operations, call = _operations_and_calls(trace)
    launches = launch_calls(trace.api_calls)
    launches = launches[~launches.index.isin(_captured(trace.api_calls, launches))]
    # Where a driver call inside a runtime call has its correlation id, either one answers for both.
    working = np.zeros(len(trace.api_calls) + 1, dtype=np.bool_)
    working[call[call != NO_CALL]] = True
    answered = working[call_of(launches, trace.api_calls)]  # the added last place is that of NO_CALL
    return _Work(operations, call, launches, answered)


def _operations_and_calls(trace: Trace) -> tuple[pd.DataFrame, IntArray]:
    columns = ["process", "correlation", "start_ns", "end_ns"]
    tables = (trace.kernels, trace.memcpys, trace.memsets, trace.graph_launches)
    operations = pd.concat([table[columns] for table in tables], ignore_index=True)
    return operations, call_of(operations, trace.api_calls)


def _captured(api_calls: pd.DataFrame, launches: pd.DataFrame) -> IntArray:
    """Launch calls between the begin and the end of a stream capture of their thread: nothing ran."""
    names = api_calls["name"].cat.categories
    codes = api_calls["name"].cat.codes
    ends = [place for place, name in enumerate(names) if _END_CAPTURE.fullmatch(api_name(name))]
    begins = [place for place, name in enumerate(names) if _BEGIN_CAPTURE.fullmatch(api_name(name))]
    if not begins:
        return np.empty(0, dtype=np.int64)
    marks = api_calls[codes.isin([*begins, *ends])].sort_values("start_ns", kind="stable")
    is_begin = codes[marks.index].isin(begins)
    after = marks.groupby("thread")
    closes = ~is_begin.groupby(marks["thread"]).shift(-1, fill_value=True)
    spans = marks.assign(end_ns=after["end_ns"].shift(-1))[is_begin & closes]
    spans = spans.astype({"end_ns": "int64"}).reset_index(drop=True)
    return calls_in_ranges(launches, spans)["call"].to_numpy(dtype=np.int64)


def _presence(trace: Trace, work: _Work) -> Iterator[Finding]:
    calls, launches, tracer = len(trace.api_calls), len(work.launches), tracer_of(trace)
    if trace.has_gpu_work:
        if not calls:
            yield Finding(
                "warning",
                f"no CUDA calls recorded, though {len(work.operations)} GPU operations were",
                len(work.operations),
                "no operation can be given to its launch or to a range",
                f"{tracer.record_again}, from the program's start",
            )
    elif launches:
        yield Finding(
            "fatal",
            f"no GPU work recorded, though {launches} launches were",
            launches,
            f"{tracer.why_no_gpu_work}, so every GPU count would be zero",
            f"close other profilers {tracer.rivals}, install a newer {tracer.newer}, {tracer.record_again}",
        )
    elif calls:
        yield Finding(
            "warning",
            f"{calls} CUDA calls recorded, but no launch and no GPU work",
            calls,
            "there is nothing on the GPU to count",
            "trace the part of the program that computes",
        )
    else:
        yield Finding(
            "warning" if len(trace.ranges) else "fatal",
            "no CUDA activity recorded",
            0,
            "there is nothing on the GPU to count",
            f"{tracer.record_again}; {tracer.see_that}",
        )


def _launches(work: _Work, tracer: Tracer) -> Iterator[Finding]:
    kinds = work.launches["kind"]
    is_graph = (kinds == LaunchKind.GRAPH).to_numpy()
    silent_graphs = int((is_graph & ~work.answered).sum())
    if silent_graphs:
        yield Finding(
            "warning",
            f"{silent_graphs} of {int(is_graph.sum())} graph launches show no GPU work",
            silent_graphs,
            "what these replays ran is in no GPU count and no GPU time",
            tracer.find_replays,
        )
    silent = kinds[~is_graph & ~work.answered].value_counts().sort_index()
    if len(silent):
        parts = ", ".join(f"{count} {kind}" for kind, count in silent.items())
        yield Finding(
            "warning",
            f"{int(silent.sum())} of {int((~is_graph).sum())} launches show no GPU operation ({parts})",
            int(silent.sum()),
            "GPU counts and times may be too low: records were dropped, or calls failed or had nothing to do",
            f"compare counts with a shorter trace, or use a newer {tracer.newer}",
        )


def _operations(trace: Trace, work: _Work) -> Iterator[Finding]:
    orphans = int((work.call == NO_CALL).sum())
    if orphans and len(trace.api_calls):
        yield Finding(
            "warning",
            f"{orphans} of {len(work.operations)} GPU operations have no launch call in the trace",
            orphans,
            "they belong to no range and have no queue delay, and are in sums over the whole trace only",
            "start the capture before the program's first launch",
        )
    is_launch = np.zeros(len(trace.api_calls) + 1, dtype=np.bool_)
    is_launch[launch_calls(trace.api_calls).index] = is_launch[NO_CALL] = True
    stray = work.call[~is_launch[work.call]]
    if stray.size:
        names = set(trace.api_calls["name"].iloc[pd.unique(stray)].astype(str).map(api_name))
        listed = ", ".join(shown(name) for name in sorted(names)[:_SHOWN_NAMES])
        yield Finding(
            "note",
            f"{stray.size} GPU operations came from {listed}, not known as launches",
            stray.size,
            "they are counted, the calls' time is not",
            "name the calls to launchgap's authors",
        )
    if trace.device_count > 1:
        yield Finding(
            "note",
            f"GPU work on {trace.device_count} devices",
            trace.device_count,
            "busy time summed over devices may exceed the span",
            "look at one device at a time to compare it with the span",
        )


def _modes(trace: Trace, work: _Work) -> Iterator[Finding]:
    graphs = int((work.launches["kind"] == LaunchKind.GRAPH).sum())
    if graphs and trace.graph_trace_mode is None:
        yield Finding(
            "warning",
            f"the trace does not say how it recorded its {graphs} graph launches",
            graphs,
            "whether a replay counts as one operation or as one for each node is unknown",
            "capture with --cuda-graph-trace=node; nsys 2023 and newer say it",
        )


def _ranges(trace: Trace) -> Iterator[Finding]:
    if trace.ranges.empty:
        tracer = tracer_of(trace)
        yield Finding(
            "note",
            f"no {tracer.ranges}",
            0,
            "numbers are of the whole trace only",
            tracer.add_ranges,
        )
        return
    left_open = trace.ranges[trace.ranges["end_ns"].isna()]
    crossing = trace.ranges[trace.ranges["end_ns"].notna() & ~trace.ranges["same_thread"]]
    for rows, what in ((left_open, "never ended"), (crossing, "ended on another thread than they began on")):
        if len(rows):
            names = ", ".join(shown(name) for name in sorted(set(rows["name"]))[:_SHOWN_NAMES])
            yield Finding(
                "note",
                f"{len(rows)} of {len(trace.ranges)} ranges {what} ({names})",
                len(rows),
                "they are left out, and no launch belongs to them",
                "end ranges where they began, and stop the capture after their end",
            )
