"""Launches and kernels of two runs: what came, went, changed count, slowed, with and without single calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.compare_sides import Case, Measured
from analysis.compare_work import kernel_changes, labels_on_one_side, launch_changes

REQUESTS = 20


def kernels(strategy: str = "graph", /, **rows: tuple[float, float]) -> pd.DataFrame:
    """Kernels by name, each with calls per request and mean microseconds."""
    return pd.DataFrame(
        {
            "strategy": strategy,
            "kernel": list(rows),
            "full_name": [f"void {name}()" for name in rows],
            "calls_per_request": [calls for calls, _ in rows.values()],
            "mean_us": [mean for _, mean in rows.values()],
            "total_us_per_request": [calls * mean for calls, mean in rows.values()],
        }
    )


def launches(mode: str = "node", **calls: float) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "strategy": "eager",
            "trace_mode": mode,
            "api": list(calls),
            "kind": "kernel",
            "calls_per_request": list(calls.values()),
            "launch_api_us_per_request": [5.0 * count for count in calls.values()],
        }
    )


def case(
    kernels: pd.DataFrame | None = None,
    launches: pd.DataFrame | None = None,
    durations: pd.DataFrame | None = None,
) -> Case:
    return Case(
        {}, "cuda", {"graph": Measured("ok")}, launches=launches, kernels=kernels, durations=durations
    )


def durations(seed: int, **means_us: float) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = [
        (request, f"void {name}()", mean * (1 + 0.01 * random.standard_normal()))
        for request in range(REQUESTS)
        for name, mean in means_us.items()
        for _ in range(3)
    ]
    return pd.DataFrame(rows, columns=["request", "full_name", "us"])


def by_kernel(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {
        row["kernel"]: {str(name): value for name, value in row.items()} for row in table.to_dict("records")
    }


def test_kernels_that_came_went_changed_count_or_slowed() -> None:
    old = case(
        kernels(gone=(1, 2.0), more=(3, 1.0), fewer=(4, 1.0), slow=(2, 10.0), fast=(2, 9.0), same=(1, 5.0))
    )
    new = case(
        kernels(come=(2, 3.0), more=(5, 1.0), fewer=(1, 1.0), slow=(2, 12.0), fast=(2, 7.0), same=(1, 5.2))
    )
    table = kernel_changes("case", old, new)
    assert dict(zip(table["kernel"], table["what"], strict=True)) == {
        "come": "came",
        "slow": "slower",
        "fast": "faster",
        "fewer": "fewer calls",
        "gone": "went",
        "more": "more calls",
        "same": "same",
    }
    sizes = table["difference_us"].abs().tolist()
    assert sizes == sorted(sizes, reverse=True)
    rows = by_kernel(table)
    assert rows["come"]["difference_us"] == 6.0
    assert rows["slow"]["change_percent"] == 20.0
    # What is not there has no duration, which is not one of 0.
    assert np.isnan(rows["gone"]["new_mean_us"])
    assert table["low_percent"].isna().all()


def test_single_calls_give_intervals_that_find_what_means_alone_cannot() -> None:
    means = {"a": 10.0, "b": 20.0}
    old = case(kernels(a=(3, 10.0), b=(3, 20.0)), durations=durations(1, **means))
    new = case(kernels(a=(3, 10.3), b=(3, 20.0)), durations=durations(2, a=10.3, b=20.0))
    rows = by_kernel(kernel_changes("case", old, new))
    assert rows["a"]["what"] == "slower"
    assert 0 < rows["a"]["low_percent"] < 3.0 < rows["a"]["high_percent"] < 6
    assert rows["b"]["what"] == "same"
    assert rows["b"]["low_percent"] < 0 < rows["b"]["high_percent"]


def test_kernels_of_the_same_distribution_are_seldom_called_slower() -> None:
    names = {f"k{i}": 5.0 for i in range(300)}
    table = kernels(**{name: (3, mean) for name, mean in names.items()})
    old, new = (case(table, durations=durations(seed, **names)) for seed in (3, 4))
    told = kernel_changes("case", old, new)["what"].value_counts()
    assert told.get("slower", 0) + told.get("faster", 0) < 0.05 * len(names)


def test_a_kernel_that_few_requests_run_has_no_interval() -> None:
    rare = pd.DataFrame({"request": [0], "full_name": ["void rare()"], "us": [4.0]})
    sides = [
        case(
            kernels(a=(3, 10.0), rare=(1 / REQUESTS, 4.0)),
            durations=pd.concat([durations(seed, a=10.0), rare]),
        )
        for seed in (1, 2)
    ]
    rows = by_kernel(kernel_changes("case", *sides))
    assert np.isnan(rows["rare"]["low_percent"])
    assert rows["rare"]["what"] == "same"


def test_launches_of_traces_that_both_have() -> None:
    old = case(launches=launches(cudaLaunchKernel=10, cudaMemcpyAsync=1, cudaMemsetAsync=4))
    new = case(
        launches=pd.concat(
            [launches(cudaLaunchKernel=12, cudaMemcpyAsync=1, cudaGraphLaunch=1), launches("graph", a=1)]
        )
    )
    table = launch_changes("case", old, new)
    assert dict(zip(table["api"], table["what"], strict=True)) == {
        "cudaMemsetAsync": "went",
        "cudaLaunchKernel": "more calls",
        "cudaGraphLaunch": "came",
        "cudaMemcpyAsync": "same",
    }
    # A trace of one side only is no change of its launches.
    assert set(table["trace_mode"]) == {"node"}
    assert labels_on_one_side(old, new) == [("launches of eager in graph mode", "new")]


def test_without_tables_on_both_sides_there_is_nothing_to_tell() -> None:
    old, new = case(kernels(a=(1, 1.0)), launches(a=1)), case()
    assert kernel_changes("case", old, new).empty
    assert launch_changes("case", old, new).empty
    assert labels_on_one_side(old, new) == []
    other = case(kernels("eager", a=(1, 1.0)))
    assert kernel_changes("case", old, other).empty
    assert labels_on_one_side(old, other) == [("kernels of graph", "old"), ("kernels of eager", "new")]
