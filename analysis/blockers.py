"""What in a trace of eager requests would break a stream capture of them, or corrupt it in silence.

A trace tells what was called, not why: which line of code asked for it is for `scripts.doctor` to find. The
rules are in `analysis.blocker_rules`, what they rest on in docs/doctor.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.attribute import Attributed, RangeSelector, attribute, calls_in_ranges, select_ranges
from analysis.blocker_changes import change_hits, changing_work
from analysis.blocker_escapes import escaped_hits
from analysis.blocker_facts import CaptureFacts
from analysis.blocker_hits import (
    call_hits,
    calls_of,
    copy_hits,
    kernel_hits,
    last_launches,
    stacked,
    stream_hits,
    thread_hits,
)
from analysis.blocker_rules import READ_BACK, RULES, Harm
from analysis.finding import Finding, Severity
from analysis.launches import LaunchKind
from analysis.trace import Trace
from contract import NVTX_DOMAIN, LaunchgapError, RangeName

BLOCKER_COLUMNS = (
    "harm",
    "blocker",
    "detail",
    "place",
    "count",
    "requests",
    "per_request",
    "host_us_per_request",
    "gpu_us_per_request",
    "after",
    "after_launches",
    "effect",
    "remedy",
)
"""See `find_blockers`."""

INSIDE, START, END = "inside", "before the first kernel", "after the last kernel"

_NS_PER_US = 1_000.0
_PACKED = "CompareEqFunctor<long>"
_OUTSIDE = (RangeName.COPY.value, RangeName.SYNCHRONIZE.value)


@dataclass(frozen=True)
class Blockers:
    """What was found: `table` (`BLOCKER_COLUMNS`), `changes` (`CHANGE_COLUMNS`), and how to read them."""

    requests: int
    table: pd.DataFrame
    changes: pd.DataFrame
    findings: tuple[Finding, ...]


def find_blockers(trace: Trace, selector: RangeSelector, facts: CaptureFacts) -> Blockers:
    """Look through all requests of a trace; `table` has one row per blocker, detail and place, worst first.

    `count` is over all requests (of work that escaped a capture: over the trace, and per request is NA),
    `requests` how many have any. Host time is that of the calls, GPU time that of the work. `after` is the
    kernel most often launched before it, `after_launches` the median number of launches by then.

    The input copy and the final wait of launchgap's own requests are left out. Of other ranges, what comes
    before the first kernel or after the last may lie outside of what would be captured: it has `place` and is
    only to be checked.

    Raises:
        LaunchgapError: there is no such range, or nothing was launched in it.
    """
    requests = select_ranges(trace.ranges, selector.name, selector.domain)
    own = selector.domain == NVTX_DOMAIN
    if own:
        trace = _without_outside(trace)
    attributed = attribute(trace, selector)
    if attributed.launches.empty:
        raise LaunchgapError(
            f"range {selector.name!r}: none of its {len(requests)} instances launched GPU work on its own "
            "thread; name one that does (`python -m analysis TRACE` proposes some)"
        )
    calls = calls_of(trace, requests)
    changes = changing_work(attributed)
    of_calls = [call_hits(calls), thread_hits(trace, requests), escaped_hits(trace)]
    of_work = [copy_hits(attributed, facts, calls), stream_hits(attributed, facts), kernel_hits(attributed)]
    hits = stacked([*of_calls, *of_work, change_hits(attributed, changes)])
    table = _table(_placed(hits, attributed, own), len(requests))
    told = (*_findings(attributed, facts), *_questions(table))
    return Blockers(len(requests), table, changes, told)


def blocker_findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """The rows of `Blockers.table` as sentences: what, how often, what it does, what to do."""
    return tuple(_sentence(row) for row in table.to_dict("records"))


def _sentence(row: Mapping[Hashable, Any]) -> Finding:
    often = "" if pd.isna(row["per_request"]) else f", {row['per_request']:.3g} a request"
    where = "" if row["place"] == INSIDE else f" {row['place']}"
    detail = f" ({row['detail']})" if row["detail"] else ""
    what = f"{row['blocker']}{where}{detail}{often}"
    severity: Severity = "note" if row["harm"] == Harm.CHECK else "warning"
    return Finding(severity, what, int(row["count"]), str(row["effect"]), str(row["remedy"]))


def _without_outside(trace: Trace) -> Trace:
    """The trace without the calls of launchgap's own input copies and final waits."""
    parts = [select_ranges(trace.ranges, name, NVTX_DOMAIN) for name in _OUTSIDE]
    inside = calls_in_ranges(trace.api_calls, pd.concat(parts, ignore_index=True))["call"]
    return replace(trace, api_calls=trace.api_calls.drop(index=pd.unique(inside).tolist()))


def _placed(hits: pd.DataFrame, attributed: Attributed, own: bool) -> pd.DataFrame:
    """Hits with place, harm, after and after_launches."""
    hits = hits.astype({"start_ns": "int64", "request": "int64", "rule": "int64"})
    edges = attributed.launches[attributed.launches["kind"] != LaunchKind.MEMCPY].groupby("request")
    first, last = hits["request"].map(edges["start_ns"].min()), hits["request"].map(edges["end_ns"].max())
    place = pd.Series(INSIDE, hits.index, dtype="object")
    is_call = hits["host_ns"] > 0
    if not own:
        place = place.mask(is_call & (hits["start_ns"] < first), START)
        place = place.mask(is_call & (hits["start_ns"] >= last), END)
    harm = hits["rule"].map({number: str(rule.harm) for number, rule in enumerate(RULES)})
    before = pd.merge_asof(
        hits.assign(place=place, harm=harm.where(place == INSIDE, str(Harm.CHECK))).sort_values("start_ns"),
        last_launches(attributed).astype({"request": "int64"}).sort_values("start_ns"),
        on="start_ns",
        by="request",
        allow_exact_matches=False,
    )
    # Where work stands on the GPU's time line says nothing of what was launched before it.
    unknown = before["host_ns"] == 0
    return before.assign(**{name: before[name].mask(unknown) for name in ("after", "launches")})


def _table(hits: pd.DataFrame, requests: int) -> pd.DataFrame:
    rows = []
    for key, group in hits.groupby(["rule", "detail", "place", "harm"], sort=True):
        number, detail, place, harm = key
        rule = RULES[int(str(number))]
        of_trace = bool((group["request"] < 0).all())
        share = float("nan") if of_trace else 1.0 / max(requests, 1)
        after = group["after"].dropna().mode()
        rows.append(
            (
                *(harm, rule.blocker, detail, place, len(group)),
                pd.NA if of_trace else group["request"].nunique(),
                len(group) * share,
                group["host_ns"].sum() / _NS_PER_US * share,
                group["gpu_ns"].sum() / _NS_PER_US * share,
                after.iloc[0] if len(after) else "",
                group["launches"].median(),
                *(rule.effect, rule.remedy),
            )
        )
    table = pd.DataFrame(rows, columns=list(BLOCKER_COLUMNS)).astype({"requests": "Int64"})
    rank = table["harm"].map({str(harm): place for place, harm in enumerate(Harm)})
    order = rank.sort_values(kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _findings(attributed: Attributed, facts: CaptureFacts) -> Iterator[Finding]:
    n = len(attributed.requests)
    if n == 1:
        yield Finding(
            "note",
            "the range is there once",
            1,
            "whether launches and shapes change from request to request is unknown",
            "trace several requests, of the lengths that occur",
        )
    graphs = attributed.launches[attributed.launches["kind"] == LaunchKind.GRAPH]["request"].nunique()
    if graphs:
        yield Finding(
            "warning",
            f"{graphs} of {n} requests replay a graph already",
            graphs,
            "what a graph holds was captured and is not looked at again",
            "give the trace of an eager run to see what stood in its way",
        )
    yield from _overlaps(attributed)
    yield from _streams(attributed, facts)


def _questions(table: pd.DataFrame) -> Iterator[Finding]:
    """What a library asks of the host in eager alone: not while a stream is capturing."""
    asked = table["blocker"].eq(READ_BACK.blocker) & table["after"].str.contains(_PACKED, regex=False)
    if asked.any():
        yield Finding(
            "note",
            "a value is read after a comparison of int64 with a number, as transformers does to see whether "
            "a prompt packs several sequences",
            int(table.loc[asked, "count"].sum()),
            "it does not ask while a stream captures, and then builds a mask instead",
            "see with `python -m scripts.doctor` whether the capture itself succeeds",
        )


def _overlaps(attributed: Attributed) -> Iterator[Finding]:
    ranges = attributed.requests.sort_values(["thread", "start_ns"], kind="stable")
    before = ranges.groupby("thread")["end_ns"].transform(
        lambda ends: ends.cummax().shift(fill_value=-(2**62))
    )
    count = int((ranges["start_ns"] < before).sum())
    if count:
        yield Finding(
            "warning",
            f"{count} of {len(ranges)} ranges begin before an earlier one of their thread has ended",
            count,
            "a call in several ranges counts in each of them",
            "name a range that does not hold itself",
        )


def _streams(attributed: Attributed, facts: CaptureFacts) -> Iterator[Finding]:
    kernels = attributed.kernels
    if facts.legacy_streams is None:
        yield Finding(
            "note",
            "the file does not list its streams, as a scrubbed one does not",
            0,
            "which one is the legacy stream is unknown",
            "look at the trace itself, or read work on several streams with that in mind",
        )
    elif len(kernels) and facts.is_legacy(kernels).all():
        yield Finding(
            "note",
            "all kernels ran on the legacy stream, torch's default",
            len(kernels),
            "what follows torch's current stream moves to the capturing one, what names stream 0 itself does "
            "not, and both look alike here",
            "trace requests under torch.cuda.stream(torch.cuda.Stream()): what stays on it would escape",
        )
