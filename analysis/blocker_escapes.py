"""GPU work that ran although the thread that launched it was just capturing: it is in no graph."""

from __future__ import annotations

import re

import pandas as pd

from analysis.attribute import call_of, calls_in_ranges
from analysis.blocker_hits import work_hits
from analysis.blocker_rules import ESCAPED
from analysis.launches import api_name
from analysis.trace import Trace

_BEGIN = re.compile(r"cu(?:da)?StreamBeginCapture\w*")
_END = re.compile(r"cu(?:da)?StreamEndCapture\w*")


def escaped_hits(trace: Trace) -> pd.DataFrame:
    """Hits of the whole trace, as `analysis.blocker_hits` has them; `request` is -1.

    What a capture records leaves no GPU work behind until a replay runs it, and a replay has a call of its
    own; so work whose call lies between the begin and the end of a capture of its thread escaped it.
    """
    spans = _captures(trace.api_calls)
    tables = (trace.kernels, trace.memcpys, trace.memsets)
    columns = ["process", "correlation", "stream", "start_ns", "end_ns"]
    work = pd.concat([table[columns] for table in tables], ignore_index=True).astype("int64")
    work = work.assign(call=call_of(work, trace.api_calls))
    pairs = calls_in_ranges(trace.api_calls[trace.api_calls.index.isin(work["call"])], spans)
    found = work.merge(pairs, on="call").assign(request=-1)
    return work_hits(ESCAPED, found, found["stream"].map("stream {}".format))


def _captures(api_calls: pd.DataFrame) -> pd.DataFrame:
    """Spans from a begin of a capture to the next end of it on the same thread: thread, start_ns, end_ns."""
    names = {str(name): api_name(str(name)) for name in api_calls["name"].cat.categories}
    begins = [name for name, plain in names.items() if _BEGIN.fullmatch(plain)]
    ends = [name for name, plain in names.items() if _END.fullmatch(plain)]
    marks = api_calls[api_calls["name"].isin([*begins, *ends])].sort_values("start_ns", kind="stable")
    is_begin = marks["name"].isin(begins)
    following = marks.groupby("thread")["start_ns"].shift(-1)
    closes = ~is_begin.groupby(marks["thread"]).shift(-1, fill_value=True).astype("bool")
    spans = marks.assign(end_ns=following)[is_begin & closes]
    return spans.astype({"end_ns": "int64"}).reset_index(drop=True)
