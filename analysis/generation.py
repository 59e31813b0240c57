"""Generation statistics and the table that a terminal shows of a `GenerationRecord`. No torch.

tokens/s      new tokens over the median wall time of a whole request, prompt included
ms a token    median over the rounds of (request of N tokens - request of N/2) / (N - N/2): what the prompt,
              the launch and the return cost is in both and cancels. It is the cost of a token in the second
              half of the sequence; where the two requests need caches of different sizes it holds that too.
x floor       ms a token over the time to read the weights once at this run's bandwidth
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.console import SIMULATION_NOTE
from analysis.latency import Reduction, reduction, summarise
from contract import GenerationFields, GenerationRecord, GenerationStrategy

_BASELINE = GenerationStrategy.GENERATE.value
_PLAIN, _FUSED = GenerationStrategy.GRAPH.value, GenerationStrategy.GRAPH_FUSED.value


@dataclass(frozen=True)
class GenerationSummary:
    """One strategy's rate; `ms_per_token` is None for a single token, `floor_ratio` without a floor."""

    median_ms: float
    tokens_per_s: float
    ms_per_token: float | None
    floor_ratio: float | None


@dataclass(frozen=True)
class PayBack:
    """When compiling has paid for itself.

    Attributes:
        extra_s: what fused graphs cost more than plain ones before the first request, seconds.
        gain_ms: by how much the median request is shorter.
        requests: how many requests it takes; None if it never pays.
    """

    extra_s: float
    gain_ms: float
    requests: int | None


def summarise_generation(record: GenerationRecord, name: str) -> GenerationSummary | None:
    """Summarise a strategy, None where it has no samples.

    Raises:
        LaunchgapError: a sample that is no positive finite number.
    """
    fields, settings = record["strategies"].get(name), record["settings"]
    if fields is None or fields["status"] != "ok" or not fields["wall_ms"]:
        return None
    median_ms = summarise(fields["wall_ms"]).median
    per_token, floor = _ms_per_token(fields, settings["new_tokens"] - settings["half_tokens"]), None
    if per_token is not None and record["floor_ms_per_token"] is not None:
        floor = per_token / record["floor_ms_per_token"]
    return GenerationSummary(median_ms, settings["new_tokens"] / median_ms * 1e3, per_token, floor)


def _ms_per_token(fields: GenerationFields, tokens: int) -> float | None:
    if not fields["half_wall_ms"]:
        return None
    longer = np.subtract(fields["wall_ms"], fields["half_wall_ms"])
    return float(np.median(longer)) / tokens


def time_saved(record: GenerationRecord, name: str) -> Reduction | None:
    """How much shorter a whole request is than with `generate`; None where rounds do not form pairs."""
    baseline, other = record["strategies"].get(_BASELINE), record["strategies"].get(name)
    if name == _BASELINE or baseline is None or other is None or not other["interleaved"]:
        return None
    if not baseline["wall_ms"] or not other["wall_ms"]:
        return None
    return reduction(baseline["wall_ms"], other["wall_ms"], int(record["settings"]["seed"]))


def pay_back(record: GenerationRecord) -> PayBack | None:
    """When compiling has paid, `graph_fused` against `graph`; None where either was not measured."""
    plain, fused = summarise_generation(record, _PLAIN), summarise_generation(record, _FUSED)
    if plain is None or fused is None:
        return None
    extra_s = _once_s(record["strategies"][_FUSED]) - _once_s(record["strategies"][_PLAIN])
    gain_ms = plain.median_ms - fused.median_ms
    requests = max(1, math.ceil(extra_s * 1e3 / gain_ms)) if gain_ms > 0 else None
    return PayBack(extra_s, gain_ms, requests)


def _once_s(fields: GenerationFields) -> float:
    return (fields["capture_s"] or 0.0) + (fields["compile_s"] or 0.0)


def generation_table(record: GenerationRecord) -> str:
    """The record as a table with a heading above and what to know of it below."""
    rows = [_row(record, name, fields) for name, fields in record["strategies"].items()]
    table = pd.DataFrame(rows).set_index("strategy").fillna("-").to_string()
    return "\n\n".join([_heading(record), table, "\n".join(_notes(record))])


def _heading(record: GenerationRecord) -> str:
    case, environment, settings = record["case"], record["environment"], record["settings"]
    where = f"{environment['gpu']}, driver {environment['driver']}, CUDA {environment['cuda']}"
    lines = [
        f"{case['model']} {case['dtype']}, {case['prompt_length']} prompt tokens and "
        f"{settings['new_tokens']} new ones, greedy, batch 1, {settings['runs']} runs",
        f"{environment['cpu'] if record['simulated'] else where}, torch {environment['torch']}, "
        f"transformers {environment['transformers']}",
    ]
    if record["model"]["weights"] == "random":
        lines.append(f"random weights: {record['model']['reason']} (speed is real, text is not)")
    return "\n".join(lines)


def _row(record: GenerationRecord, name: str, fields: GenerationFields) -> dict[str, str]:
    found = summarise_generation(record, name)
    if found is None:
        return {"strategy": name, "median ms": fields["status"]}
    numbers = {
        "min ms": (min(fields["wall_ms"]), ".2f"),
        "max ms": (max(fields["wall_ms"]), ".2f"),
        "tokens/s": (found.tokens_per_s, ".1f"),
        "ms a token": (found.ms_per_token, ".3f"),
        "floor ms": (record["floor_ms_per_token"], ".3f"),
        "x floor": (found.floor_ratio, ".2f"),
        "first request s": (fields["first_request_s"], ".2f"),
        "capture s": (fields["capture_s"], ".2f"),
        "compile s": (fields["compile_s"], ".1f"),
    }
    row = {"strategy": name, "median ms": f"{found.median_ms:.2f}"}
    row |= {key: "-" if value is None else format(value, form) for key, (value, form) in numbers.items()}
    return row | {"time saved [95 %]": _saved_cell(record, name), "tokens": _tokens_cell(name, fields)}


def _saved_cell(record: GenerationRecord, name: str) -> str:
    # The simulation saves the host's work of generate() alone, which says nothing of graphs.
    found = None if record["simulated"] else time_saved(record, name)
    if found is None:
        return "-"
    interval = "" if found.low is None else f" [{found.low:.1f}, {found.high:.1f}]"
    return f"{found.percent:.1f} %{interval}"


def _tokens_cell(name: str, fields: GenerationFields) -> str:
    agreement = fields["agreement"]
    if agreement is None:
        return "reference" if name == _BASELINE else "not compared"
    return "identical" if agreement["identical"] else f"differ from {agreement['first_divergence']} on"


def _notes(record: GenerationRecord) -> list[str]:
    notes = [SIMULATION_NOTE] if record["simulated"] else [*_pay_back_notes(record)]
    notes.append(_floor_note(record))
    half = record["settings"]["half_tokens"]
    if half:
        notes.append(
            f"ms a token: requests of {record['settings']['new_tokens']} tokens less those of {half}, over "
            "the difference; tokens/s: whole requests, prompt included; time saved: against generate"
        )
    apart = [name for name, one in record["strategies"].items() if not one["interleaved"] and one["wall_ms"]]
    if apart:
        notes.append(f"{', '.join(apart)}: measured after the others, one at a time and not interleaved")
    for name, fields in record["strategies"].items():
        notes += _row_notes(name, fields)
    return notes


def _floor_note(record: GenerationRecord) -> str:
    weight_bytes, bandwidth = record["weight_bytes_read"], record["read_bandwidth_bytes_per_s"]
    if weight_bytes is None:
        return "floor: none for a mixture of experts, whose tokens read some experts each"
    read = f"floor: a token reads {weight_bytes:,} bytes of weights"
    if bandwidth is None:
        return f"{read}; no read bandwidth was measured here"
    return f"{read}, at the {bandwidth / 1e9:.0f} GB/s that this run reached"


def _pay_back_notes(record: GenerationRecord) -> list[str]:
    found = pay_back(record)
    if found is None:
        return []
    if found.requests is None:
        return [f"{_FUSED} is not faster than {_PLAIN} here: compiling never pays"]
    return [
        f"{_FUSED} pays after {found.requests} requests like these: it costs {found.extra_s:.1f} s more once "
        f"and saves {found.gain_ms:.2f} ms each time"
    ]


def _row_notes(name: str, fields: GenerationFields) -> list[str]:
    notes = [fields["reason"]] if fields["reason"] else []
    notes += [f"{name}: {note}" for note in fields["notes"]]
    agreement = fields["agreement"]
    if agreement is not None and agreement["logits"] and agreement["reference_logits"]:
        (ours, theirs), (our_token, their_token) = agreement["logits"], agreement["reference_logits"]
        notes.append(
            f"{name}: at token {agreement['first_divergence']} the logits of its choice and generate's are "
            f"{ours:.6g} and {theirs:.6g}, by generate {our_token:.6g} and {their_token:.6g}"
        )
    return notes
