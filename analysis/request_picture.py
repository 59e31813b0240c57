"""What a picture of one request shows, as numbers: host calls, GPU work and gaps on one clock.

`analysis.figures_request` draws it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, IntArray
from analysis.host_ledger import host_part
from analysis.host_parts import HostPart
from analysis.ledger import bounds_of, gap_table
from analysis.overview import process_id
from analysis.request_work import calls_of_thread, only_request, with_time, work_of_request
from analysis.timeline import WorkKind
from analysis.trace import Trace

STREAMS_AT_MOST = 8
"""Streams that are drawn; of more, those with the most operations."""

_NS_PER_US = 1_000.0
_STREAM = ["process", "device", "stream"]


class Look(StrEnum):
    """What a bar stands for. Waits are synchronising calls, and copies that wait for their end."""

    LAUNCHES = "launch calls"
    WAITS = "waits"
    OTHER_CALLS = "other calls"
    KERNELS = "kernels"
    COPIES = "copies and fills"
    REPLAYS = "replays"
    GAPS = "gaps"


_OF_PART = {
    HostPart.LAUNCHES: Look.LAUNCHES,
    HostPart.SYNCHRONISING: Look.WAITS,
    HostPart.COPIES: Look.WAITS,
}
_OF_KIND = {
    WorkKind.GRAPH: Look.REPLAYS,
    WorkKind.KERNEL: Look.KERNELS,
    WorkKind.COPY: Look.COPIES,
    WorkKind.FILL: Look.COPIES,
}


@dataclass(frozen=True)
class Bars:
    """Events of one look, in microseconds since the request began: begins and lengths, shape (n,) each."""

    look: Look
    begin_us: tuple[float, ...]
    length_us: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """One line of the picture."""

    name: str
    bars: tuple[Bars, ...]


@dataclass(frozen=True)
class RequestPicture:
    """One request from 0 to `range_us`; its GPU work may end later, at `end_us` at the latest.

    `hidden_streams` is how many streams are left out because there are too many.
    """

    title: str
    range_us: float
    end_us: float
    rows: tuple[Row, ...]
    hidden_streams: int


def request_picture(trace: Trace, attributed: Attributed, number: int, title: str) -> RequestPicture:
    """The host's calls on the request's thread, its GPU work by stream, and the gaps in that work.

    Gaps lie between the first and the last operation, inside the range, as in the GPU's ledger: their sum is
    that of its two kinds of gaps. Operations without a time from the driver are not drawn.

    Raises:
        LaunchgapError: there is no request of this number.
    """
    one = only_request(attributed, number)
    first, last = (int(edge[0]) for edge in bounds_of(one.requests))
    work = with_time(work_of_request(one, 0))
    streams = work.groupby(_STREAM).size().sort_values(ascending=False, kind="stable")
    shown = streams.index[:STREAMS_AT_MOST].sort_values()
    ends = [last, *work["end_ns"].tolist()]
    rows = [
        Row("host: CUDA calls", _host(trace, int(one.requests["thread"].iloc[0]), (first, last))),
        *_streams(work, list(shown), first),
        Row("GPU: gaps", (_gaps(one, first),)),
    ]
    return RequestPicture(
        title=title,
        range_us=(last - first) / _NS_PER_US,
        end_us=(max(ends) - first) / _NS_PER_US,
        rows=tuple(rows),
        hidden_streams=len(streams) - len(shown),
    )


def _host(trace: Trace, thread: int, ends: tuple[int, int]) -> tuple[Bars, ...]:
    """Calls of one thread, cut to the part inside the range."""
    first, last = ends
    calls = calls_of_thread(trace, thread, first, last)
    looks = np.array([_look_of(str(name)) for name in calls["name"]], dtype=np.object_)
    starts, stops = (calls[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    starts, stops = np.maximum(starts, first), np.minimum(stops, last)
    return tuple(
        _bars(look, starts[looks == look], stops[looks == look], first)
        for look in (Look.OTHER_CALLS, Look.WAITS, Look.LAUNCHES)
    )


def _look_of(recorded: str) -> Look:
    return _OF_PART.get(host_part(recorded), Look.OTHER_CALLS)


def _streams(work: pd.DataFrame, streams: list[tuple[int, int, int]], first: int) -> Iterator[Row]:
    several = len({process for process, _, _ in streams}) > 1
    for process, device, stream in streams:
        rows = work[(work["process"] == process) & (work["device"] == device) & (work["stream"] == stream)]
        lead = f"process {process_id(process)}, " if several else ""
        bars = []
        looks = rows["kind"].map(_OF_KIND)
        for look in dict.fromkeys(_OF_KIND.values()):
            of = rows[looks == look]
            bars.append(
                _bars(look, of["start_ns"].to_numpy(np.int64), of["end_ns"].to_numpy(np.int64), first)
            )
        yield Row(f"{lead}GPU {device}: stream {stream}", tuple(bars))


def _gaps(one: Attributed, first: int) -> Bars:
    table = gap_table(one)
    begins, ends = (table[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    return _bars(Look.GAPS, begins, ends, first)


def _bars(look: Look, start_ns: IntArray, end_ns: IntArray, first: int) -> Bars:
    begin, length = (start_ns - first) / _NS_PER_US, np.maximum(end_ns - start_ns, 0) / _NS_PER_US
    return Bars(look, tuple(begin.tolist()), tuple(length.tolist()))
