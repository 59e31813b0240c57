"""What must hold for every trace, tried on small random ones.

They have several processes, threads, devices and streams, nested and overlapping requests, calls without
work, work without calls, and times before the session's start.
"""

import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from analysis.attribute import Attributed, RangeSelector, attribute, count_by_request
from analysis.findings import inspect
from analysis.intervals import union_ns
from analysis.leaks import find_leaks
from analysis.ledger import bounds_of, gap_table
from analysis.scrub import scrub
from analysis.summaries import api_summary, kernel_summary
from analysis.tables import CountedTrace, TraceLabel, launches_table, requests_table
from analysis.trace import Trace, read_trace
from contract import TraceMode
from tests.analysis.trace_file import PROCESS, TraceFile

PROCESS_STEP = 1 << 24
CALLS = {
    "kernel": "cudaLaunchKernel_v7000",
    "memcpy": "cudaMemcpyAsync_v3020",
    "memset": "cudaMemsetAsync_v3020",
    "replay": "cudaGraphLaunch_v10000",
}
INSIDE = """
    FROM CUPTI_ACTIVITY_KIND_{table} AS g
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r
      ON r.correlationId = g.correlationId AND r.globalTid & ~0xFFFFFF = g.globalPid
    JOIN NVTX_EVENTS AS n ON n.globalTid = r.globalTid AND n.start <= r.start AND r.end <= n."end"
    JOIN StringIds AS s ON s.id = n.textId
    WHERE s.value = 'request' AND n.eventType = 59
"""

SEED = random.SystemRandom().randrange(2**32)
"""One for all tests of a run: they are given the same traces, so that each is built and read once."""
FOLDER = tempfile.TemporaryDirectory()

times = st.integers(-300, 300)
places = st.tuples(st.integers(0, 1), st.integers(0, 1))  # process and thread


@dataclass(frozen=True)
class Launch:
    """A call, the work that it started, or one of both."""

    place: tuple[int, int]
    kind: str
    call_start: int
    call_ns: int
    delay_ns: int
    run_ns: int
    device: int
    stream: int
    shown: str  # "both", "call", "work"


launches = st.builds(
    Launch,
    place=places,
    kind=st.sampled_from(sorted(CALLS)),
    call_start=times,
    call_ns=st.integers(0, 20),
    delay_ns=st.integers(-5, 60),
    run_ns=st.integers(0, 50),
    device=st.integers(0, 1),
    stream=st.integers(7, 8),
    shown=st.sampled_from(["both", "both", "both", "call", "work"]),
)
spans = st.tuples(places, times, st.integers(0, 200))


@dataclass(frozen=True)
class Example:
    """A random trace, read, attributed and still there."""

    path: Path
    trace: Trace
    found: Attributed

    def rows(self, sql: str) -> list[tuple[int | str | float, ...]]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def has(self, table: str) -> bool:
        return bool(self.rows(f"SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_{table}'"))


def add_work(file: TraceFile, launch: Launch, process: int, correlation: int) -> None:
    start = launch.call_start + launch.delay_ns
    end = start + launch.run_ns
    where: dict[str, int | str | None] = {
        "globalPid": process,
        "deviceId": launch.device,
        "streamId": launch.stream,
    }
    if launch.kind == "kernel":
        file.kernel(f"k{launch.run_ns % 3}", start, end, correlation, **where)
    else:
        add = {"memcpy": file.memcpy, "memset": file.memset, "replay": file.replay}[launch.kind]
        add(start, end, correlation, **where)


def build(path: Path, requests: list[tuple[tuple[int, int], int, int]], work: list[Launch]) -> Path:
    """Correlation ids are the same small numbers in both processes."""
    file = TraceFile(path, mode=None)
    for process in (0, 1):
        file.domain("launchgap", 1, process=PROCESS + process * PROCESS_STEP)
    for (process, thread), start, length in requests:
        file.range("request", start, start + length, thread=PROCESS + process * PROCESS_STEP + 1 + thread)
    number = [0, 0]
    for launch in work:
        process, thread = launch.place
        serialized = PROCESS + process * PROCESS_STEP
        number[process] += 1
        end = launch.call_start + launch.call_ns
        if launch.shown != "work":
            file.call(
                CALLS[launch.kind],
                launch.call_start,
                end,
                thread=serialized + 1 + thread,
                correlation=number[process],
            )
        if launch.shown != "call":
            add_work(file, launch, serialized, number[process])
    return file.save()


@contextmanager
def example(requests: list[tuple[tuple[int, int], int, int]], work: list[Launch]) -> Iterator[Example]:
    """A trace to look at and not to change: other tests look at it, too."""
    yield _example(tuple(requests), tuple(work))


@lru_cache(maxsize=200)
def _example(requests: tuple[tuple[tuple[int, int], int, int], ...], work: tuple[Launch, ...]) -> Example:
    path = build(Path(tempfile.mkdtemp(dir=FOLDER.name)) / "t.sqlite", list(requests), list(work))
    trace = read_trace(path)
    return Example(path, trace, attribute(trace, RangeSelector()))


def random_trace(examples: int = 30) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a test the parts of `examples` random traces."""
    given_parts = given(requests=st.lists(spans, max_size=5), work=st.lists(launches, max_size=14))
    return lambda test: seed(SEED)(settings(max_examples=examples, deadline=None)(given_parts(test)))


Requests = list[tuple[tuple[int, int], int, int]]


@random_trace()
def test_covered_time_is_at_most_the_sum_and_at_most_the_span(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        operations = one.found.operations
        starts, ends = (operations[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
        covered = union_ns(starts, ends)
        assert covered <= int((ends - starts).sum())
        if starts.size:
            span = int(ends.max() - starts.min())
            assert int((ends - starts).max()) <= covered <= span


@random_trace()
def test_gaps_one_by_one_are_the_moments_that_work_leaves(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        table = gap_table(one.found)
        operations = one.found.operations
        for number, (first, last) in enumerate(zip(*bounds_of(one.found.requests), strict=True)):
            own = operations[operations["request"] == number]
            busy = [
                set(range(max(start, first), min(end, last)))
                for start, end in zip(own["start_ns"], own["end_ns"], strict=True)
            ]
            gaps = table[table["request"] == number]
            found = [
                set(range(start, end)) for start, end in zip(gaps["start_ns"], gaps["end_ns"], strict=True)
            ]
            whole = set[int]().union(*busy)
            assert all(found)
            assert not whole & set[int]().union(*found)
            if own["start_ns"].lt(own["end_ns"]).all() and whole:
                holes = set(range(min(whole), max(whole) + 1)) - whole
                assert set[int]().union(*found) == holes


@random_trace()
def test_every_launch_lies_in_its_request(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        launched = one.found.launches.merge(
            one.found.requests, left_on="request", right_index=True, suffixes=("", "_of_range")
        )
        assert len(launched) == len(one.found.launches)
        assert (launched["start_ns"] >= launched["start_ns_of_range"]).all()
        assert (launched["end_ns"] <= launched["end_ns_of_range"]).all()
        assert (launched["thread"] == launched["thread_of_range"]).all()


@random_trace()
def test_work_in_requests_is_what_a_naive_join_finds(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        tables = {
            "KERNEL": one.found.kernels,
            "MEMCPY": one.found.memcpys,
            "MEMSET": one.found.memsets,
            "GRAPH_TRACE": one.found.graph_launches,
        }
        for table, ours in tables.items():
            if not requests or not one.has(table) or not one.has("RUNTIME"):
                assert ours.empty
                continue
            sql = 'SELECT count(*), ifnull(sum(g."end" - g.start), 0)' + INSIDE.format(table=table)
            total_ns = int((ours["end_ns"] - ours["start_ns"]).sum())
            assert one.rows(sql) == [(len(ours), total_ns)]


@random_trace()
def test_counts_add_up_over_requests(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        n = len(requests)
        assert len(one.found.requests) == n
        for rows in (one.found.kernels, one.found.memcpys, one.found.memsets, one.found.launches):
            per_request = count_by_request(rows, n)
            assert per_request.size == n
            assert int(per_request.sum()) == len(rows)
        counted = CountedTrace(TraceLabel("x", TraceMode.NODE), one.found, one.trace.has_gpu_work)
        table = requests_table([counted])
        assert len(table) == n
        assert table["launches"].fillna(0).sum() == (len(one.found.launches) if one.trace.has_gpu_work else 0)
        mean_calls = launches_table([counted])["calls_per_request"].astype(float).sum()
        assert round(mean_calls * n) == len(one.found.launches)
        busy, span = table["gpu_busy_us"].astype(float), table["gpu_span_us"].astype(float)
        # Two devices may be busy at once.
        assert (busy <= 2 * 2 * span + 1e-9)[busy.notna() & span.notna()].all()


@random_trace()
def test_summaries_are_what_a_naive_query_gives(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        for table, key, ours in (
            ("KERNEL", "demangledName", kernel_summary(one.trace)),
            ("RUNTIME", "nameId", api_summary(one.trace)),
        ):
            if not one.has(table):
                assert ours.empty
                continue
            theirs = one.rows(
                'SELECT value, count(*), sum("end" - start), min("end" - start), max("end" - start), '
                f'avg("end" - start) FROM CUPTI_ACTIVITY_KIND_{table} JOIN StringIds AS s ON s.id = {key} '
                "GROUP BY value ORDER BY value"
            )
            columns = ["name", "instances", "total_ns", "min_ns", "max_ns", "avg_ns"]
            expected = pd.DataFrame(theirs, columns=columns)
            mine = ours[columns].sort_values("name", ignore_index=True)
            pd.testing.assert_frame_equal(mine, expected, check_dtype=False)


@random_trace(20)
def test_scrubbing_keeps_every_number(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        clean = one.path.with_name("clean.sqlite")
        clean.write_bytes(scrub(one.path))
        after = read_trace(clean)
        for name in ("kernels", "memcpys", "memsets", "graph_launches", "api_calls", "ranges"):
            pd.testing.assert_frame_equal(getattr(one.trace, name), getattr(after, name))
        assert find_leaks(clean) == []
        # A scrubbed trace is judged as the whole one is.
        assert inspect(after) == inspect(one.trace)


@random_trace(20)
def test_cutting_to_requests_keeps_their_numbers(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        if one.found.requests.empty:
            return
        clean = one.path.with_name("clean.sqlite")
        clean.write_bytes(scrub(one.path, only_requests=True))
        found = attribute(read_trace(clean), RangeSelector())
        for name in ("requests", "launches", "kernels", "memcpys", "memsets", "graph_launches"):
            before, after = (
                getattr(side, name).drop(columns="call", errors="ignore") for side in (one.found, found)
            )
            kept = [column for column in before if column not in {"name", "api"}]
            pd.testing.assert_frame_equal(before[kept], after[kept], check_dtype=False)


@random_trace(40)
def test_findings_count_what_is_there(requests: Requests, work: list[Launch]) -> None:
    with example(requests, work) as one:
        findings = inspect(one.trace)
        assert all(finding.sentence.isprintable() and finding.count >= 0 for finding in findings)
        silent = {
            is_graph: sum(launch.shown == "call" and (launch.kind == "replay") is is_graph for launch in work)
            for is_graph in (False, True)
        }
        seen = {finding.what.split(" show no ")[-1].split(" (")[0]: finding.count for finding in findings}
        if one.trace.has_gpu_work:
            assert seen.get("GPU operation", 0) == silent[False]
            assert seen.get("GPU work", 0) == silent[True]
        elif work:
            assert findings[0].severity == "fatal"
            assert findings[0].count == len(work)
