"""Made-up files of what explains a case, as the analysis writes them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.case_explained import TABLE_COLUMNS
from contract import SCHEMA_VERSION

Row = dict[str, Any]
LEDGER: list[Row] = [
    {"strategy": name, "trace_mode": mode, "request": place, "range_ns": sum(parts), "timed": "yes"}
    | dict(
        zip(("head_ns", "busy_ns", "launch_bound_gaps_ns", "device_gaps_ns", "tail_ns"), parts, strict=True)
    )
    for name, mode, parts in (
        ("eager", "node", (50_000, 1_500_000, 3_000_000, 10_000, 140_000)),
        ("graph", "node", (60_000, 1_600_000, 0, 300_000, 40_000)),
        ("graph", "graph", (20_000, 1_700_000, 30_000, 0, 10_000)),
        ("graph_padded", "graph", (20_000, 9_500_000, 30_000, 0, 10_000)),
    )
    for place in range(3)
]
HOST: list[Row] = [
    {"strategy": row["strategy"], "trace_mode": row["trace_mode"], "request": row["request"]}
    | {"range_ns": row["range_ns"], "launches_ns": 300_000, "synchronising_ns": 20_000, "copies_ns": 0}
    | {"allocations_ns": 0, "other_api_ns": 5_000, "rest_ns": row["range_ns"] - 325_000}
    for row in LEDGER
]
COST: list[Row] = [
    {"strategy": "graph", "trace_mode": "graph", "step": "instantiate"},
    {"strategy": "graph", "trace_mode": "graph", "step": "replay launch", "calls": 19, "total_us": 150.0}
    | {"mean_us": 7.9, "median_us": 7.8, "max_us": 9.0},
    {"strategy": "graph", "trace_mode": "graph", "step": "update", "calls": 0},
]
BLOCKER: Row = {
    **{"strategy": "eager", "harm": "breaks", "blocker": "wait for the GPU", "place": "inside", "count": 3},
    **{"detail": "cudaStreamSynchronize", "per_request": 1.0, "host_us_per_request": 8.5},
    **{"gpu_us_per_request": 0.0, "effect": "waiting is an error", "remedy": "wait after the replay"},
}
SUMMARY: Row = {"quantity": "graph latency", "us": 1700.0, "low_us": 1650.0, "high_us": 1750.0}
SCORE: Row = {
    **{"case": "", "strategy": "graph", "gpu": "NVIDIA H200", "driver": "580.159", "torch": "2.11.0"},
    **{"nodes": 223, "predicted_us": 1700.0, "low_us": 1650.0, "high_us": 1750.0, "measured_us": 1800.0},
    **{"error_percent": -5.5556, "inside": "no", "gap_us": 0.4, "exact_gap_us": 0.85},
}
PREDICTION = {"answer": "helps", "why": "A graph will help: 1,700 us.", "calibrated_gpu": "NVIDIA H200"}


def matched(kernels: Sequence[str]) -> list[Row]:
    """All the same but the first, which is missing in the padded graph for a known reason."""
    rows: list[Row] = []
    for name in ("graph", "graph_padded"):
        for place, kernel in enumerate(kernels):
            lost = name == "graph_padded" and place == 0
            rows.append(
                {"strategy": name, "match": "missing" if lost else "same", "kind": "kernel", "kernel": kernel}
                | {"full_name": f"void {kernel}<float>", "eager_calls_per_request": 2.0}
                | {"graph_calls_per_request": 0.0 if lost else 2.0, "eager_us_per_request": 10.0}
                | {"graph_us_per_request": 0.0 if lost else 9.5, "difference_us": -10.0 if lost else -0.5}
                | {"instead": "other" if lost else "", "reason": "another library" if lost else ""}
            )
    return rows


def escaped(kernel: str) -> Row:
    return {
        **{
            "strategy": "graph",
            "kind": "memcpy",
            "kernel": kernel,
            "full_name": kernel,
            "other_stream": "no",
        },
        **{"api": "cudaMemcpyAsync", "when": "before", "calls_per_request": 1.0, "us_per_request": 0.9},
        **{"expected": "input"},
    }


def write_explained(folder: Path, case: str, kernels: Sequence[str], *, traced: bool) -> None:
    """The files of a case without an alarm; empty ones where nothing was traced on a GPU."""
    found: dict[str, list[Row]] = {
        **{"ledger": LEDGER, "host_ledger": HOST, "kernel_match": matched(kernels)},
        **{
            "escaped": [escaped(kernels[0])],
            "graph_cost": COST,
            "blockers": [BLOCKER | {"after": kernels[0]}],
        },
        **{"prediction_summary": [SUMMARY], "scores": [SCORE | {"case": case}]},
    }
    for name, columns in TABLE_COLUMNS.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(found.get(name, []) if traced else [])
    names = ("graph", "graph_padded")
    verdicts: list[Row] = [{"strategy": name, "sentence": "it does", "alarms": []} for name in names]
    note = {"part": "match of kernels", "strategy": "graph_padded", "trace_mode": "node", "severity": "note"}
    record = {
        **{"schema_version": SCHEMA_VERSION, "kind": "explained", "case": case, "missing": []},
        "prediction": PREDICTION | {"floor_us": 120.0} if traced else None,
        "matches": verdicts if traced else [],
        "findings": [note | {"sentence": f"2 missing ({kernels[0]}): known"}] if traced else [],
    }
    (folder / "explained.json").write_text(json.dumps(record), encoding="utf-8")
