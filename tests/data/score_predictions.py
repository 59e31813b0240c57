"""Scores every recorded case again: `python -m tests.data.score_predictions` writes predictions.csv.

The work of the eager traces that were too large to keep, and the latencies that were measured beside them,
are in predictions-work.csv. The shipped calibration predicts from it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.calibration import read_calibration, shipped_calibration
from analysis.predict import predict
from analysis.predict_score import SCORE_COLUMNS, score, with_scores
from analysis.predict_work import EagerWork
from analysis.tables import csv_text

MEASUREMENTS = Path(__file__).resolve().parents[2] / "docs" / "measurements"
WORK, SCORES = MEASUREMENTS / "predictions-work.csv", MEASUREMENTS / "predictions.csv"


def scores() -> pd.DataFrame:
    """All cases, predicted from their work by the shipped calibration; columns `SCORE_COLUMNS`."""
    calibration = read_calibration(shipped_calibration())
    history = pd.DataFrame(columns=list(SCORE_COLUMNS))
    for _, rows in pd.read_csv(WORK).groupby(["case", "level"]):
        case, level, measured_us = rows.iloc[0][["case", "level", "measured_us"]]
        requests = rows.assign(busy_us=rows["work_us"], launches=rows["kernels"], eager_us=rows["work_us"])
        work = EagerWork(requests, pd.DataFrame(), streams=1, mean_node_us=0.0)
        graph = {"graph": {"event_ms": [measured_us / 1e3]}}
        record = {"case": {"name": case}, "simulated": False, "strategies": graph}
        history = with_scores(history, score(predict(work, calibration, level=level), record, calibration))
    return history


if __name__ == "__main__":
    SCORES.write_text(csv_text(scores()), encoding="utf-8")
