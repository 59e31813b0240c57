"""Predictions beside measurements, and the table that keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.attribute import RangeSelector, attribute
from analysis.calibration import calibration_of
from analysis.predict import Prediction, predict
from analysis.predict_findings import level_of
from analysis.predict_score import (
    SCORE_COLUMNS,
    measured_us,
    read_scores,
    score,
    scores_sentence,
    with_scores,
)
from analysis.predict_work import eager_work
from analysis.tables import csv_text
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.calibration_record import record
from tests.data import score_predictions

CASE = Path(__file__).resolve().parents[2] / "profiles" / "reference" / "bert-tiny-float32-p50-m512"
CALIBRATION = calibration_of(record(gap_us=0.54, constant_us=22.0), Path("calibration.json"))


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    trace = read_trace(CASE / "eager.node.sqlite.gz")
    return predict(eager_work(attribute(trace, RangeSelector())), CALIBRATION)


@pytest.fixture
def latency() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CASE / "latency.json").read_text())
    return loaded


def test_the_error_is_of_the_measurement(prediction: Prediction, latency: dict[str, Any]) -> None:
    table = score(prediction, latency, CALIBRATION)
    assert tuple(table.columns) == SCORE_COLUMNS
    (row,) = table.to_dict("records")
    assert row["error_percent"] == pytest.approx((prediction.latency.us / row["measured_us"] - 1) * 100)
    exact = prediction.bound_us + prediction.constant_us + (prediction.nodes - 1) * row["exact_gap_us"]
    assert exact == pytest.approx(row["measured_us"])
    assert row["inside"] == "no"
    latency["strategies"]["graph"]["event_ms"] = [prediction.latency.us / 1e3] * 3
    (row,) = score(prediction, latency, CALIBRATION).to_dict("records")
    assert (row["inside"], row["error_percent"]) == ("yes", pytest.approx(0, abs=1e-9))


def test_what_was_not_measured_has_no_score(prediction: Prediction, latency: dict[str, Any]) -> None:
    assert score(prediction, latency, CALIBRATION, "graph_fused").empty
    latency["simulated"] = True
    assert measured_us(latency, "eager") is None
    assert score(prediction, latency, CALIBRATION).empty


def test_the_history_keeps_the_latest_of_each(
    prediction: Prediction, latency: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "scores.csv"
    history = read_scores(path)
    assert scores_sentence(history) is None
    latency["case"]["name"] = "z"
    history = with_scores(history, score(prediction, latency, CALIBRATION))
    latency["case"]["name"] = "a"
    latency["strategies"]["graph"]["event_ms"] = [0.2] * 3
    history = with_scores(history, score(prediction, latency, CALIBRATION))
    path.write_text(csv_text(history))
    again = read_scores(path)
    assert again["case"].tolist() == ["a", "z"]
    latency["strategies"]["graph"]["event_ms"] = [prediction.latency.us / 1e3] * 3
    again = with_scores(again, score(prediction, latency, CALIBRATION))
    assert again["case"].tolist() == ["a", "z"]
    assert again["error_percent"].tolist()[0] == pytest.approx(0, abs=1e-6)
    assert with_scores(again, again.iloc[:0]).equals(again)


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([1.0, -4.0, 9.0], "median absolute error 4.0 % .* worst 9.0 % in c2 .*: met"),
        ([1.0, 6.0, -7.0], "median absolute error 6.0 % .*: missed"),
        ([1.0, 1.0, -20.0], "worst 20.0 % in c2 .*: missed"),
    ],
)
def test_what_is_asked_of_all_and_of_each(errors: list[float], words: str) -> None:
    table = pd.DataFrame({"case": [f"c{n}" for n in range(len(errors))], "error_percent": errors})
    sentence = scores_sentence(table)
    assert sentence is not None
    assert pd.Series([sentence]).str.contains(words).all()


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", 'case\n"x'])
def test_another_file_is_no_history(text: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(text)
    with pytest.raises(LaunchgapError, match="no table of scores"):
        read_scores(path)


def test_the_committed_scores_are_what_the_shipped_calibration_gives() -> None:
    found = score_predictions.scores()
    assert csv_text(found) == score_predictions.SCORES.read_text(encoding="utf-8")
    assert set(found["level"]) == {"lowest", "highest"}


def test_a_process_with_kernels_on_other_streams_replays_at_the_highest_level() -> None:
    assert level_of(None) == level_of({"other_streams": False}) == "lowest"
    assert level_of({"other_streams": True}) == "highest"
    assert level_of(None, streams=2) == level_of({"other_streams": False}, streams=2) == "highest"


def test_a_record_that_does_not_know_of_streams_tells_the_level_by_its_graphs() -> None:
    def latency(*names: str) -> dict[str, Any]:
        ran = {name: {"event_ms": [1.0]} for name in names}
        return {"strategies": ran | {"graph_fused": {"event_ms": [], "error": "refused"}}}

    assert level_of(latency("eager")) == level_of(latency("eager", "eager_last", "graph")) == "lowest"
    assert level_of(latency("eager", "graph", "graph_padded")) == "highest"
    assert level_of(latency("eager", "graph", "compiled")) == "highest"
