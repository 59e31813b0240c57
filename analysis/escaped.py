"""Work that escaped the graph: launched beside the replay, or done by eager alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.attribute import Attributed
from analysis.equivalence import Match
from analysis.finding import SEVERITIES, Finding, shown
from analysis.launches import LaunchKind
from analysis.operation_keys import operations_with_keys, short_names

ESCAPED_COLUMNS = (
    "kind",
    "kernel",
    "full_name",
    "shape",
    "api",
    "stream",
    "other_stream",
    "when",
    "calls_per_request",
    "us_per_request",
    "expected",
)

_NS_PER_US = 1_000.0
_NAMES_AT_MOST = 3
_LEAST_ALIKE = 0.1


def escaped_work(graph: Attributed) -> pd.DataFrame:
    """Single operations in a graph's requests that no replay ran, per request; columns `ESCAPED_COLUMNS`.

    `when`: launched before the request's first graph launch, between two, after the last, or in a request
    with no replay. `other_stream`: on a stream that no replay runs on, so without an order to it but by
    events; which stream is the legacy one a trace does not tell. `expected` names what the work is for where
    a request cannot do without it: its input, its output, the fills of padding and random seeds; it is empty
    for work that escaped. Works in both trace modes. Most expensive first.
    """
    beside, replaying = _beside_replays(graph)
    by = ["kind", "full_name", "shape", "api", "stream", "when"]
    table = beside.groupby(by, sort=False)["ns"].agg(["size", "sum"]).reset_index()
    requests = max(len(graph.requests), 1)
    expected = [_expected(*row) for row in zip(table["kind"], table["full_name"], table["when"], strict=True)]
    table = table.assign(
        kernel=short_names(table),
        other_stream=~table["stream"].isin(replaying) & bool(replaying),
        calls_per_request=table["size"] / requests,
        us_per_request=table["sum"] / requests / _NS_PER_US,
        expected=pd.Series(expected, table.index, dtype="object"),
    )
    order = table.sort_values(["us_per_request", "full_name", "shape"], ascending=[False, True, True])
    return order[list(ESCAPED_COLUMNS)].reset_index(drop=True)


def equivalence_findings(matched: pd.DataFrame, escaped: pd.DataFrame) -> tuple[Finding, ...]:
    """What `match_kernels` and `escaped_work` say against believing a speed-up, worst first."""
    found = [*_lost(matched), *_beside(escaped), *_unlike(matched), *_explained(matched)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def _beside_replays(graph: Attributed) -> tuple[pd.DataFrame, set[int]]:
    """Operations that no replay ran, each with what tells it apart, and the streams of the replays."""
    work, keys = operations_with_keys(graph)
    replaying = {*graph.graph_launches["stream"], *work.loc[work["replayed"], "stream"]}
    beside = work.loc[~work["replayed"], ["request", "call", "stream", "start_ns", "end_ns", "key"]]
    named = pd.DataFrame(keys, columns=["kind", "full_name", "shape"]).astype("object")
    named = named.iloc[beside["key"]].set_axis(beside.index)
    api = graph.launches.drop_duplicates("call").set_index("call")["api"]
    return named.assign(
        stream=beside["stream"],
        api=beside["call"].map(api).astype("object").fillna(""),
        when=_when(beside, graph),
        ns=beside["end_ns"] - beside["start_ns"],
    ), replaying


def _when(beside: pd.DataFrame, graph: Attributed) -> pd.Series[str]:
    """Place of each operation's launch among the graph launches of its request."""
    replays = graph.launches[graph.launches["kind"] == LaunchKind.GRAPH].groupby("request")["start_ns"]
    first, last = (beside["request"].map(edge) for edge in (replays.min(), replays.max()))
    calls = graph.launches.drop_duplicates("call").set_index("call")["start_ns"]
    # Of a call of another kind than the known launches only the work's own time is known.
    launched = beside["call"].map(calls).fillna(beside["start_ns"])
    cases = [first.isna(), launched < first, launched > last]
    names = np.select(cases, ["no replay", "before", "after"], "between")
    return pd.Series(names, beside.index, dtype="object")


def _expected(kind: str, name: str, when: str) -> str:
    if when == "before" and kind == LaunchKind.MEMCPY and name.endswith("to device"):
        return "input"
    if when == "after" and kind == LaunchKind.MEMCPY and name.startswith("copy device"):
        return "output"
    is_fill = kind == LaunchKind.MEMSET or "FillFunctor<long>" in name or "FillFunctor<int>" in name
    return "padding or random seed" if when == "before" and is_fill else ""


def _lost(matched: pd.DataFrame) -> Iterator[Finding]:
    kernels = matched[(matched["match"] == Match.MISSING) & (matched["kind"] == LaunchKind.KERNEL)]
    unknown = kernels[kernels["reason"] == ""]
    for replaced in (False, True):
        rows = unknown[(unknown["instead"] != "") == replaced]
        if rows.empty:
            continue
        calls, us = rows["eager_calls_per_request"].sum(), rows["eager_us_per_request"].sum()
        what = f"{_counted(calls, 'kernel')} of each eager request ({us:.1f} us: {_named(rows)})"
        if replaced:
            yield Finding(
                "warning",
                f"{what}: not in the graph's, which runs others at their place",
                round(calls),
                "kernels cannot tell whether that is the same work",
                "believe it only if the outputs were compared",
            )
        else:
            yield Finding(
                "fatal",
                f"{what}: missing in the graph's request, for no known reason",
                round(calls),
                "the graph does less than eager, so it may be faster because work escaped it",
                "compare the outputs on fresh inputs; look for work that the capture left on the legacy "
                "stream or on another thread",
            )


def _beside(escaped: pd.DataFrame) -> Iterator[Finding]:
    unexpected = escaped[escaped["expected"] == ""]
    for when, title in (("no replay", "in requests that replay no graph"), (None, "beside the replay")):
        rows = unexpected[(unexpected["when"] == "no replay") == (when is not None)]
        if rows.empty:
            continue
        calls, us = rows["calls_per_request"].sum(), rows["us_per_request"].sum()
        away = rows.loc[rows["other_stream"], "calls_per_request"].sum()
        order = f", {_number(away)} of them on a stream that no replay runs on" if away else ""
        yield Finding(
            "warning",
            f"{_counted(calls, 'operation')} per request ({us:.1f} us: {_named(rows)}) launched "
            f"{title}{order}",
            round(calls),
            "the replay is not the whole request, and each of them still pays for its launch",
            "capture them as well, or count them to the graph's cost",
        )


def _unlike(matched: pd.DataFrame) -> Iterator[Finding]:
    kernels = matched[matched["kind"] == LaunchKind.KERNEL]
    kept = kernels["match"].isin((Match.SAME, Match.CHANGED))
    calls = kernels["eager_calls_per_request"]
    if calls.sum() and calls[kept].sum() < _LEAST_ALIKE * calls.sum():
        yield Finding(
            "warning",
            f"only {_number(calls[kept].sum())} of {_number(calls.sum())} eager kernels run in the graph",
            round(calls[kept].sum()),
            "the two may be of different models, precisions or compilers",
            "compare traces of one case",
        )


def _explained(matched: pd.DataFrame) -> Iterator[Finding]:
    for (match, reason), rows in matched[matched["reason"] != ""].groupby(["match", "reason"], sort=False):
        calls = rows[["eager_calls_per_request", "graph_calls_per_request"]].max(axis=1).sum()
        yield Finding(
            "note",
            f"{_counted(calls, 'operation')} per request {match} in the graph ({_named(rows)})",
            round(calls),
            f"that changes its GPU time by {rows['difference_us'].sum():+.1f} us",
            f"known reason: {reason}",
        )


def _named(rows: pd.DataFrame) -> str:
    names = list(dict.fromkeys(rows["kernel"]))
    more = len(names) - _NAMES_AT_MOST
    return ", ".join(shown(name) for name in names[:_NAMES_AT_MOST]) + (
        f" and {more} more" if more > 0 else ""
    )


def _counted(value: float, noun: str) -> str:
    return f"{_number(value)} {noun}{'' if value == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
