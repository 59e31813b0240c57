"""The parts that explain a case, and their verdicts; `analysis.case_collected` gathers them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """One explanation of a case."""

    LEDGER = "GPU ledger"
    HOST_LEDGER = "host ledger"
    MATCH = "match of kernels"
    COST = "cost of the graph, as traced"
    BLOCKERS = "blockers of a capture"
    PREDICTION = "prediction"
    SCORE = "prediction beside the measurement"
    TIMELINE = "timeline of a request"


@dataclass(frozen=True)
class MatchVerdict:
    """Whether a strategy's graph does eager's work; `alarms` are the reasons to doubt it."""

    strategy: str
    sentence: str
    alarms: tuple[str, ...]


@dataclass(frozen=True)
class PredictionVerdict:
    """Whether a graph would help, and the calibration that says so. `floor_us` is of that calibration."""

    answer: str
    why: str
    calibrated_gpu: str
    floor_us: float | None
