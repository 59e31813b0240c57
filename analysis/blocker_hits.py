"""Every single thing in the requests of a trace that a stream capture would not take: one row for each.

A hit has the columns `HIT_COLUMNS`: the place of its rule in `RULES`, what exactly it was, the request, the
start of its call, and what it cost the host and the GPU in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.attribute import Attributed, calls_in_ranges
from analysis.blocker_facts import PAGEABLE_MEMORY, UNKNOWN_MEMORY, CaptureFacts
from analysis.blocker_rules import (
    DOWNLOAD,
    HOST_NODE,
    LEGACY,
    PAGEABLE,
    RANDOM,
    READ_BACK,
    RULES,
    STREAMS,
    THREADS,
    UPLOAD,
    WAIT,
    Rule,
    draws_random_numbers,
    rule_of_call,
)
from analysis.containment import Spans, contained
from analysis.kernel_names import shorten_all
from analysis.launches import api_name, launch_calls, launch_kind
from analysis.operation_keys import COPY_DIRECTIONS
from analysis.schema import HOST_DEVICE
from analysis.trace import Trace

HIT_COLUMNS = ("rule", "detail", "request", "start_ns", "host_ns", "gpu_ns")

_TO_HOST, _FROM_HOST = (2, 4), (1, 3)
_MEMORY = {0: "pageable", 1: "pinned", UNKNOWN_MEMORY: "host"}


def call_hits(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls inside requests that a capture refuses by their name alone; of calls in calls the outermost."""
    table = [rule_of_call(str(name)) for name in calls["name"].cat.categories]
    numbers = np.array([*(-1 if rule is None else RULES.index(rule) for rule in table), -1], dtype=np.int64)
    rule = numbers[calls["name"].cat.codes.to_numpy()]
    found = calls.assign(rule=rule)[rule >= 0]
    found = found[~_nested(found)]
    detail = found["name"].astype("object").map(lambda name: api_name(str(name)))
    cost_ns = found["end_ns"] - found["start_ns"]
    return found.assign(detail=detail, host_ns=cost_ns, gpu_ns=0)[list(HIT_COLUMNS)]


def copy_hits(attributed: Attributed, facts: CaptureFacts, calls: pd.DataFrame) -> pd.DataFrame:
    """Asynchronous copies between host and device, by what memory the host's side is."""
    owners = attributed.launches[["request", "call", "api", "start_ns", "end_ns"]]
    copies = facts.with_kinds(attributed.memcpys).merge(
        owners, on=["request", "call"], suffixes=("_gpu", ""), how="inner"
    )
    # The name of a call that blocks tells enough.
    copies = copies[copies["api"].str.contains("Async") & copies["copy_kind"].isin((*_TO_HOST, *_FROM_HOST))]
    to_host = copies["copy_kind"].isin(_TO_HOST)
    kind = copies["target_kind"].where(to_host, copies["source_kind"])
    waited = copies["call"].isin(_waited_for(calls))
    direction = copies["copy_kind"].map(COPY_DIRECTIONS)
    memory = kind.map(_MEMORY).fillna("other")
    rules = np.select(
        [to_host & waited, kind == PAGEABLE_MEMORY, to_host],
        [RULES.index(READ_BACK), RULES.index(PAGEABLE), RULES.index(DOWNLOAD)],
        RULES.index(UPLOAD),
    )
    return copies.assign(
        rule=rules,
        detail=[f"{way}, {side} memory" for way, side in zip(direction, memory, strict=True)],
        host_ns=copies["end_ns"] - copies["start_ns"],
        gpu_ns=copies["end_ns_gpu"] - copies["start_ns_gpu"],
    )[list(HIT_COLUMNS)]


def stream_hits(attributed: Attributed, facts: CaptureFacts) -> pd.DataFrame:
    """Work on the legacy stream where a request uses others too, and else work on several streams."""
    work = _operations(attributed).assign(legacy=facts.is_legacy)
    streams = work.groupby("request")["stream"].transform("nunique")
    mixed = work[streams > 1]
    beside = mixed[mixed["legacy"]]
    others = mixed[~mixed["request"].isin(beside["request"])]
    # Most of the work is taken to be where it belongs.
    main = others.groupby("request")["stream"].transform(lambda column: column.mode().iloc[0])
    parts = ((LEGACY, beside), (STREAMS, others[others["stream"] != main]))
    return stacked([work_hits(rule, rows, rows["stream"].map("stream {}".format)) for rule, rows in parts])


def kernel_hits(attributed: Attributed) -> pd.DataFrame:
    """Kernels that draw random numbers, and nodes that ran on the host."""
    kernels = attributed.kernels
    names = kernels["name"].cat.categories
    random = kernels[kernels["name"].isin([name for name in names if draws_random_numbers(str(name))])]
    full = random["name"].astype("object").astype(str)
    drawn = work_hits(RANDOM, random, full.map(shorten_all(full)))
    work = _operations(attributed)
    on_host = work[work["device"] == HOST_DEVICE]
    return stacked([drawn, work_hits(HOST_NODE, on_host, pd.Series("", on_host.index, dtype="object"))])


def thread_hits(trace: Trace, requests: pd.DataFrame) -> pd.DataFrame:
    """Launches by other threads of the process while a request was open."""
    launches = launch_calls(trace.api_calls)
    spans, times = Spans.of(requests), Spans.of(launches)
    # As if all were one thread: what lies in a request by its time alone.
    one = np.zeros_like(times.thread), np.zeros_like(spans.thread)
    call, place = contained(times._replace(thread=one[0]), spans._replace(thread=one[1]))
    found = launches.iloc[call].assign(request=requests.index.to_numpy()[place], owner=spans.thread[place])
    process = requests["process"].to_numpy()[place]
    found = found[(found["thread"] != found["owner"]).to_numpy() & (found["process"] == process).to_numpy()]
    detail = (found["thread"] & 0xFFFFFF).map("thread {}".format)
    cost_ns = found["end_ns"] - found["start_ns"]
    table = found.assign(rule=RULES.index(THREADS), detail=detail, host_ns=cost_ns, gpu_ns=0)
    return table[list(HIT_COLUMNS)]


def last_launches(attributed: Attributed) -> pd.DataFrame:
    """Kernel launches in order of start: request, start_ns, after (short name), launches (done by then)."""
    launches = attributed.launches.sort_values("start_ns", kind="stable")
    launches = launches.assign(launches=launches.groupby("request").cumcount() + 1)
    kernels = attributed.kernels[["request", "call", "name"]].drop_duplicates(["request", "call"])
    told = launches[["request", "call", "start_ns", "launches"]].merge(kernels, on=["request", "call"])
    full = told["name"].astype("object").astype(str)
    return told.assign(after=full.map(shorten_all(full)))[["request", "start_ns", "after", "launches"]]


def calls_of(trace: Trace, requests: pd.DataFrame) -> pd.DataFrame:
    """All API calls inside requests in order of request and start: the trace's columns, request and call."""
    pairs = calls_in_ranges(trace.api_calls, requests).rename(columns={"range": "request"})
    calls = pairs.merge(trace.api_calls, left_on="call", right_index=True)
    return calls.sort_values(["request", "start_ns"], kind="stable", ignore_index=True)


def stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Hits below each other."""
    whole = [part[list(HIT_COLUMNS)] for part in parts if len(part)]
    if not whole:
        return pd.DataFrame({name: pd.Series(dtype="object") for name in HIT_COLUMNS})
    return pd.concat(whole, ignore_index=True)


def work_hits(rule: Rule, work: pd.DataFrame, detail: pd.Series[str]) -> pd.DataFrame:
    """Hits by GPU work, which has request, start_ns and end_ns."""
    gpu_ns = work["end_ns"] - work["start_ns"]
    return work.assign(rule=RULES.index(rule), detail=detail, host_ns=0, gpu_ns=gpu_ns)[list(HIT_COLUMNS)]


def _waited_for(calls: pd.DataFrame) -> pd.Series[int]:
    """Copies after which the thread waits before it launches anything else, by their `call`."""
    kinds = {str(name): launch_kind(str(name)) for name in calls["name"].cat.categories}
    waits = [name for name in kinds if rule_of_call(name) is WAIT]
    telling = calls[calls["name"].isin([*waits, *(name for name, kind in kinds.items() if kind)])]
    following = (
        telling["name"].isin(waits).astype("int64").groupby(telling["request"]).shift(-1, fill_value=0)
    )
    return telling.loc[following == 1, "call"]


def _nested(calls: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether each call lies in another one: the driver's call inside that of the runtime."""
    spans = Spans.of(calls)
    inner, outer = contained(spans, spans)
    length = spans.end - spans.start
    inside = (length[inner] < length[outer]) | ((length[inner] == length[outer]) & (inner > outer))
    nested = np.zeros(len(calls), dtype=np.bool_)
    nested[inner[inside]] = True
    return nested


def _operations(attributed: Attributed) -> pd.DataFrame:
    columns = ["request", "call", "process", "device", "stream", "start_ns", "end_ns"]
    tables = (attributed.kernels, attributed.memcpys, attributed.memsets, attributed.graph_launches)
    whole = [table[columns] for table in tables]
    return pd.concat(whole, ignore_index=True).astype("int64")
