"""Does the graph do eager's work: the operations of both requests matched by name and shape.

Operations are matched as a multiset, which no order of streams can disturb: what both sides run under one
name and shape is the same; what is left over under one name is changed; the rest is missing or extra. Where
both sides run something else at the same place of their order, each is named as what runs instead of the
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, IntArray, hidden_requests
from analysis.equivalence_reasons import with_reasons
from analysis.kernel_names import shorten_all
from analysis.launches import LaunchKind
from analysis.operation_keys import Key, operations_with_keys, short_names
from contract import LaunchgapError


class Match(StrEnum):
    """What became of work between eager and graph."""

    SAME = "same"
    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"


MATCH_COLUMNS = (
    "match",
    "kind",
    "kernel",
    "full_name",
    "eager_shape",
    "graph_shape",
    "eager_calls_per_request",
    "graph_calls_per_request",
    "outside_calls_per_request",
    "eager_us_per_request",
    "graph_us_per_request",
    "difference_us",
    "instead",
    "reason",
)

_NS_PER_US = 1_000.0
_ALIGNED_AT_MOST = 4_000
_NAMES_AT_MOST = 3
_LEAST_CALLS = 1e-9


@dataclass(frozen=True)
class Side:
    """The work of one trace's mean request.

    Attributes:
        calls: operations per request of each key, in order of their first appearance.
        mean_us: mean duration of each key.
        outside: operations per request of each key that no replay ran.
        order: keys of the request that is most like the others, in order of start.
    """

    calls: dict[Key, float]
    mean_us: dict[Key, float]
    outside: dict[Key, float]
    order: list[Key]


@dataclass(frozen=True)
class _Row:
    match: Match
    key: Key
    eager_calls: float = 0.0
    graph_calls: float = 0.0
    graph_shape: str | None = None  # where it differs from the key's
    instead: tuple[str, ...] = ()


def match_kernels(eager: Attributed, graph: Attributed) -> pd.DataFrame:
    """Kernels, copies and fills of the eager request against those of the graph's; columns `MATCH_COLUMNS`.

    One row per kind of match, name and shapes, in the order in which eager runs them, what only the graph
    runs last. Counts and times are means over the requests of each trace; those of all rows add up to what
    each request runs. `outside_calls_per_request` is how much of the graph's side no replay ran. The shape is
    the grid and the block, or the bytes. `instead` names what the other side runs at the same place; it is
    empty where requests are too long to be aligned (4,000 operations). `reason` is empty where it is not
    known.

    Raises:
        LaunchgapError: no requests, a baseline that replays graphs, or a trace that shows replays whole.
    """
    _check(eager, graph)
    before, after = side_of(eager), side_of(graph)
    rows = _with_instead([*_rows(before, after)], before, after)
    table = pd.DataFrame([_record(row, before, after) for row in rows], columns=list(MATCH_COLUMNS))
    short = short_names(table)
    instead = [_listed(names) for names in table["instead"]]
    return with_reasons(table).assign(kernel=short, instead=pd.Series(instead, table.index, dtype="object"))


def match_totals(matched: pd.DataFrame) -> pd.DataFrame:
    """Kernels of `match_kernels` by kind of match, with the sums of its counts and times per request."""
    kernels = matched[matched["kind"] == LaunchKind.KERNEL]
    sums = kernels.groupby("match")[
        [name for name in MATCH_COLUMNS if name.endswith(("_request", "_us"))]
    ].sum()
    return sums.reindex([str(match) for match in Match], fill_value=0.0).rename_axis("match").reset_index()


def side_of(attributed: Attributed) -> Side:
    """The mean request of a trace."""
    work, keys = operations_with_keys(attributed)
    requests = max(len(attributed.requests), 1)
    ns = (work["end_ns"] - work["start_ns"]).groupby(work["key"], sort=False)
    counts, means = ns.size(), ns.mean()
    outside = work.loc[~work["replayed"], "key"].value_counts()
    return Side(
        calls=_by_key(counts / requests, keys),
        mean_us=_by_key(means / _NS_PER_US, keys),
        outside=_by_key(outside / requests, keys),
        order=[keys[number] for number in _usual_order(work)],
    )


def _by_key(values: pd.Series[float], keys: list[Key]) -> dict[Key, float]:
    places = values.index.to_numpy(dtype=np.int64).tolist()
    return {keys[place]: float(value) for place, value in zip(places, values, strict=True)}


def _usual_order(work: pd.DataFrame) -> IntArray:
    """Keys of the most frequent order of a request; of several the first."""
    orders = [rows.to_numpy(dtype=np.int64) for _, rows in work.groupby("request", sort=True)["key"]]
    if not orders:
        return np.empty(0, dtype=np.int64)
    seen: dict[bytes, int] = {}
    for order in orders:
        seen[order.tobytes()] = seen.get(order.tobytes(), 0) + 1
    return np.frombuffer(max(seen, key=lambda text: seen[text]), dtype=np.int64)


def _rows(before: Side, after: Side) -> Iterator[_Row]:
    left, right = dict(before.calls), dict(after.calls)
    for key in before.calls:
        both = min(left[key], right.get(key, 0.0))
        if both > _LEAST_CALLS:
            yield _Row(Match.SAME, key, both, both)
            left[key] -= both
            right[key] -= both
    yield from _changed(left, right)
    yield from (_Row(Match.MISSING, key, calls) for key, calls in left.items() if calls > _LEAST_CALLS)
    extra = ((key, calls) for key, calls in right.items() if calls > _LEAST_CALLS)
    yield from (_Row(Match.EXTRA, key, graph_calls=calls) for key, calls in extra)


def _changed(left: dict[Key, float], right: dict[Key, float]) -> Iterator[_Row]:
    """Pairs of one name and other shapes, in order of their first appearance; takes them off both sides."""
    others: dict[tuple[str, str], list[Key]] = {}
    for key in right:
        others.setdefault((key.kind, key.name), []).append(key)
    for key in left:
        for other in others.get((key.kind, key.name), ()):
            both = min(left[key], right[other])
            if both > _LEAST_CALLS:
                yield _Row(Match.CHANGED, key, both, both, other.shape)
                left[key] -= both
                right[other] -= both


def _with_instead(rows: list[_Row], before: Side, after: Side) -> list[_Row]:
    """Rows with what the other side runs at the same place of the order."""
    if max(len(before.order), len(after.order)) > _ALIGNED_AT_MOST:
        return rows
    missing = {row.key for row in rows if row.match is Match.MISSING}
    extra = {row.key for row in rows if row.match is Match.EXTRA}
    if not (missing and extra):
        return rows
    instead: dict[tuple[Match, Key], list[str]] = {}
    # By name alone: with other shapes, as padding makes them, no two operations of the orders would be equal.
    old, new = ([key.name for key in side.order] for side in (before, after))
    for _, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone = [key for key in before.order[i:j] if key in missing]
        come = [key for key in after.order[k:m] if key in extra]
        for ours, theirs, match in ((gone, come, Match.MISSING), (come, gone, Match.EXTRA)):
            for place, key in enumerate(ours):
                others = [theirs[place]] if len(ours) == len(theirs) else theirs
                instead.setdefault((match, key), []).extend(other.name for other in others)
    return [replace(row, instead=tuple(dict.fromkeys(instead.get((row.match, row.key), ())))) for row in rows]


def _listed(names: Sequence[str]) -> str:
    short = shorten_all(names)
    more = len(names) - _NAMES_AT_MOST
    text = ", ".join(short[name] for name in names[:_NAMES_AT_MOST])
    return f"{text} and {more} more" if more > 0 else text


def _record(row: _Row, before: Side, after: Side) -> dict[str, object]:
    theirs = row.key if row.graph_shape is None else row.key._replace(shape=row.graph_shape)
    eager_us = row.eager_calls * before.mean_us.get(row.key, 0.0)
    graph_us = row.graph_calls * after.mean_us.get(theirs, 0.0)
    # Where a key is in several rows, its work outside replays is shared out by their calls.
    share = row.graph_calls / after.calls[theirs] if row.graph_calls else 0.0
    return {
        "match": str(row.match),
        "kind": row.key.kind,
        "full_name": row.key.name,
        "eager_shape": "" if row.match is Match.EXTRA else row.key.shape,
        "graph_shape": "" if row.match is Match.MISSING else theirs.shape,
        "eager_calls_per_request": row.eager_calls,
        "graph_calls_per_request": row.graph_calls,
        "outside_calls_per_request": after.outside.get(theirs, 0.0) * share,
        "eager_us_per_request": eager_us,
        "graph_us_per_request": graph_us,
        "difference_us": graph_us - eager_us,
        "instead": row.instead,
        "reason": "",
    }


def _check(eager: Attributed, graph: Attributed) -> None:
    for title, side in (("baseline", eager), ("graph's trace", graph)):
        if side.requests.empty:
            raise LaunchgapError(f"{title}: no requests in it, so there is nothing to match; name its range")
    if (eager.launches["kind"] == LaunchKind.GRAPH).any():
        raise LaunchgapError(
            "baseline: it replays graphs, so it is no baseline; give the trace of the eager run"
        )
    if hidden_requests(graph).size:
        raise LaunchgapError(
            "graph's trace: it shows replays whole, without their kernels; use --cuda-graph-trace=node"
        )
