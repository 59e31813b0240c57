import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.case_explained import TABLE_COLUMNS
from analysis.tables import REQUEST_COLUMNS
from scripts.analyse_traces import main
from tests.analysis.trace_file import EXAMPLES, TraceFile
from tests.in_process import ROOT, Ran, in_process

FORWARD = ("--range-name", "forward", "--range-domain", "")


def run(*arguments: str | Path) -> Ran:
    return in_process(main, *arguments, log=True)


def run_process(*arguments: str | Path) -> Ran:
    """As a file; the pipeline runs it as a module."""
    command = [sys.executable, "scripts/analyse_traces.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for label, path in EXAMPLES.items():
        shutil.copy(path, folder / f"{label}.sqlite.gz")
    return folder


def test_writes_every_table(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "tables"
    done = run_process("--case", "c", "--trace-dir", traces, "-o", out, *FORWARD)
    assert (done.code, done.out) == (0, "")
    counted = {f"{name}.csv" for name in ("comparison", "kernels", "launches", "requests")}
    records = {"traces.json", "explained.json", "timeline.json"}
    assert {path.name for path in out.iterdir()} == counted | {
        f"{name}.csv" for name in TABLE_COLUMNS
    } | records
    assert (out / "requests.csv").read_text().splitlines()[0] == ",".join(REQUEST_COLUMNS)
    assert [trace["status"] for trace in json.loads((out / "traces.json").read_text())["traces"]] == [
        "ok"
    ] * 3
    assert "eager.node: no record beside the trace" in done.err


def test_unusable_traces_are_named_and_recorded(traces: Path, tmp_path: Path) -> None:
    done = run("--case", "c", "--trace-dir", traces, "-o", tmp_path / "out")
    assert done.code == 0
    assert [line.split(":")[:2] for line in done.err.splitlines()] == [
        ["left out", f" {label}"] for label in EXAMPLES
    ]
    recorded = json.loads((tmp_path / "out" / "traces.json").read_text())["traces"]
    assert {trace["status"] for trace in recorded} == {"failed"}


def test_strict_fails_on_them_and_writes_nothing(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = run("--case", "c", "--trace-dir", traces, "-o", out, "--strict").complaint
    assert "eager.node: 4640 kernels but no launchgap ranges" in line
    assert not out.exists()


def test_strict_names_a_trace_without_kernels(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "eager.node.sqlite")
    file.requests((0, 100))
    file.call("cudaLaunchKernel_v7000", 10, 20)
    file.save()
    line = run("--case", "c", "--trace-dir", tmp_path, "-o", tmp_path / "out", "--strict").complaint
    assert "eager.node: no kernels recorded, though 1 CUDA calls were" in line


def test_host_that_cannot_trace(tmp_path: Path) -> None:
    preflight = tmp_path / "preflight.json"
    findings = ["nsys: not found; install it"]
    preflight.write_text(
        json.dumps({"schema_version": 1, "kind": "preflight", "can_trace": False, "findings": findings})
    )
    out = tmp_path / "out"
    done = run("--case", "c", "--trace-dir", tmp_path / "none", "--preflight", preflight, "-o", out)
    assert (done.code, done.err) == (0, "")
    recorded = json.loads((out / "traces.json").read_text())["traces"]
    assert {(trace["status"], trace["reason"]) for trace in recorded} == {("missing", findings[0])}
    assert (out / "kernels.csv").read_text().startswith("strategy,kernel,full_name,")


def test_no_traces_is_one_line(tmp_path: Path) -> None:
    line = run("--case", "c", "--trace-dir", tmp_path / "none", "-o", tmp_path / "out").complaint
    assert "holds no STRATEGY.MODE.sqlite; capture first" in line
    assert not (tmp_path / "out").exists()


def test_unreadable_preflight_is_one_line(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "preflight.json").write_text("{")
    line = run(
        "--case", "c", "--trace-dir", traces, "--preflight", tmp_path / "preflight.json", "-o", tmp_path
    ).complaint
    assert "not valid JSON" in line


def test_output_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    # Before the traces are looked at: there are none.
    line = run("--case", "c", "--trace-dir", tmp_path / "none", "-o", tmp_path / "file" / "out").complaint
    assert line.startswith(f"error: {tmp_path / 'file' / 'out'}: Not a directory")


def test_without_pyarrow_there_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    words = ("--case", "c", "--trace-dir", tmp_path / "none", "--parquet", "-o")
    assert "pip install pyarrow" in run(*words, tmp_path / "out").complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parquet
def test_parquet_is_beside_the_csv(traces: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    words = ("--case", "c", "--trace-dir", traces, *FORWARD, "--parquet", "-o")
    assert (run(*words, first).code, run(*words, second).code) == (0, 0)
    packed = sorted(path.name for path in first.glob("*.parquet"))
    assert packed == sorted(path.with_suffix(".parquet").name for path in first.glob("*.csv"))
    for name in packed:
        assert (first / name).read_bytes() == (second / name).read_bytes()
        read, text = pd.read_parquet(first / name), pd.read_csv((first / name).with_suffix(".csv"))
        assert (list(read), len(read)) == (list(text), len(text))
        numbers = text.select_dtypes("number").dropna(axis="columns")
        for column, values in numbers.items():
            # The CSV is rounded.
            assert read[column].astype("float64").tolist() == pytest.approx(values.tolist(), abs=1e-3)
