"""Predictions beside measurements: the error of each, and the history of all that were made.

A score is worth something only where nothing was fitted to the case: the calibration knows no model.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from analysis.calibration import Calibration
from analysis.predict import Prediction
from analysis.score_words import errors_sentence
from contract import LatencyRecord, LaunchgapError, Strategy

KEYS = ("case", "strategy", "level", "gpu", "driver", "torch")
"""What makes two scores of the same thing: the later one replaces the earlier."""

SCORE_COLUMNS = (
    *KEYS,
    "nodes",
    "predicted_us",
    "low_us",
    "high_us",
    "measured_us",
    "error_percent",
    "inside",
    "gap_us",
    "exact_gap_us",
)


def measured_us(record: LatencyRecord | Mapping[str, Any], strategy: str) -> float | None:
    """Median latency by events without a profiler; None where it was not measured, or only simulated."""
    fields = record["strategies"].get(strategy)
    if record["simulated"] or fields is None or not fields["event_ms"]:
        return None
    return float(median(fields["event_ms"])) * 1e3


def exact_gap_us(work_us: float, nodes: float, constant_us: float, measured: float) -> float:
    """The gap per node by which the prediction would have been exact, everything else as it is."""
    return (measured - work_us - constant_us) / max(nodes - 1, 1)


def score(
    prediction: Prediction,
    record: LatencyRecord | Mapping[str, Any],
    calibration: Calibration,
    strategy: str = Strategy.GRAPH.value,
) -> pd.DataFrame:
    """One row, or none where the strategy was not measured; columns `SCORE_COLUMNS`.

    `error_percent` is predicted against measured; positive: the graph was faster than predicted. `inside`:
    the measurement lies in the interval.
    """
    found = measured_us(record, strategy)
    if found is None:
        return pd.DataFrame(columns=list(SCORE_COLUMNS))
    one = prediction.latency
    row = {
        "case": record["case"]["name"],
        "strategy": strategy,
        "level": prediction.level,
        "gpu": calibration.gpu,
        "driver": calibration.driver,
        "torch": calibration.torch,
        "nodes": prediction.nodes,
        "predicted_us": one.us,
        "low_us": one.low_us,
        "high_us": one.high_us,
        "measured_us": found,
        "error_percent": (one.us - found) / found * 100,
        "inside": "yes" if one.low_us <= found <= one.high_us else "no",
        "gap_us": prediction.gap_us,
        "exact_gap_us": exact_gap_us(prediction.bound_us, prediction.nodes, prediction.constant_us, found),
    }
    return pd.DataFrame([row], columns=list(SCORE_COLUMNS))


def read_scores(path: Path) -> pd.DataFrame:
    """The history; empty where there is none yet.

    Raises:
        LaunchgapError: the file is no such table.
    """
    if not path.exists():
        return pd.DataFrame(columns=list(SCORE_COLUMNS))
    try:
        table = pd.read_csv(io.StringIO(path.read_text(encoding="utf-8")), dtype=dict.fromkeys(KEYS, "str"))
    except ValueError as error:
        raise LaunchgapError(f"{path}: no table of scores ({error}); give another file") from error
    if tuple(table.columns) != SCORE_COLUMNS:
        raise LaunchgapError(f"{path}: no table of scores (other columns); give another file")
    return table


def with_scores(history: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The history with these rows in it; a score of the same `KEYS` is replaced."""
    parts = [part for part in (history, rows) if len(part)]
    if not parts:
        return history
    whole = pd.concat(parts, ignore_index=True)
    keys = whole[list(KEYS)].astype("object").where(whole[list(KEYS)].notna(), "")
    kept = whole[~keys.duplicated(keep="last").to_numpy()]
    return kept.sort_values(list(KEYS), ignore_index=True)


def scores_sentence(history: pd.DataFrame) -> str | None:
    """How good all predictions of a history were, against what is asked of them; None for an empty one."""
    errors = history["error_percent"].astype("float64").tolist()
    return errors_sentence(list(zip(history["case"].tolist(), errors, strict=True)))
