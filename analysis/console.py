"""The comparison table that a terminal shows."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from analysis.case_words import is_step, request_words
from analysis.costs import (
    floor_sentence,
    last_logits,
    last_logits_sentence,
    other_streams_sentence,
    pays_after_requests,
)
from analysis.latency import drift_sentence, noise, reduction, summarise, verdict
from contract import CaseFields, CorrectnessFields, LatencyRecord, Strategy, StrategyFields

SIMULATION_NOTE = (
    "Simulation on the CPU: operations were recorded and replayed under a graph's rules. There are no kernel "
    "launches to save, so no speed-up is to be expected and none is judged."
)

_COSTS = ("compile s", "capture s", "graph MiB", "pays after requests")
"""Columns on the right; not every strategy has every cost."""


def comparison_table(record: LatencyRecord) -> str:
    """The record as a table of milliseconds with a heading above and the verdict below.

    A star marks a strategy that gives the last token's logits alone.
    """
    rows = [_row(record, name, fields) for name, fields in record["strategies"].items()]
    found = pd.DataFrame(rows).set_index("strategy").fillna("-")
    costs = [name for name in _COSTS if name in found]
    table = found[[*found.columns.difference(costs, sort=False), *costs]].to_string()
    return "\n\n".join([_heading(record), table, "\n".join(_notes(record))])


def why_below(record: LatencyRecord, fail_under: float | None) -> str | None:
    """Why `graph` does not surely reduce the median by `fail_under` percent, or None if it does.

    Neither an output that differs from eager's nor one that was not compared passes, however fast.
    """
    if fail_under is None:
        return None
    judged = verdict(record)
    low = judged.reduction.low if judged.reduction is not None else None
    if judged.status == "none" or judged.wrong_output or low is None:
        return f"--fail-under {fail_under:g}: {judged.sentence}"
    if low < fail_under:
        return (
            f"--fail-under {fail_under:g}: the reduction's lower bound is {low:.1f} %; "
            "look at the report for what is left, or run more often to narrow the interval"
        )
    return None


def _heading(record: LatencyRecord) -> str:
    case, environment, model = record["case"], record["environment"], record["model"]
    where = f"{environment['gpu']}, driver {environment['driver']}, CUDA {environment['cuda']}"
    lines = [
        f"{case['model']} {case['dtype']}, {_request(case)}, batch 1, {record['settings']['runs']} runs",
        f"{environment['cpu'] if record['simulated'] else where}, torch {environment['torch']}, "
        f"transformers {environment['transformers']}",
    ]
    if model["weights"] == "random":
        lines.append(f"random weights: {model['reason']} (latency is real, text is not)")
    return "\n".join(lines)


def _request(case: CaseFields) -> str:
    if is_step(case):
        return request_words(case)
    return f"{case['prompt_length']} prompt tokens, padded to {case['max_length']}"


def _row(record: LatencyRecord, name: str, fields: StrategyFields) -> dict[str, str]:
    if fields["status"] != "ok" or not fields["event_ms"]:
        return {"strategy": name, "median ms": "failed"}
    summary = summarise(fields["event_ms"])
    row = {
        "strategy": f"{name} *" if name in last_logits(record) else name,
        "mean ms": f"{summary.mean:.3f}",
        "median ms": f"{summary.median:.3f}",
        "p95 ms": f"{summary.p95:.3f}",
        "min ms": f"{summary.min:.3f}",
        "max ms": f"{summary.max:.3f}",
        "wall median ms": f"{summarise(fields['wall_ms']).median:.3f}",
        "reduction [95 %]": _reduction_cell(record, name, "event_ms"),
        "wall reduction [95 %]": _reduction_cell(record, name, "wall_ms"),
    }
    if fields["correctness"] is not None:
        row |= _correctness_cells(fields["correctness"])
    return row | _cost_cells(record, name, fields)


def _cost_cells(record: LatencyRecord, name: str, fields: StrategyFields) -> dict[str, str]:
    cells = {}
    compile_s, paid = fields.get("compile_s"), pays_after_requests(record, name)
    if fields["capture_s"] is not None:
        cells["capture s"] = f"{fields['capture_s']:.2f}"
    if compile_s is not None:
        cells["compile s"] = f"{compile_s:.1f}"
    if fields["graph_pool_bytes"] is not None:
        cells["graph MiB"] = f"{fields['graph_pool_bytes'] / 2**20:.0f}"
    if paid is not None:
        cells["pays after requests"] = str(paid)
    return cells


def _reduction_cell(record: LatencyRecord, name: str, clock: Literal["event_ms", "wall_ms"]) -> str:
    eager = record["strategies"].get(Strategy.EAGER.value)
    if name == Strategy.EAGER or eager is None or not eager[clock]:
        return "-"
    found = reduction(eager[clock], record["strategies"][name][clock], record["settings"]["seed"])
    interval = "" if found.low is None else f" [{found.low:.1f}, {found.high:.1f}]"
    return f"{found.percent:.1f} %{interval}"


def _correctness_cells(found: CorrectnessFields) -> dict[str, str]:
    difference = found["max_abs_difference"]
    return {
        "allclose": "bitwise" if found["bitwise"] else "yes" if found["allclose"] else "no",
        "max diff": "not a number" if difference is None else f"{difference:.1e}",
        "output": found["verdict"],
    }


def _notes(record: LatencyRecord) -> list[str]:
    notes = [SIMULATION_NOTE if record["simulated"] else verdict(record).sentence]
    rules = {f["correctness"]["rule"] for f in record["strategies"].values() if f["correctness"]}
    notes += [f"output: {rule}" for rule in sorted(rules)]
    aa = noise(record)
    if aa is not None and aa.low is not None:
        notes.append(
            f"noise: eager against eager differs by {aa.percent:.1f} % [{aa.low:.1f}, {aa.high:.1f}]"
        )
    last = last_logits_sentence(record)
    told = [f"* {last}" if last else None, other_streams_sentence(record)]
    told += [floor_sentence(record), drift_sentence(record)]
    notes += [sentence for sentence in told if sentence]
    notes += [fields["error"] for fields in record["strategies"].values() if fields["error"]]
    return notes
