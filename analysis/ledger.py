"""Where the time of each request went on the GPU: five parts that add up to its range, to the nanosecond.

    range = head + busy + launch-bound gaps + device gaps + tail

Taken from what the GPU did for the request and the calls that started it; docs/explain.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.attribute import Attributed, IntArray, has_time, untimed_requests
from analysis.intervals import running_end, union_by_group
from analysis.schema import HOST_DEVICE

GPU_PARTS = ("head_ns", "busy_ns", "launch_bound_gaps_ns", "device_gaps_ns", "tail_ns")
"""The parts that add up to `range_ns`, in order of time where a request has but one stretch of work."""

LEDGER_COLUMNS = (
    "request",
    "range_ns",
    *GPU_PARTS,
    "launch_bound_gaps",
    "device_gaps",
    "operations",
    "outside_ns",
    "timed",
)
MEAN_COLUMNS = ("part", "total_ns", "us_per_request", "share_percent")

_NS_PER_US = 1_000.0
_ALWAYS = np.iinfo(np.int64).min


def gpu_ledger(attributed: Attributed) -> pd.DataFrame:
    """One row per request, in order; columns `LEDGER_COLUMNS`.

    Busy is the time in which any device worked for the request, so several devices at once count once. A
    replay that graph mode records whole is one busy interval. Work is cut off at both ends of the range: what
    lies beyond them is `outside_ns` and no part of the sum. A request without work is all head. Operations
    without a time from the driver and host nodes of graphs are not there; `timed` is False for a request with
    a replay that shows no time, whose head and gaps hold the replay.

    A gap ends with the operations that start at its end. It is launch-bound if the call of each of them ended
    after the gap began, and none of those calls had started work before; else it is the device's own. A call
    of another kind than the known launches counts as one that ended in time.
    """
    requests = len(attributed.requests)
    table = _ledger(attributed, timed_work(attributed), np.arange(requests), "request")
    return table[list(LEDGER_COLUMNS)]


def gpu_ledger_by_device(attributed: Attributed) -> pd.DataFrame:
    """The ledger of each device by itself: `gpu_ledger` with the columns process and device added.

    One row per request and device; devices are those that worked in any request, each for one process. Each
    row adds up to the range by itself.
    """
    work = timed_work(attributed)
    place = ["process", "device"]
    devices = work[place].drop_duplicates().sort_values(place, ignore_index=True)
    requests = len(attributed.requests)
    number = work[place].merge(devices.reset_index(names="number"), on=place)["number"].to_numpy(np.int64)
    group = work["request"].to_numpy(np.int64) * len(devices) + number
    owner = np.repeat(np.arange(requests), len(devices))
    table = _ledger(attributed, work.assign(row=group), owner, "row")
    sides = pd.concat([devices] * requests, ignore_index=True) if requests else devices.iloc[:0]
    return table.assign(**{name: sides[name].to_numpy() for name in place})[[*place, *LEDGER_COLUMNS]]


def mean_ledger(ledger: pd.DataFrame, parts: Sequence[str] = GPU_PARTS) -> pd.DataFrame:
    """A ledger pooled over its rows, one row per part; columns `MEAN_COLUMNS`.

    Totals are integers and add up to the sum of `range_ns`. Works for the host's ledger with its own parts.
    """
    total_ns = [int(ledger[name].sum()) for name in parts]
    whole = max(sum(total_ns), 1)
    columns = {
        "part": [name.removesuffix("_ns") for name in parts],
        "total_ns": np.array(total_ns, dtype=np.int64),
        "us_per_request": [total / max(len(ledger), 1) / _NS_PER_US for total in total_ns],
        "share_percent": [total * 100.0 / whole for total in total_ns],
    }
    return pd.DataFrame(columns, columns=list(MEAN_COLUMNS))


def bounds_of(requests: pd.DataFrame) -> tuple[IntArray, IntArray]:
    """First and last nanosecond of each range; one that would end before it began has no length."""
    first = requests["start_ns"].to_numpy(dtype=np.int64)
    return first, np.maximum(first, requests["end_ns"].to_numpy(dtype=np.int64))


def timed_work(attributed: Attributed) -> pd.DataFrame:
    """GPU operations with a time: request, process, device, start_ns, end_ns, submitted_ns.

    `submitted_ns` is when the host was through with the operation: the end of its call, or the beginning of
    time where that call had started other work before, as it has for all but the first node of a replay.
    """
    found = attributed.operations
    found = found[has_time(found) & (found["device"] != HOST_DEVICE)].reset_index(drop=True)
    calls = attributed.launches.drop_duplicates("call").set_index("call")["end_ns"]
    known = found["call"].isin(calls.index).to_numpy()
    submitted = found["call"].map(calls).where(known, _ALWAYS).to_numpy(dtype=np.int64)
    first = found.groupby(["request", "call"])["start_ns"].transform("min").to_numpy()
    submitted = np.where(found["start_ns"].to_numpy() > first, _ALWAYS, submitted)
    ends = np.maximum(found["start_ns"].to_numpy(), found["end_ns"].to_numpy())
    return found.assign(end_ns=ends, submitted_ns=submitted)


def gap_table(attributed: Attributed) -> pd.DataFrame:
    """Every gap that `gpu_ledger` sums up, by request and time: request, start_ns, end_ns, launch_bound."""
    swept = _swept(timed_work(attributed), "request", bounds_of(attributed.requests))
    columns = {
        "request": swept.group,
        "start_ns": swept.before,
        "end_ns": swept.start,
        "launch_bound": swept.is_late,
    }
    return pd.DataFrame({name: column[swept.ends_gap] for name, column in columns.items()})


class _Swept(NamedTuple):
    """Work inside its range, by group and time; shape (n,) each.

    `before` is when the group's work up to here had ended, `until` when it has ended with this one.
    `ends_gap` marks what starts after `before`, unless it `opens` its group. `is_late` marks what the host
    was not through with at `before`.
    """

    group: IntArray
    start: IntArray
    end: IntArray
    before: IntArray
    until: IntArray
    opens: npt.NDArray[np.bool_]
    ends_gap: npt.NDArray[np.bool_]
    is_late: npt.NDArray[np.bool_]


def _swept(work: pd.DataFrame, key: str, bounds: tuple[IntArray, IntArray]) -> _Swept:
    """Work of the groups that the column `key` numbers, cut off at the bounds of each group."""
    names = (key, "start_ns", "end_ns", "submitted_ns")
    group, starts, ends, submitted = (work[name].to_numpy(dtype=np.int64) for name in names)
    start, end = np.maximum(starts, bounds[0][group]), np.minimum(ends, bounds[1][group])
    inside = np.flatnonzero((start < end) | ((start == end) & (starts == ends)))
    # Of operations that start together the one that was submitted first comes first and decides.
    order = inside[np.lexsort((submitted[inside], start[inside], group[inside]))]
    group, start, end, submitted = group[order], start[order], end[order], submitted[order]
    until = running_end(group, end)
    opens = np.ones(group.size, dtype=np.bool_)
    opens[1:] = group[1:] != group[:-1]
    before = np.concatenate(([0], until[:-1]))[: group.size]
    return _Swept(group, start, end, before, until, opens, ~opens & (start > before), submitted > before)


def _ledger(attributed: Attributed, work: pd.DataFrame, owner: IntArray, key: str) -> pd.DataFrame:
    """A row for each group of work, numbered by the column `key`; `owner` is the request of each row."""
    first, last = (edge[owner] for edge in bounds_of(attributed.requests))
    rows = owner.size
    group = work[key].to_numpy(dtype=np.int64)
    starts, ends = (work[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    parts = _parts(_swept(work, key, (first, last)), first, last)
    untimed = np.isin(owner, untimed_requests(attributed))
    return pd.DataFrame(
        {
            "request": owner,
            "range_ns": last - first,
            **parts,
            "operations": np.bincount(group, minlength=rows).astype(np.int64),
            "outside_ns": union_by_group(group, starts, ends, rows) - parts["busy_ns"],
            "timed": ~untimed,
        }
    )


def _parts(swept: _Swept, first: IntArray, last: IntArray) -> dict[str, npt.NDArray[np.int64]]:
    """The parts and the numbers of gaps of every group."""
    group, groups = swept.group, first.size
    closes = np.append(swept.opens[1:], True)[: group.size]
    head_ns, tail_ns = last - first, np.zeros(groups, dtype=np.int64)
    head_ns[group[swept.opens]] = (swept.start - first[group])[swept.opens]
    tail_ns[group[closes]] = (last[group] - swept.until)[closes]
    gap_ns = swept.start - swept.before
    late, ready = swept.ends_gap & swept.is_late, swept.ends_gap & ~swept.is_late
    bound_ns, device_ns = (_summed(group[which], gap_ns[which], groups) for which in (late, ready))
    return {
        "head_ns": head_ns,
        "busy_ns": union_by_group(group, swept.start, swept.end, groups),
        "launch_bound_gaps_ns": bound_ns,
        "device_gaps_ns": device_ns,
        "tail_ns": tail_ns,
        "launch_bound_gaps": np.bincount(group[late], minlength=groups).astype(np.int64),
        "device_gaps": np.bincount(group[ready], minlength=groups).astype(np.int64),
    }


def _summed(group: IntArray, values: IntArray, groups: int) -> IntArray:
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, group, values)
    return total
