import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.tables import REQUEST_COLUMNS
from tests.analysis.trace_file import EXAMPLES, TraceFile

ROOT = Path(__file__).resolve().parents[2]
FORWARD = ("--range-name", "forward", "--range-domain", "")


def run(*arguments: str | Path, as_module: bool = False) -> subprocess.CompletedProcess[str]:
    script = ["-m", "scripts.analyse_traces"] if as_module else ["scripts/analyse_traces.py"]
    command = [sys.executable, *script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for label, path in EXAMPLES.items():
        shutil.copy(path, folder / f"{label}.sqlite.gz")
    return folder


@pytest.mark.parametrize("as_module", [False, True])
def test_writes_every_table(traces: Path, tmp_path: Path, as_module: bool) -> None:
    out = tmp_path / "new" / "tables"
    done = run("--case", "c", "--trace-dir", traces, "-o", out, *FORWARD, as_module=as_module)
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == [
        *("comparison.csv", "kernels.csv", "launches.csv", "requests.csv", "traces.json")
    ]
    assert (out / "requests.csv").read_text().splitlines()[0] == ",".join(REQUEST_COLUMNS)
    assert [trace["status"] for trace in json.loads((out / "traces.json").read_text())["traces"]] == [
        "ok"
    ] * 3
    assert "eager.node: no record beside the trace" in done.stderr


def test_unusable_traces_are_named_and_recorded(traces: Path, tmp_path: Path) -> None:
    done = run("--case", "c", "--trace-dir", traces, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert [line.split(":")[:2] for line in done.stderr.splitlines()] == [
        ["left out", f" {label}"] for label in EXAMPLES
    ]
    recorded = json.loads((tmp_path / "out" / "traces.json").read_text())["traces"]
    assert {trace["status"] for trace in recorded} == {"failed"}


def test_strict_fails_on_them_and_writes_nothing(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = refusal(run("--case", "c", "--trace-dir", traces, "-o", out, "--strict"))
    assert "eager.node: 4640 kernels but no launchgap ranges" in line
    assert not out.exists()


def test_strict_names_a_trace_without_kernels(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "eager.node.sqlite")
    file.requests((0, 100))
    file.call("cudaLaunchKernel_v7000", 10, 20)
    file.save()
    line = refusal(run("--case", "c", "--trace-dir", tmp_path, "-o", tmp_path / "out", "--strict"))
    assert "eager.node: no kernels recorded, though 1 CUDA calls were" in line


def test_host_that_cannot_trace(tmp_path: Path) -> None:
    preflight = tmp_path / "preflight.json"
    findings = ["nsys: not found; install it"]
    preflight.write_text(
        json.dumps({"schema_version": 1, "kind": "preflight", "can_trace": False, "findings": findings})
    )
    out = tmp_path / "out"
    done = run("--case", "c", "--trace-dir", tmp_path / "none", "--preflight", preflight, "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    recorded = json.loads((out / "traces.json").read_text())["traces"]
    assert {(trace["status"], trace["reason"]) for trace in recorded} == {("missing", findings[0])}
    assert (out / "kernels.csv").read_text().startswith("strategy,kernel,full_name,")


def test_no_traces_is_one_line(tmp_path: Path) -> None:
    line = refusal(run("--case", "c", "--trace-dir", tmp_path / "none", "-o", tmp_path / "out"))
    assert "holds no STRATEGY.MODE.sqlite; capture first" in line
    assert not (tmp_path / "out").exists()


def test_unreadable_preflight_is_one_line(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "preflight.json").write_text("{")
    line = refusal(
        run("--case", "c", "--trace-dir", traces, "--preflight", tmp_path / "preflight.json", "-o", tmp_path)
    )
    assert "not valid JSON" in line


def test_output_folder_that_cannot_be_is_one_line(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refusal(run("--case", "c", "--trace-dir", traces, "-o", tmp_path / "file" / "out", *FORWARD))
    assert "Not a directory" in line
