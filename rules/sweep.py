"""A sweep in the settings: lists of models, dtypes and lengths that become cases. A pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from contract import DEFAULT_ATTENTION, LaunchgapError, Phase

AXES = {
    "models": "model",
    "dtypes": "dtype",
    "prompt_lengths": "prompt_length",
    "max_lengths": "max_length",
    "attn_implementations": "attn_implementation",
    "phases": "phase",
}
"""List of a sweep, and the key of a case that takes each of its values."""

OWN_SETTINGS = (
    "weights",
    "trust_remote_code",
    "allow_pickle",
    "strategies",
    "runs",
    "warmup_s",
    "traced_strategies",
    "traced_requests",
    "capture_timeout_s",
)
"""Settings that a case may have of its own, in place of the ones for all cases."""

CASES_AT_MOST = 1000
"""More than this is a slip of the pen: Snakemake alone would take minutes to think about it."""

_USUAL = {"attn_implementation": DEFAULT_ATTENTION, "phase": Phase.PREFILL.value}

Case = dict[str, Any]


def expand(sweep: Mapping[str, Any] | None) -> list[Case]:
    """The cases of a sweep that its schema accepts, in the order of its lists, then those of `include`.

    Every combination of the lists is a case, unless its prompt is longer than its `max_length` or an entry of
    `exclude` matches it. An entry of `include` is a combination outside of the lists; a key that it leaves
    out takes every value of its list. Each entry of `overrides` then gives its settings to the cases it
    matches.

    Raises:
        LaunchgapError: more cases than `CASES_AT_MOST`, none at all, or an entry that changes nothing.
    """
    if not sweep:
        return []
    axes = {key: list(sweep[name]) for name, key in AXES.items() if name in sweep}
    _refuse_too_many(axes)
    found = _without(list(_combinations(axes)), sweep.get("exclude", ()))
    for index, entry in enumerate(sweep.get("include", ())):
        fixed = {key: [value] for key, value in entry.items() if key not in OWN_SETTINGS}
        more = list(_combinations(axes | fixed))
        if not more:
            raise LaunchgapError(
                f"config: sweep.include[{index}]: its prompts are longer than max_length; mend its lengths"
            )
        own = {key: value for key, value in entry.items() if key in OWN_SETTINGS}
        found += [case | own for case in more]
    if not found:
        raise LaunchgapError("config: sweep: no case is left; exclude less, or give a longer max_length")
    return _overridden(found, sweep.get("overrides", ()))


def _refuse_too_many(axes: Mapping[str, Sequence[Any]]) -> None:
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > CASES_AT_MOST:
        raise LaunchgapError(
            f"config: sweep: its lists make {count} cases, more than {CASES_AT_MOST}; shorten them"
        )


def _combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[Case]:
    """Every combination that can be: a prompt that does not fit is no case."""
    for values in product(*axes.values()):
        case = dict(zip(axes, values, strict=True))
        if case["prompt_length"] <= case["max_length"]:
            yield case


def _without(found: list[Case], exclude: Sequence[Mapping[str, Any]]) -> list[Case]:
    for index, pattern in enumerate(exclude):
        _require_match(f"exclude[{index}]", pattern, found)
    return [case for case in found if not any(_matches(case, pattern) for pattern in exclude)]


def _overridden(found: list[Case], overrides: Sequence[Mapping[str, Any]]) -> list[Case]:
    """The cases with the settings of every entry that matches them; a later entry wins."""
    for index, entry in enumerate(overrides):
        _require_match(f"overrides[{index}].where", entry["where"], found)
        changed = {key: value for key, value in entry.items() if key != "where"}
        found = [case | changed if _matches(case, entry["where"]) else case for case in found]
    return found


def _require_match(where: str, pattern: Mapping[str, Any], found: Sequence[Case]) -> None:
    """An entry without effect is a slip: a model misspelt, a length that no list has."""
    if not any(_matches(case, pattern) for case in found):
        told = ", ".join(f"{key}: {value}" for key, value in pattern.items())
        raise LaunchgapError(f"config: sweep.{where}: no case has {told}; mend it or remove it")


def _matches(case: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Whether a case has every value of a pattern; a list in it means any of its values."""
    for key, wanted in pattern.items():
        value = case.get(key, _USUAL.get(key))
        if value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True
