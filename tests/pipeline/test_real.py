"""The real pipeline from configuration to report, on the smallest case: nothing is a stand-in."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.pipeline.conftest import CASE, GRAPH, run_real

BROKEN = CASE.replace("bert-tiny", "broken")


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


@pytest.mark.nsys
def test_a_model_that_cannot_be_loaded_fails_alone(real: Path, tmp_path: Path) -> None:
    """Nothing is a stand-in: beside the case that was measured is one whose config.json is no JSON."""
    folder = Path(shutil.copytree(real, tmp_path / "run"))
    (folder / "broken").mkdir()
    (folder / "broken/config.json").write_text("{")
    case = {"dtype": "float32", "prompt_length": 50, "max_length": 128}
    cases = [{"model": model, **case} for model in ("./broken", "bert-tiny")]
    (folder / "mine.json").write_text(json.dumps({"cases": cases}))
    done = run_real(folder, "--configfile", "mine.json", config=GRAPH)
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("launchgap: failed: ")]
    assert told.startswith(f"launchgap: failed: {BROKEN}: measuring: model ./broken: ")
    reason = json.loads((folder / "results/failures.json").read_text())["cases"][BROKEN]["reason"]
    report = json.loads((folder / "results/report.json").read_text())
    assert [one["name"] for one in report["cases"]] == [CASE]
    (failed,) = report["broken_cases"]
    assert (failed["name"], failed["status"]) == (BROKEN, "failed")
    assert reason.rstrip(".") in failed["reason"]
    assert "measuring failed: model ./broken" in (folder / "results/report.html").read_text()
