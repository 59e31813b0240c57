import numpy as np
import pytest

from analysis.containment import Spans, contained, layers
from analysis.range_counts import count_in_ranges


def spans(random: np.random.Generator, n: int, length: int, threads: int) -> Spans:
    start = random.integers(0, 60, n)
    return Spans(random.integers(0, threads, n), start, start + random.integers(0, length, n))


def pairs_one_by_one(inner: Spans, outer: Spans) -> set[tuple[int, int]]:
    return {
        (i, o)
        for i in range(inner.start.size)
        for o in range(outer.start.size)
        if inner.thread[i] == outer.thread[o]
        and outer.start[o] <= inner.start[i]
        and inner.end[i] <= outer.end[o]
    }


@pytest.mark.parametrize("seed", range(60))
def test_pairs_and_counts_against_comparing_every_pair(seed: int) -> None:
    random = np.random.default_rng(seed)
    threads = int(random.integers(1, 4))
    calls = spans(random, int(random.integers(0, 40)), 8, threads)
    ranges = spans(random, int(random.integers(0, 15)), int(random.integers(1, 50)), threads)
    expected = pairs_one_by_one(calls, ranges)
    call, place = contained(calls, ranges)
    assert set(zip(call.tolist(), place.tolist(), strict=True)) == expected
    assert len(expected) == call.size

    operations = random.integers(0, 4, calls.start.size)
    group = random.integers(0, 5, ranges.start.size)
    counts = count_in_ranges(calls, operations, ranges, group, 5)
    for number in range(5):
        own = {o for o in range(ranges.start.size) if group[o] == number}
        inside = {i for i, o in expected if o in own}
        assert counts.launching[number] == len({o for _, o in expected if o in own})
        assert counts.launches[number] == len(inside)
        assert counts.operations[number] == sum(int(operations[i]) for i in inside)


def test_a_call_counts_once_for_a_name_that_nests_in_itself() -> None:
    def on_one_thread(*pairs: tuple[int, int]) -> Spans:
        start, end = np.array(pairs, dtype=np.int64).T
        return Spans(np.zeros(len(pairs), dtype=np.int64), start, end)

    calls, ranges = on_one_thread((12, 13), (50, 51)), on_one_thread((0, 100), (10, 20), (11, 15))
    counts = count_in_ranges(calls, np.array([3, 4]), ranges, np.array([0, 0, 1]), 2)
    assert counts.launching.tolist() == [2, 1]
    assert counts.launches.tolist() == [2, 1]
    assert counts.operations.tolist() == [7, 3]


def test_layers_of_calls_inside_calls() -> None:
    start, end = np.array([0, 1, 2, 20, 21]), np.array([10, 9, 3, 30, 30])
    found = [layer.tolist() for layer in layers(np.arange(5), start, end)]
    assert found == [[0, 3, 4], [1], [2]]
