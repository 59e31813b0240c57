"""Compares two runs of the same cases: latency, launches, kernels, environment; see docs/compare.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.compare_environment import environment_differences
from analysis.compare_sides import Case, Measured, Side
from analysis.compare_statistics import (
    Change,
    Floor,
    largest,
    latency_change,
    percent_change,
    verdict,
)
from analysis.compare_work import (
    KERNEL_CHANGE_COLUMNS,
    LAUNCH_CHANGE_COLUMNS,
    kernel_changes,
    labels_on_one_side,
    launch_changes,
)
from analysis.finding import Finding
from contract import WITHOUT_GRAPH, LaunchgapError

LATENCY_COLUMNS = (
    *("case", "strategy", "old_ms", "new_ms", "change_percent", "low_percent", "high_percent"),
    *("floor_percent", "cliffs_delta", "verdict", "floor_from", "old_samples", "new_samples"),
)
COUNT_COLUMNS = ("case", "strategy", "old_launches", "new_launches", "old_kernels", "new_kernels")
MISSING_COLUMNS = ("case", "strategy", "what", "old", "new")

THERE, NOT_THERE = "there", "not there"


@dataclass(frozen=True)
class Comparison:
    """What changed from an old to a new run.

    Attributes:
        latency: strategies that both sides measured, in percent of old; columns `LATENCY_COLUMNS`.
        counts: launches and kernels per request of strategies that either side traced; `COUNT_COLUMNS`.
        launches, kernels: every one of them, with what became of it.
        environment: fields that differ and what they usually explain.
        missing: cases, strategies and traces that one side lacks or where one failed; `MISSING_COLUMNS`.
        findings: what a reader must know before believing a number.
        wrong_outputs: case and strategy whose output differs from eager's in the new run.
    """

    latency: pd.DataFrame
    counts: pd.DataFrame
    launches: pd.DataFrame
    kernels: pd.DataFrame
    environment: pd.DataFrame
    missing: pd.DataFrame
    findings: tuple[Finding, ...]
    wrong_outputs: tuple[tuple[str, str], ...]


def compare(old: Side, new: Side, again: Sequence[Side] = ()) -> Comparison:
    """Compare what two sides have in common, by names of cases and strategies.

    `again` are more runs of what `old` ran, on the same machine: how far they are from it counts as noise.

    Raises:
        LaunchgapError: the sides are of different kinds or devices, or have no case in common.
    """
    _check_sides(old, new, again)
    pairs = {name: (old.cases[name], new.cases[name]) for name in old.cases if name in new.cases}
    if not pairs:
        ours, theirs = (", ".join(map(repr, side.cases)) or "none" for side in (old, new))
        raise LaunchgapError(
            f"no case in common: {old.name} has {ours}, {new.name} has {theirs}; give two runs of one case"
        )
    for name, (before, after) in pairs.items():
        _check_device(name, before, after)
    others = {name: [side.cases[name] for side in again if name in side.cases] for name in pairs}
    latency = [row for name, pair in pairs.items() for row in _latency(name, *pair, others[name])]
    wrong = tuple(
        (name, strategy)
        for name, (_, after) in pairs.items()
        for strategy, measured in after.strategies.items()
        if measured.output_differs
    )
    return Comparison(
        latency=_frame(latency, LATENCY_COLUMNS),
        counts=_frame([row for name, pair in pairs.items() for row in _counts(name, *pair)], COUNT_COLUMNS),
        launches=_stacked([launch_changes(n, *pair) for n, pair in pairs.items()], LAUNCH_CHANGE_COLUMNS),
        kernels=_stacked([kernel_changes(n, *pair) for n, pair in pairs.items()], KERNEL_CHANGE_COLUMNS),
        environment=environment_differences(pairs),
        missing=_frame(list(_missing(old, new, pairs)), MISSING_COLUMNS),
        findings=(*_findings(old, new, pairs), *map(_of_output, wrong)),
        wrong_outputs=wrong,
    )


def noise_floor(strategy: str, old: Case, new: Case, again: Sequence[Case] = ()) -> Floor:
    """What noise alone may do to a strategy, in percent: the largest of what the runs show of it.

    That is, of either run, the drift from the first half of its rounds to the second. For strategies that
    launch one by one, whose time is the host's, also the end of the interval of eager against eager that is
    further from zero. With more runs of the old code, the change from old to each of them.

    Raises:
        LaunchgapError: neither run was measured.
    """
    found: list[Floor] = []
    for title, case in (("OLD", old), ("NEW", new)):
        drift = case.strategies[strategy].drift_percent
        if drift is not None:
            found.append(Floor(abs(drift), f"drift within {title}"))
        aa = case.noise
        if strategy in WITHOUT_GRAPH and aa is not None and aa.low is not None and aa.high is not None:
            found.append(Floor(max(abs(aa.low), abs(aa.high)), f"eager against eager in {title}"))
    before = old.strategies[strategy].median_ms
    for other in again:
        median_ms = other.strategies[strategy].median_ms if strategy in other.strategies else None
        if before is not None and median_ms is not None:
            found.append(Floor(abs(percent_change(before, median_ms)), "another run of OLD"))
    return largest(found)


def _check_sides(old: Side, new: Side, again: Sequence[Side]) -> None:
    for side in (new, *again):
        if side.kind != old.kind:
            words = {"run": "measured without a profiler", "trace": "a trace"}
            raise LaunchgapError(
                f"{old.name} is {words[old.kind]}, {side.name} is {words[side.kind]}; give two of one kind"
            )


def _check_device(name: str, old: Case, new: Case) -> None:
    if old.device is not None and new.device is not None and old.device != new.device:
        raise LaunchgapError(
            f"{name}: OLD ran on {old.device}, NEW on {new.device}; a simulation on the CPU says nothing "
            "about a GPU, so compare two runs of one device"
        )


def _latency(name: str, old: Case, new: Case, again: Sequence[Case]) -> Iterator[tuple[object, ...]]:
    for strategy, before in old.strategies.items():
        after = new.strategies.get(strategy)
        if after is None or before.median_ms is None or after.median_ms is None:
            continue
        if before.samples_ms and after.samples_ms:
            change = latency_change(before.samples_ms, after.samples_ms, old.seed)
        else:
            change = Change(percent_change(before.median_ms, after.median_ms))
        floor = noise_floor(strategy, old, new, again)
        yield (
            *(name, strategy, before.median_ms, after.median_ms, change.percent, change.low, change.high),
            *(floor.percent, change.cliffs_delta, verdict(change, floor), floor.source),
            *(len(before.samples_ms), len(after.samples_ms)),
        )


def _counts(name: str, old: Case, new: Case) -> Iterator[tuple[object, ...]]:
    for strategy, before in old.strategies.items():
        after = new.strategies.get(strategy)
        if after is not None:
            row = (before.launches, after.launches, before.kernels, after.kernels)
            if any(value is not None for value in row):
                yield (name, strategy, *row)


def _missing(old: Side, new: Side, pairs: dict[str, tuple[Case, Case]]) -> Iterator[tuple[object, ...]]:
    names = dict.fromkeys((*old.cases, *old.broken, *new.cases, *new.broken))
    for name in names:
        if name not in pairs:
            yield (name, "", "case", *(_presence(side, name) for side in (old, new)))
            continue
        before, after = pairs[name]
        for strategy in dict.fromkeys((*before.strategies, *after.strategies)):
            states = [_state(case.strategies.get(strategy)) for case in (before, after)]
            if states != [THERE, THERE]:
                yield (name, strategy, "strategy", *states)
        for what, side in labels_on_one_side(before, after):
            yield (name, "", what, *((THERE, NOT_THERE) if side == "old" else (NOT_THERE, THERE)))


def _presence(side: Side, name: str) -> str:
    return (
        f"unusable: {side.broken[name]}"
        if name in side.broken
        else (THERE if name in side.cases else NOT_THERE)
    )


def _state(measured: Measured | None) -> str:
    if measured is None:
        return NOT_THERE
    if measured.status != "ok":
        return f"failed: {measured.error or 'no reason recorded'}"
    traced = measured.launches is not None or measured.kernels is not None
    return THERE if measured.median_ms is not None or traced else "no samples"


def _findings(old: Side, new: Side, pairs: dict[str, tuple[Case, Case]]) -> Iterator[Finding]:
    for title, side in (("OLD", old), ("NEW", new)):
        yield from (replace(finding, what=f"{title}: {finding.what}") for finding in side.findings)
        for name, case in side.cases.items():
            if all(_state(measured) != THERE for measured in case.strategies.values()):
                what = f"{title}: no strategy of {name} has a successful run"
                yield Finding("warning", what, 1, "nothing of it can be compared", "measure again")
    for name, (before, after) in pairs.items():
        told = ", ".join(
            f"{field} {value} and {after.identity[field]}"
            for field, value in before.identity.items()
            if after.identity.get(field, value) != value
        )
        if told:
            effect, remedy = "changes have that reason as well", "compare runs of one case"
            yield Finding("warning", f"{name}: not the same case ({told})", 1, effect, remedy)


def _of_output(wrong: tuple[str, str]) -> Finding:
    what = f"{wrong[0]}: {wrong[1]}'s output differs from eager's in NEW"
    return Finding("warning", what, 1, "its latency is that of something else", "mend the output first")


def _frame(rows: Sequence[tuple[object, ...]], columns: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows), columns=list(columns))
    numbers = [
        name for name in columns if name.endswith(("_ms", "_percent", "_delta", "_launches", "_kernels"))
    ]
    return table.astype(dict.fromkeys(numbers, np.float64))


def _stacked(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    whole = [part for part in parts if len(part)]
    return pd.concat(whole, ignore_index=True) if whole else pd.DataFrame(columns=list(columns))
