"""Launches and kernels of an old and a new run of one strategy: what came, went, changed count or slowed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.compare_sides import KERNEL_KEYS, LAUNCH_KEYS, Case
from analysis.compare_statistics import Change, FloatArray, Floor, mean_changes, verdict
from analysis.latency import DRIFT_PERCENT


class What(StrEnum):
    """What became of a launch call or a kernel. A changed count counts before a changed duration."""

    CAME = "came"
    WENT = "went"
    MORE = "more calls"
    FEWER = "fewer calls"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"


LAUNCH_CHANGE_COLUMNS = (
    *("case", "strategy", "trace_mode", "what", "api", "kind"),
    *("old_calls_per_request", "new_calls_per_request", "old_us_per_request", "new_us_per_request"),
)
KERNEL_CHANGE_COLUMNS = (
    *("case", "strategy", "what", "kernel", "full_name", "old_calls_per_request", "new_calls_per_request"),
    *("old_mean_us", "new_mean_us", "change_percent", "low_percent", "high_percent", "floor_percent"),
    "difference_us",
)
"""Mean duration of a call and its change; `difference_us` is of GPU time per request, new minus old."""

RESAMPLES = 2_000
"""Bootstrap resamples behind each kernel's interval; there are hundreds of kernels."""

_LEAST_CALLS = 1e-6


def launch_changes(case: str, old: Case, new: Case) -> pd.DataFrame:
    """Launch calls of traces that both sides have, by API; columns `LAUNCH_CHANGE_COLUMNS`, as traced.

    `slower` and `faster` are not told of them: host times under a profiler are no measurement.
    """
    labels = ["strategy", "trace_mode"]
    table = _joined(old.launches, new.launches, LAUNCH_KEYS, labels)
    if table is None:
        return pd.DataFrame(columns=list(LAUNCH_CHANGE_COLUMNS))
    table = table.rename(
        columns={f"{side}_launch_api_us_per_request": f"{side}_us_per_request" for side in _SIDES}
    )
    table = table.assign(case=case, what=[str(_counted(*calls)) for calls in _calls(table)])
    order = (table["new_calls_per_request"] - table["old_calls_per_request"]).abs()
    return _sorted(table, order, "api", LAUNCH_CHANGE_COLUMNS)


def kernel_changes(case: str, old: Case, new: Case) -> pd.DataFrame:
    """Kernels of strategies that both sides traced, by full name; columns `KERNEL_CHANGE_COLUMNS`.

    With the duration of every call the change of the mean has an interval and a floor, and a kernel is slower
    or faster if all of the interval is beyond the floor. With tables alone it is if the mean moved by more
    than `DRIFT_PERCENT`. What weighs most comes first.
    """
    table = _joined(old.kernels, new.kernels, KERNEL_KEYS, ["strategy"])
    if table is None:
        return pd.DataFrame(columns=list(KERNEL_CHANGE_COLUMNS))
    change = (table["new_mean_us"] - table["old_mean_us"]) / table["old_mean_us"] * 100.0
    difference = table["new_total_us_per_request"] - table["old_total_us_per_request"]
    table = table.assign(case=case, change_percent=change, difference_us=difference)
    table = table.join(_intervals(table, old, new))
    table = table.assign(what=[str(_what(row)) for _, row in table.iterrows()])
    return _sorted(table, table["difference_us"].abs(), "full_name", KERNEL_CHANGE_COLUMNS)


def labels_on_one_side(old: Case, new: Case) -> list[tuple[str, str]]:
    """Strategies whose kernels, or traces whose launches, one traced side lacks: what, and `old` or `new`."""
    found: list[tuple[str, str]] = []
    for before, after, names, words in (
        (old.launches, new.launches, ["strategy", "trace_mode"], "launches of {0} in {1} mode"),
        (old.kernels, new.kernels, ["strategy"], "kernels of {0}"),
    ):
        if before is not None and after is not None:
            ours, theirs = _labels(before, names), _labels(after, names)
            found += [(words.format(*label), "old") for label in sorted(ours - theirs)]
            found += [(words.format(*label), "new") for label in sorted(theirs - ours)]
    return found


_SIDES = ("old", "new")


def _labels(table: pd.DataFrame, names: list[str]) -> set[tuple[str, ...]]:
    return {tuple(map(str, row)) for row in table[names].itertuples(index=False)}


def _joined(
    old: pd.DataFrame | None, new: pd.DataFrame | None, keys: Sequence[str], labels: list[str]
) -> pd.DataFrame | None:
    """Both tables side by side, of the labels that both have; what one lacks has 0 calls and no mean."""
    if old is None or new is None:
        return None
    both = _labels(old, labels) & _labels(new, labels)
    if not both:
        return None
    values = [name for name in old.columns if name not in keys]
    # A kernel's short name depends on what else is in its table: the full one is the key.
    on = [name for name in keys if name != "kernel"]
    parts = []
    for side, table in zip(_SIDES, (old, new), strict=True):
        kept = [tuple(map(str, row)) in both for row in table[labels].itertuples(index=False)]
        parts.append(table[kept].rename(columns={name: f"{side}_{name}" for name in (*values, "kernel")}))
    table = parts[0].merge(parts[1], on=on, how="outer").reset_index(drop=True)
    if "kernel" in keys:
        table["kernel"] = table["new_kernel"].fillna(table["old_kernel"])
    counts = [name for name in table.columns if str(name).endswith("_per_request")]
    return table.assign(**{name: table[name].astype("float64").fillna(0.0) for name in counts})


def _calls(table: pd.DataFrame) -> list[tuple[float, float]]:
    pairs = table[["old_calls_per_request", "new_calls_per_request"]].to_numpy(dtype=np.float64)
    return [(float(old), float(new)) for old, new in pairs]


def _counted(old: float, new: float) -> What:
    if abs(new - old) <= _LEAST_CALLS:
        return What.SAME
    if old <= _LEAST_CALLS:
        return What.CAME
    if new <= _LEAST_CALLS:
        return What.WENT
    return What.MORE if new > old else What.FEWER


def _what(row: pd.Series[float]) -> What:
    counted = _counted(float(row["old_calls_per_request"]), float(row["new_calls_per_request"]))
    change = float(row["change_percent"])
    if counted is not What.SAME or np.isnan(change):
        return counted
    low, high, floor = (float(row[name]) for name in ("low_percent", "high_percent", "floor_percent"))
    if np.isnan(low) or np.isnan(high) or np.isnan(floor):
        moved = abs(change) > DRIFT_PERCENT
        return (What.SLOWER if change > 0 else What.FASTER) if moved else What.SAME
    told = verdict(Change(change, low, high), Floor(floor, ""))
    return What(told) if told in ("slower", "faster") else What.SAME


def _intervals(table: pd.DataFrame, old: Case, new: Case) -> pd.DataFrame:
    columns = ["low_percent", "high_percent", "floor_percent"]
    found = pd.DataFrame(np.nan, index=table.index, columns=columns)
    if old.durations is None or new.durations is None:
        return found
    is_common = (table["old_calls_per_request"] > 0) & (table["new_calls_per_request"] > 0)
    names = table.loc[is_common, "full_name"].tolist()
    sides = [_by_request(side.durations, names) for side in (old, new) if side.durations is not None]
    if not names or min(len(total) for total, _ in sides) < 2:
        return found
    (old_sum, old_calls), (new_sum, new_calls) = sides
    found.loc[is_common] = mean_changes(old_sum, old_calls, new_sum, new_calls, RESAMPLES)
    return found


def _by_request(durations: pd.DataFrame, names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Microseconds and calls of each kernel in each request, both of shape (requests, names)."""
    request, requests = pd.factorize(durations["request"], sort=True)
    name = pd.Index(names).get_indexer(pd.Index(durations["full_name"]))
    wanted = name >= 0
    place = (request[wanted], name[wanted])
    total, calls = np.zeros((len(requests), len(names))), np.zeros((len(requests), len(names)))
    np.add.at(total, place, durations["us"].to_numpy(dtype=np.float64)[wanted])
    np.add.at(calls, place, 1.0)
    return total, calls


def _sorted(table: pd.DataFrame, weight: pd.Series[float], name: str, columns: Sequence[str]) -> pd.DataFrame:
    ranked = table.assign(weight=weight).sort_values(
        ["weight", "strategy", name], ascending=[False, True, True]
    )
    return ranked[list(columns)].reset_index(drop=True)
