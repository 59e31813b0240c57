"""Puts together what `python -m analysis predict` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.attribute import attribute
from analysis.calibration import read_calibration, shipped_calibration
from analysis.chrome_trace import read_any_trace
from analysis.commands.export import readable
from analysis.commands.progress import Steps
from analysis.commands.ranges import find_range
from analysis.commands.requests import record_beside, request_range, trusted
from analysis.commands.sections import Fact, Section, View
from analysis.commands.select import Selection, domain_name, select
from analysis.overhead import Level
from analysis.predict import Prediction, judge, pooled_table, predict
from analysis.predict_findings import (
    calibration_findings,
    level_of,
    mask_findings,
    weight_bytes,
    work_findings,
)
from analysis.predict_score import measured_us, read_scores, score, scores_sentence, with_scores
from analysis.predict_work import EagerWork, Role, eager_work
from analysis.trace import Trace
from contract import LaunchgapError, Strategy, read_record

_NOTE = (
    "Of the median request, with 95 % intervals: bootstrap over the requests, and over the calibration. "
    "docs/prediction.md has the formulas."
)
_SCORED = "Positive: the graph was faster than predicted. exact_gap_us would have made it exact."
_STEPS = 3


@dataclass(frozen=True)
class Request:
    """What is asked for; see the command's options."""

    range_name: str | None
    domain: str | None
    device: int | None
    calibration: Path
    latency: Path | None
    scores: Path | None
    keep: tuple[str, ...]
    extra_nodes: int
    level: Level | None


def predict_view(path: Path, request: Request) -> tuple[View, pd.DataFrame | None]:
    """The view of a prediction, and the history of scores with it where one was given.

    Raises:
        LaunchgapError: a file cannot be read or used, or the trace is no baseline.
    """
    calibration = read_calibration(request.calibration)
    latency = None if request.latency is None else read_record(request.latency, "latency")
    history = None if request.scores is None else read_scores(request.scores)
    own = record_beside(path)
    _check_case(path, own, request.latency, latency)
    with readable(path) as export, Steps(_STEPS) as steps:
        steps.begin(f"reading {path.name}")
        trace = read_any_trace(export)
        steps.begin("looking for what qualifies its numbers")
        findings = trusted(path, trace, "predict from")
        steps.begin("predicting")
        work = _work(path, trace, request)
    prediction = predict(
        work,
        calibration,
        weight_bytes=weight_bytes(latency, own),
        extra_nodes=request.extra_nodes,
        level=request.level or level_of(latency, work.streams),
    )
    scored = score(prediction, latency, calibration) if latency is not None else None
    if history is not None and scored is not None:
        history = with_scores(history, scored)
    eager_us = measured_us(latency, Strategy.EAGER.value) if latency is not None else None
    judgement = judge(prediction, work, calibration, eager_us)
    findings = (*findings, *calibration_findings(calibration, trace.gpu_names, own))
    findings = (*findings, *work_findings(work), *mask_findings(latency))
    facts: dict[str, Fact] = {
        "answer": judgement.answer,
        "why": judgement.sentence,
        "calibration": _named(request.calibration),
        "calibrated_gpu": calibration.gpu,
        "requests": len(work.requests),
    }
    sections = _sections(prediction, work, scored, history)
    return View("prediction", str(path), facts, findings, sections), history


def _named(calibration: Path) -> str:
    shipped = calibration == shipped_calibration()
    return f"{calibration.name}, shipped with launchgap" if shipped else str(calibration)


def _sections(
    prediction: Prediction, work: EagerWork, scored: pd.DataFrame | None, history: pd.DataFrame | None
) -> tuple[Section, ...]:
    sections = [
        Section("prediction", "The graph, predicted", pooled_table(prediction), _NOTE, whole=True),
        Section("left_out", "What of eager is not in it", work.left_out, whole=True),
        Section("requests", "Request by request", prediction.requests),
    ]
    if scored is not None:
        note = _SCORED if len(scored) else "The latency record has no measured graph, or is of a simulation."
        sections.insert(1, Section("score", "Beside the measurement", scored, note, whole=True))
    if history is not None:
        title = scores_sentence(history) or "No predictions yet"
        sections.append(Section("scores", title, history, quiet=True, whole=True))
    return tuple(sections)


def _own_range(path: Path, trace: Trace) -> str:
    """The name of launchgap's own requests.

    Raises:
        LaunchgapError: there are none; says which ranges could be meant.
    """
    return request_range(trace, path, None, None).name


def _work(path: Path, trace: Trace, request: Request) -> EagerWork:
    """The baseline's work.

    Raises:
        LaunchgapError: it is none; names the file.
    """
    domain = request.domain
    chosen = None if domain is None else domain_name(domain, sorted(trace.ranges["domain"].unique()))
    selected = select(trace, Selection(device=request.device, domain=domain))
    selector = find_range(trace, selected, request.range_name or _own_range(path, selected), chosen)
    try:
        return eager_work(attribute(selected, selector), [Role(role) for role in request.keep])
    except LaunchgapError as error:
        raise LaunchgapError(f"{path}: {error}") from error


def _check_case(
    path: Path, own: Mapping[str, Any] | None, other: Path | None, latency: Mapping[str, Any] | None
) -> None:
    if own is None or latency is None:
        return
    ours, theirs = (record["case"]["name"] for record in (own, latency))
    if ours != theirs:
        raise LaunchgapError(
            f"{other}: of {theirs}, but {path.name} is of {ours}; give the latency record of the same case"
        )
