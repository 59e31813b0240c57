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
