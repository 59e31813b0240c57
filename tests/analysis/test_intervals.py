import numpy as np
import pytest

from analysis.intervals import IntArray, union_by_group, union_ns


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def covered(starts: IntArray, ends: IntArray) -> set[int]:
    return {moment for start, end in zip(starts, ends, strict=True) for moment in range(start, end)}


def test_overlaps_count_once() -> None:
    assert union_ns(ints(0, 5, 20), ints(10, 15, 30)) == 25


def test_one_inside_another() -> None:
    assert union_ns(ints(0, 2, 3), ints(10, 4, 5)) == 10


def test_touching_and_empty_intervals() -> None:
    assert union_ns(ints(0, 10, 10), ints(10, 20, 10)) == 20
    assert union_ns(ints(), ints()) == 0


def test_interval_that_ends_before_it_starts_covers_nothing() -> None:
    assert union_ns(ints(0, 50), ints(10, 40)) == 10


def test_times_near_the_limits_of_the_type() -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert union_by_group(ints(0, 1), ints(low, high - 3), ints(low + 7, high), 2).tolist() == [7, 3]


@pytest.mark.parametrize("seed", range(40))
def test_groups_against_counting_every_moment(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(0, 15))
    group, starts = random.integers(0, 4, n), random.integers(-60, 60, n)
    ends = starts + random.integers(0, 25, n)
    expected = [len(covered(starts[group == number], ends[group == number])) for number in range(4)]
    assert union_by_group(group, starts, ends, 4).tolist() == expected
