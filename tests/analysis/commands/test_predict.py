"""`python -m analysis predict`: real traces, every format, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.analysis.calibration_record import record, saved
from tests.analysis.commands.run_command import Ran, analysis
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = Path(__file__).resolve().parents[3] / "profiles" / "reference"
CASE = REFERENCE / "gpt2-float32-p50-m1024"
BASELINE = CASE / "eager.node.sqlite.gz"


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    return saved(tmp_path, gap_us=0.54, constant_us=22.0)


def predicted(*words: str | Path) -> Ran:
    return analysis("predict", *words)


def test_a_reference_case_beside_its_measurement(calibration: Path, tmp_path: Path) -> None:
    scores = tmp_path / "scores.csv"
    ran = predicted(
        *(BASELINE, "--calibration", calibration, "--latency", CASE / "latency.json"),
        *("--scores", scores, "--format", "json"),
    )
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert told["kind"] == "prediction"
    assert told["trace"]["answer"] == "helps"
    assert told["findings"] == []
    assert len(told["tables"]["requests"]) == told["trace"]["requests"] == 20
    assert {row["role"] for row in told["tables"]["left_out"]} == {
        "input-copy",
        "read-back",
        "packed-question",
    }
    (row,) = told["tables"]["score"]
    assert abs(row["error_percent"]) < 5
    floor = next(row for row in told["tables"]["prediction"] if row["quantity"] == "weight-read floor")
    weights = json.loads((CASE / "latency.json").read_text())["floor"]["weight_bytes_read"]
    assert floor["us"] == pytest.approx(weights / 4e12 * 1e6, abs=0.001)
    (kept,) = csv.DictReader(scores.open())
    assert float(kept["error_percent"]) == row["error_percent"]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("table", "Request by request"),
        ("md", "## The graph, predicted"),
        ("csv", "prediction,graph latency,"),
    ],
)
def test_every_format(form: str, words: str, calibration: Path) -> None:
    ran = predicted(BASELINE, "--calibration", calibration, "--format", form)
    assert ran.code == 0
    assert words in ran.out


def test_a_foreign_trace_by_its_range_and_a_file_as_output(calibration: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "prediction.json"
    words = (EXAMPLES["eager.node"], "--range", "forward", "--calibration", calibration, "--format", "json")
    assert predicted(*words, "-o", out).code == 0
    told = json.loads(out.read_text())
    pooled = {row["quantity"]: row for row in told["tables"]["prediction"]}
    assert pooled["graph latency"]["low_us"] <= pooled["graph latency"]["us"]
    assert "weight-read floor" not in pooled
    masked = json.loads(predicted(*words, "--extra-nodes", "75").out)["tables"]["prediction"][0]["us"]
    # Measured with the mask built inside the graph: 1.80 ms.
    assert masked == pytest.approx(1_800, rel=0.05)


def test_work_can_be_kept(calibration: Path) -> None:
    words = (BASELINE, "--calibration", calibration, "--format", "json")
    plain, kept = (
        json.loads(predicted(*words, *more).out)["tables"]
        for more in ((), ("--keep", "packed-question", "--keep", "read-back"))
    )
    assert kept["requests"][0]["nodes"] - plain["requests"][0]["nodes"] == 10
    assert [row["role"] for row in kept["left_out"]] == ["input-copy"]


def test_without_a_calibration_the_shipped_one_is_taken_and_named() -> None:
    told = json.loads(predicted(BASELINE, "--format", "json").out)["trace"]
    assert told["calibrated_gpu"] == "NVIDIA H200"
    assert told["calibration"] == "nvidia-h200.json, shipped with launchgap"


def test_a_calibration_that_is_not_there_is_one_line() -> None:
    complaint = predicted(BASELINE, "--calibration", "nowhere.json").complaint
    assert "python -m scripts.calibrate -o calibration.json" in complaint


def test_a_calibration_of_another_gpu_or_driver_is_a_warning(tmp_path: Path) -> None:
    other = record(gpu="NVIDIA A100")
    other["environment"] = {"driver": "535.1", "torch": "2.11.0+cu130"}
    path = tmp_path / "a100.json"
    path.write_text(json.dumps(other))
    ran = predicted(BASELINE, "--calibration", path, "--format", "csv")
    assert ran.code == 0
    first, second = ran.err.splitlines()
    assert first.startswith("warning: the calibration is of NVIDIA A100, the trace of NVIDIA H200: ")
    assert second.startswith("warning: calibrated under driver 535.1, traced under 580.159.04: ")


@pytest.mark.parametrize("mode", ["node", "graph"])
def test_a_graph_trace_is_no_baseline(mode: str, calibration: Path) -> None:
    ran = predicted(CASE / f"graph.{mode}.sqlite.gz", "--calibration", calibration)
    assert "replay CUDA graphs already" in ran.complaint


@pytest.mark.parametrize(
    ("spans", "works", "words"),
    [
        (((0, 1000),), True, "is there 1 times"),
        (((0, 1000), (500, 2000)), True, "1 of its 2 ranges begin before an earlier one has ended"),
        (((0, 1000), (2000, 3000)), False, "shows no GPU work"),
    ],
)
def test_a_trace_that_is_no_baseline_is_one_sentence(
    spans: tuple[tuple[int, int], ...], works: bool, words: str, calibration: Path, tmp_path: Path
) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests(*spans)
    for start, _ in spans:
        if works:
            file.launch("k", (start + 10, start + 20), (start + 30, start + 40))
        else:
            file.call("cudaDeviceSynchronize_v3020", start + 10, start + 20)
    complaint = predicted(file.save(), "--calibration", calibration).complaint
    assert words in complaint
    assert "t.sqlite: " in complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--range", "forwrad"], "did you mean 'forward'?"),
        (["--domain", "nowhere"], "--domain 'nowhere': not in the trace"),
        (["--device", "7"], "--device 7: ran nothing here"),
        (["--extra-nodes", "-1"], "--extra-nodes -1: is negative"),
        (["--scores", "scores.csv"], "no measurement to score by; give --latency"),
        (["--latency", "none.json"], "none.json: cannot be read"),
        (["--keep", "all"], "invalid choice: 'all'"),
        (["-o", str(CASE)], "is a folder"),
        (["-o", str(BASELINE)], "is one of the inputs"),
    ],
)
def test_wrong_options_are_one_line(words: list[str], complaint: str, calibration: Path) -> None:
    assert complaint in predicted(BASELINE, "--calibration", calibration, *words).complaint


def test_the_record_of_another_case_is_refused(calibration: Path) -> None:
    other = REFERENCE / "gpt2-bfloat16-p50-m1024" / "latency.json"
    ran = predicted(BASELINE, "--calibration", calibration, "--latency", other)
    assert (
        "of gpt2-bfloat16-p50-m1024, but eager.node.sqlite.gz is of gpt2-float32-p50-m1024" in ran.complaint
    )


def test_a_graph_that_builds_a_mask_is_told(calibration: Path, tmp_path: Path) -> None:
    latency = json.loads((CASE / "latency.json").read_text())
    latency["strategies"]["graph"]["attention_mask"] = "explicit"
    path = tmp_path / "latency.json"
    path.write_text(json.dumps(latency))
    ran = predicted(BASELINE, "--calibration", calibration, "--latency", path, "--format", "csv")
    assert "builds an attention mask, which eager skips" in ran.err


@pytest.mark.parametrize(
    "content", ["", "{", '{"kind": "calibration"}', '{"kind": "calibration", "schema_version": 1}']
)
def test_a_damaged_calibration_is_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    assert "broken.json" in predicted(BASELINE, "--calibration", path).complaint


def test_a_plain_export_needs_no_record_beside_it(calibration: Path, tmp_path: Path) -> None:
    plain = tmp_path / "alone.sqlite"
    with gzip.open(BASELINE) as packed, plain.open("wb") as file:
        shutil.copyfileobj(packed, file)
    (tmp_path / "alone.json").write_text("something else")
    told = json.loads(predicted(plain, "--calibration", calibration, "--format", "json").out)
    assert "weight-read floor" not in {row["quantity"] for row in told["tables"]["prediction"]}
