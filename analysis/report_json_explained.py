"""What explains a case as JSON; `analysis.report_json` puts it into the report."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from analysis.report_data import CaseReport
from analysis.report_explained import Explained
from analysis.report_sections import alarms
from analysis.report_views_match import differing, match_totals
from analysis.report_views_time import (
    GPU_PARTS,
    HOST_PARTS,
    case_floor_us,
    mean_parts_us,
    median_ledger,
    parts_us,
    shown_mode,
)
from contract import Strategy


def explained_json(case: CaseReport) -> dict[str, Any] | None:
    """Ledgers as means and of the median request, prediction, matches, blockers, cost, what is missing."""
    found = case.explained
    if found is None:
        return None
    return {
        "source": found.source,
        "alarms": alarms(case),
        "median_request_us": {
            name: _median(found, name) for name in (Strategy.EAGER.value, Strategy.GRAPH.value)
        },
        "floor_us": case_floor_us(case),
        "ledgers_us_per_request": [_ledgers(found, one.name) for one in case.strategies],
        "prediction": None if found.prediction is None else asdict(found.prediction),
        "prediction_summary": [asdict(row) for row in found.summary],
        "scores": [asdict(row) for row in found.scores],
        "matches": [
            {
                **asdict(verdict),
                "kernels": match_totals(found.matched, verdict.strategy),
                "differences": [asdict(row) for row in differing(found.matched, verdict.strategy)],
            }
            for verdict in found.verdicts
        ],
        "beside_the_replay": [asdict(row) for row in found.escaped],
        "blockers": [asdict(row) for row in found.blockers],
        "graph_cost_as_traced": [asdict(row) for row in found.cost],
        "findings": [asdict(one) for one in found.findings],
        "missing": [asdict(one) for one in found.absent],
    }


def _median(found: Explained, strategy: str) -> dict[str, Any] | None:
    row = median_ledger(found, strategy)
    if row is None:
        return None
    return {"trace_mode": row.trace_mode, **dict(zip(GPU_PARTS, parts_us(row), strict=True))}


def _ledgers(found: Explained, strategy: str) -> dict[str, Any]:
    mode = shown_mode(found.ledger, strategy)
    gpu = [row for row in found.ledger if (row.strategy, row.trace_mode) == (strategy, mode)]
    host = [row for row in found.host if (row.strategy, row.trace_mode) == (strategy, mode)]
    return {
        "strategy": strategy,
        "trace_mode": mode,
        "gpu": mean_parts_us(gpu, (*GPU_PARTS, "range")),
        "host": mean_parts_us(host, (*HOST_PARTS, "range")),
    }
