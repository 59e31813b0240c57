"""Differences between the environments of two runs, and what such a difference usually explains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.compare_sides import Case

ENVIRONMENT_COLUMNS = ("field", "old", "new", "cases", "usually_explains")

_KERNELS = "other kernels and another choice among them, so came, went and slower kernels"
_HOST = "the host's time, so eager latency; replays hardly"
MEANINGS = {
    "gpu": "all of it: another GPU runs other kernels at another speed",
    "gpus": "all of it: another GPU runs other kernels at another speed",
    "driver": "launch costs and the time of a graph launch by a few percent",
    "cuda": _KERNELS,
    "torch": f"{_KERNELS}; other launches in eager",
    "transformers": "other operations in the model, so launches and kernels that came or went",
    "python": _HOST,
    "cpu": _HOST,
    "cpu_threads": _HOST,
    "system": _HOST,
    "tf32": "matrix kernels: TF32 is several times as fast in float32 and rounds more",
    "sm_clock_mhz": "all GPU times, by the ratio of the clocks",
    "memory_clock_mhz": "kernels that wait for memory, by the ratio of the clocks",
    "weights": "nothing in latency, which does not depend on the weights' values; text does",
    "source": "another model under the same name, or the same from another place",
    "architecture": "another model: other kernels and launches",
    "parameters": "another model: other kernels and launches",
    "nsys_version": "times as traced and names of calls; no latency, and no count of kernels",
    "export_schema": "how the trace is stored; no number",
    "tracer": "times as traced, and which calls are recorded; no latency",
    "trace_mode": "replays shown node by node or whole: compare traces of one mode",
    "runs": "the width of the intervals",
    "warmup_s": "the first rounds, where the warm-up is short",
    "seed": "the prompts; nothing in latency",
    "schema_version": "how launchgap stores it; no number",
}
"""What a difference in a field usually explains, by the field's name."""

_UNKNOWN = "not known to launchgap"
_CLOCKS = ("sm_clock_mhz", "memory_clock_mhz")
_MODEL = ("architecture", "source", "weights", "parameters")
_SETTINGS = ("runs", "warmup_s", "seed")
_ALL = "all"


def environment_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record (latency, trace, or a case of a report) may explain a change, by name.

    Of the clocks those before the first round count. Power and temperature, which no two runs share, do not.
    """
    found = record.get("environment") or {}
    plain = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
    clocks = found.get("clocks_before") or {}
    parts = (
        (clocks, _CLOCKS),
        (record.get("model") or {}, _MODEL),
        (record.get("settings") or {}, _SETTINGS),
    )
    named = {name: part[name] for part, names in parts for name in names if name in part}
    schema = {"schema_version": record["schema_version"]} if "schema_version" in record else {}
    return {**plain, **named, **schema}


def environment_differences(cases: Mapping[str, tuple[Case, Case]]) -> pd.DataFrame:
    """Fields that differ between old and new, those alike in several cases once; `ENVIRONMENT_COLUMNS`.

    A field that one side does not tell is left out: nothing is known of it.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for case, (old, new) in cases.items():
        for name in old.environment:
            before, after = old.environment[name], new.environment.get(name)
            if before is not None and after is not None and before != after:
                found.setdefault((name, _text(before), _text(after)), []).append(case)
    order = [*MEANINGS]
    ranked = sorted(found, key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key))
    rows = [
        (
            *key,
            _ALL if len(found[key]) == len(cases) else ", ".join(found[key]),
            MEANINGS.get(key[0], _UNKNOWN),
        )
        for key in ranked
    ]
    return pd.DataFrame(rows, columns=list(ENVIRONMENT_COLUMNS), dtype="object")


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
