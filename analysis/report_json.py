"""Renders ReportData as JSON for programs: every name says its number's unit; null is not measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from analysis.latency import CONFIDENCE, LatencySummary, Reduction, drift, drift_sentence
from analysis.report_cells import mebibytes
from analysis.report_data import CaseReport, ReportData, StrategyReport
from analysis.report_json_explained import explained_json
from analysis.report_sections import scores_words
from analysis.report_traced import TracedFacts
from analysis.report_words import badge, busy_share, headline, overall_headline
from analysis.timeline import Timeline
from contract import ACCEPTANCE_PERCENT, SCHEMA_VERSION

_NS_PER_US = 1_000.0


def render_json(data: ReportData) -> str:
    """The report as an indented JSON object of kind `report`."""
    report = {
        "schema_version": SCHEMA_VERSION,
        "kind": "report",
        "headline": overall_headline(data),
        "confidence_percent": CONFIDENCE * 100,
        "acceptance_percent": ACCEPTANCE_PERCENT,
        "predictions": scores_words(data),
        "cases": [_case(case) for case in data.cases],
        "broken_cases": [asdict(case) for case in data.broken],
        "preflight": data.preflight,
        "findings": list(data.findings),
    }
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _case(case: CaseReport) -> dict[str, Any]:
    record, tables = case.record, case.tables
    return {
        "name": case.name,
        "case": record["case"],
        "device": record["device"],
        "simulated": record["simulated"],
        "verdict": {
            "status": case.verdict.status,
            "badge": badge(case),
            "strategy": case.verdict.strategy,
            "sentence": headline(case),
            "reduction": _reduction(case.verdict.reduction),
        },
        "noise_eager_against_eager": _reduction(case.noise),
        "drift": drift_sentence(record),
        "floor": record.get("floor"),
        "strategies": [_strategy(one) for one in case.strategies],
        "launches": [asdict(row) for row in tables.launches] if tables else None,
        "kernels": [asdict(row) for row in tables.kernels] if tables else None,
        "kernel_comparison": [asdict(row) for row in tables.comparison] if tables else None,
        "traces": [asdict(trace) for trace in tables.traces] if tables else None,
        "explained": explained_json(case),
        "timelines": [_timeline(one) for one in case.timelines],
        "doubts": list(case.doubts),
        "missing": [asdict(part) for part in case.missing],
        "model": record["model"],
        "settings": record["settings"],
        "environment": record["environment"],
        "command": record["command"],
        "sources": {"latency": case.latency_source, "tables": tables.source if tables else None},
    }


def _strategy(one: StrategyReport) -> dict[str, Any]:
    fields = one.fields
    return {
        "name": one.name,
        "status": fields["status"],
        "error": fields["error"],
        "latency_ms": _summary(one.latency),
        "whole_request_wall_ms": _summary(one.wall),
        "reduction": _reduction(one.reduction),
        "whole_request_reduction": _reduction(one.wall_reduction),
        "drift_percent": drift(fields["event_ms"]) if one.latency is not None else None,
        "gpu_busy_share_of_latency_percent": busy_share(one),
        "correctness": fields["correctness"],
        "logits": fields.get("logits", "all"),
        "compile_s": fields.get("compile_s"),
        "capture_s": fields["capture_s"],
        "graph_pool_mib": mebibytes(fields["graph_pool_bytes"]),
        "pays_after_requests": one.pays_after,
        "one_request_as_traced": _traced(one.traced),
    }


def _timeline(one: Timeline) -> dict[str, Any]:
    """What a timeline shows in short; `timeline.json` beside the tables has it whole."""
    return {
        "strategy": one.strategy,
        "trace_mode": str(one.trace_mode),
        "request": one.request,
        "range_us": one.range_ns / _NS_PER_US,
        "gpu_busy_us": one.busy_ns / _NS_PER_US,
        "host_calls": len(one.calls),
        "gpu_operations": len(one.operations),
        "gaps": len(one.gaps),
    }


def _traced(facts: TracedFacts | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    return {
        "kernels": facts.kernels,
        "memcpys": facts.memcpys,
        "memsets": facts.memsets,
        "launches": facts.launches,
        "graph_launches": facts.graph_launches,
        "launch_api_us": facts.launch_api_us,
        "launch_api_share_of_traced_request_percent": facts.launch_share_percent,
        "gpu_span_us": facts.gpu_span_us,
        "traced_request_us": facts.range_us,
        "times_from_trace_mode": facts.time_mode,
        "gpu_busy_node_mode_us": facts.gpu_busy_us,
        "replay_span_graph_mode_us": facts.replay_span_us,
        "requests": facts.requests,
        "varies": list(facts.varies),
    }


def _summary(found: LatencySummary | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _reduction(found: Reduction | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {"percent": found.percent, "low_percent": found.low, "high_percent": found.high}
