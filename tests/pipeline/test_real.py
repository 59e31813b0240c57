"""The real pipeline from configuration to report, on the smallest case: nothing is a stand-in."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import CASE, ROOT

SMALL = (
    "runs=3",
    "warmup_s=0",
    "weights=random",
    "strategies=[eager, graph]",
    "traced_strategies=[graph]",
    "traced_requests=2",
)


def _snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    return subprocess.run(
        [*snakemake, *arguments, "--config", *SMALL],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.nsys
def test_config_to_report_in_a_folder_of_its_own(tmp_path: Path) -> None:
    done = _snakemake(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "<html" in (tmp_path / "results/report.html").read_text()
    latency = json.loads((tmp_path / f"results/latency/{CASE}/latency.json").read_text())
    assert [fields["status"] for fields in latency["strategies"].values()] == ["ok"] * 2
    with (tmp_path / f"results/tables/{CASE}/requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["strategy"], row["trace_mode"]) for row in rows] == [("graph", "node")] * 2
    assert all(float(row["range_us"]) > 0 for row in rows)
    assert all(row["kernels"] == "" for row in rows)
    assert "Nothing to be done" in _snakemake(tmp_path).stderr
    assert "Adding kernels.csv" in _snakemake(tmp_path, "--report", "all.html").stderr
