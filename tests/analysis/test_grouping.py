import numpy as np
import pandas as pd
import pytest

from analysis.grouping import FIGURES, AnyIntArray, duration_figures


def by_pandas(group: AnyIntArray, duration: AnyIntArray) -> pd.DataFrame:
    grouped = pd.Series(duration.astype(np.int64)).groupby(group)
    table = grouped.agg(["sum", "count", "mean", "median", "min", "max", "std"])
    table.columns = pd.Index(FIGURES)
    return table.fillna({"stddev_ns": 0.0})


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kinds", [(np.int8, np.int32), (np.int64, np.int64)])
def test_same_as_pandas(seed: int, kinds: tuple[type[np.integer], type[np.integer]]) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 300))
    group: AnyIntArray = random.integers(0, 9, n).astype(kinds[0])
    duration: AnyIntArray = random.integers(-50, int(random.choice([10, 10**9])), n).astype(kinds[1])
    kept = group.copy(), duration.copy()
    expected = by_pandas(group, duration)
    pd.testing.assert_frame_equal(
        duration_figures(group, duration, 12), expected, check_index_type=False, check_exact=False, rtol=1e-12
    )
    assert (group == kept[0]).all()
    assert (duration == kept[1]).all()


def test_one_of_a_kind_deviates_by_nothing() -> None:
    figures = duration_figures(np.array([2, 0]), np.array([7, 5]), 4)
    assert figures.index.tolist() == [0, 2]
    assert figures.to_numpy()[1].tolist() == [7, 1, 7, 7, 7, 7, 0]


def test_no_durations() -> None:
    figures = duration_figures(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0)
    assert list(figures.columns) == list(FIGURES)
    assert figures.empty


def test_durations_that_leave_no_room_for_the_group_in_one_number() -> None:
    group = np.array([0, 1, 1, 0, 1])
    duration = np.array([0, 2**61, 5, 2**60, 3])
    figures = duration_figures(group, duration, 2)
    assert figures["med_ns"].tolist() == [2**59, 5]
    assert figures["total_ns"].tolist() == [2**60, 2**61 + 8]
    assert figures[["min_ns", "max_ns"]].to_numpy().tolist() == [[0, 2**60], [3, 2**61]]
