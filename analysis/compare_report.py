"""Reads a side of a comparison from report.json, and the samples from the records that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.compare_environment import environment_of
from analysis.compare_read import case_of, identity_of, kernels_frame, launches_frame, read_latency
from analysis.compare_sides import Case, Measured, Side
from analysis.finding import Finding
from analysis.latency import Reduction
from contract import LaunchgapError, read_record

_SAME_MS = 1e-9


def read_report(path: Path) -> Side:
    """The cases of a report. It holds no samples: they are read from the latency.json that it names.

    Where that is not there, or is of another run than the report, a finding says so, and changes of latency
    have no interval and no effect.

    Raises:
        LaunchgapError: the report is half-written, or of another schema version.
    """
    report = read_record(path, "report")
    findings: list[Finding] = []
    try:
        cases = {str(one["name"]): _with_samples(_case(one), one, path, findings) for one in report["cases"]}
        broken = {str(one["name"]): str(one["reason"]) for one in report.get("broken_cases", ())}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LaunchgapError(f"{path}: half-written or edited ({error!r}); make the report again") from error
    return Side(str(path), "run", cases, broken, tuple(findings))


def _case(one: Mapping[str, Any]) -> Case:
    traces = [trace for trace in one["traces"] or () if trace["status"] == "ok"]
    versions = ", ".join(
        dict.fromkeys(str(trace["nsys_version"]) for trace in traces if trace["nsys_version"])
    )
    tracers = ", ".join(dict.fromkeys(str(trace.get("tracer", "nsys")) for trace in traces))
    return Case(
        identity=identity_of(one),
        device=one["device"],
        strategies={str(strategy["name"]): _measured(strategy) for strategy in one["strategies"]},
        noise=_reduction(one["noise_eager_against_eager"]),
        seed=int(one["settings"].get("seed", 0)),
        environment={**environment_of(one), "nsys_version": versions or None, "tracer": tracers or None},
        launches=launches_frame(one["launches"] or ()),
        kernels=kernels_frame(one["kernels"] or ()),
    )


def _measured(strategy: Mapping[str, Any]) -> Measured:
    latency, traced = strategy["latency_ms"], strategy["one_request_as_traced"] or {}
    correctness = strategy["correctness"]
    return Measured(
        status=strategy["status"],
        error=strategy["error"],
        median_ms=None if latency is None else _positive(latency["median"]),
        drift_percent=_number(strategy["drift_percent"]),
        output_differs=correctness is not None and correctness["verdict"] == "DIFFERENT",
        launches=_number(traced.get("launches")),
        kernels=_number(traced.get("kernels")),
    )


def _with_samples(case: Case, one: Mapping[str, Any], report: Path, findings: list[Finding]) -> Case:
    name, source = str(one["name"]), str(one["sources"]["latency"])
    path = report.parent / source
    if not path.is_file():
        findings.append(_no_samples(f"{name}: {source} is not where the report names it"))
        return case
    try:
        record = read_latency(path)
        measured = case_of(record, path)
    except LaunchgapError as error:
        findings.append(_no_samples(f"{name}: {str(error).replace(str(path), source)}"))
        return case
    if record["case"]["name"] != name or not _agree(case, measured):
        findings.append(_no_samples(f"{name}: {source} is of another run than the report"))
        return case
    strategies = {
        strategy: replace(ours, samples_ms=measured.strategies[strategy].samples_ms)
        for strategy, ours in case.strategies.items()
    }
    return replace(case, strategies=strategies)


def _no_samples(what: str) -> Finding:
    effect = "a report holds no samples, so changes of latency have no interval"
    return Finding("warning", what, 1, effect, "give the results folder of the run")


def _agree(report: Case, record: Case) -> bool:
    if set(report.strategies) != set(record.strategies):
        return False
    pairs = ((ours.median_ms, record.strategies[name].median_ms) for name, ours in report.strategies.items())
    return all(
        ours == theirs if ours is None or theirs is None else abs(ours - theirs) <= _SAME_MS
        for ours, theirs in pairs
    )


def _reduction(found: Mapping[str, Any] | None) -> Reduction | None:
    if found is None:
        return None
    low, high = _number(found["low_percent"]), _number(found["high_percent"])
    return Reduction(float(found["percent"]), low, high)


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _positive(value: object) -> float:
    number = _number(value)
    if number is None or not number > 0:
        raise ValueError(f"median {value!r} is no positive time")
    return number
