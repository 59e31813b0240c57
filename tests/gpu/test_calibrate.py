"""The calibration on a real GPU: what it measures hangs together, and a prediction can be made from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.calibration import read_calibration
from analysis.overhead import equal_kernels_gap_us, gap_and_constant_us, kind_cost_us
from contract import read_record

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
BASELINE = ROOT / "profiles" / "reference" / "gpt2-float32-p50-m1024" / "eager.node.sqlite.gz"


def _run(*words: str) -> str:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_calibration_hangs_together_and_predicts(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    said = _run("scripts.calibrate", "-o", str(path), "--rounds", "30", "--warmup-s", "0.5")
    assert "gap us a node" in said
    record, calibration = read_record(path, "calibration"), read_calibration(path)
    for probe in record["probes"].values():
        assert [len(size["event_us"]["samples"]) for size in probe["sizes"]] == [30] * len(probe["sizes"])
        medians = [size["event_us"]["median"] for size in probe["sizes"]]
        assert medians == sorted(medians)
        # The device's own time leaves the host's launch call out.
        large = probe["sizes"][-1]
        assert large["queued_us"]["median"] <= large["event_us"]["median"] * 1.05
    gap_us, constant_us = gap_and_constant_us(calibration, 1000, "highest")
    assert gap_us > max(gap_and_constant_us(calibration, 1000)[0], equal_kernels_gap_us(calibration, 1000))
    assert constant_us > gap_us > 0
    assert kind_cost_us(calibration, "memcpy") > -gap_us
    assert calibration.bandwidth_bytes_per_s is not None
    assert "graph latency" in _run("analysis", "predict", str(BASELINE), "--calibration", str(path))
