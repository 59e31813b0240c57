"""The real pipeline from configuration to report, on the smallest case: nothing is a stand-in."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.pipeline.conftest import CASE, GRAPH, run_real


@pytest.mark.nsys
def test_config_to_report_in_a_folder_of_its_own(real: Path) -> None:
    assert "<html" in (real / "results/report.html").read_text()
    latency = json.loads((real / f"results/latency/{CASE}/latency.json").read_text())
    assert [fields["status"] for fields in latency["strategies"].values()] == ["ok"] * 2
    with (real / f"results/tables/{CASE}/requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["strategy"], row["trace_mode"]) for row in rows] == [("graph", "node")] * 2
    assert all(float(row["range_us"]) > 0 for row in rows)
    assert all(row["kernels"] == "" for row in rows)
    assert "Nothing to be done" in run_real(real, config=GRAPH).stderr
    assert "Adding kernels.csv" in run_real(real, "--report", "all.html", config=GRAPH).stderr


def test_a_model_that_cannot_be_loaded_fails_alone(tmp_path: Path) -> None:
    """Nothing is a stand-in: the folder's config.json is no JSON."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    case = {"dtype": "float32", "prompt_length": 4, "max_length": 8}
    cases = [{"model": model, **case} for model in ("./broken", "bert-tiny")]
    (tmp_path / "mine.json").write_text(json.dumps({"cases": cases, "traced_strategies": []}))
    done = run_real(tmp_path, "--configfile", "mine.json", config=("strategies=[eager]", "profiler=off"))
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("launchgap: failed: ")]
    assert told.startswith("launchgap: failed: broken-float32-p4-m8: measuring: model ./broken: ")
    reason = json.loads((tmp_path / "results/failures.json").read_text())["cases"]["broken-float32-p4-m8"][
        "reason"
    ]
    report = json.loads((tmp_path / "results/report.json").read_text())
    assert [one["name"] for one in report["cases"]] == ["bert-tiny-float32-p4-m8"]
    (failed,) = report["broken_cases"]
    assert (failed["name"], failed["status"]) == ("broken-float32-p4-m8", "failed")
    assert reason.rstrip(".") in failed["reason"]
    assert "measuring failed: model ./broken" in (tmp_path / "results/report.html").read_text()
