"""The traced programs under torch.profiler, on the simulation: whole files or none, ranges as under nsys."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from analysis.chrome_trace import read_chrome_trace
from commandline import run_command
from contract import NVTX_DOMAIN, LaunchgapError, RangeName, Strategy
from inference.torch_tracer import TorchTracer
from scripts._traced import run
from tests.in_process import ROOT, Ran, in_process

SMALL = (
    "--model=bert-tiny",
    "--device=cpu",
    "--weights=random",
    "--max-length=64",
    "--prompt-length=8",
    "--warmup-s=0",
)


def _baseline(*arguments: str) -> Ran:
    return in_process(lambda argv: run("as run_baseline", [Strategy.EAGER], argv), *SMALL, *arguments)


def _graph(*arguments: str) -> Ran:
    strategies = [strategy for strategy in Strategy if strategy is not Strategy.EAGER]
    return in_process(lambda argv: run("as run_graph", strategies, argv), *SMALL, *arguments)


def _process(*arguments: str) -> Ran:
    command = [sys.executable, "-m", "scripts.run_graph", *SMALL, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("program", "forward"),
    [(_baseline, RangeName.FORWARD), (_graph, RangeName.REPLAY)],
    ids=["baseline", "graph"],
)
def test_traced_programs(tmp_path: Path, program: Callable[..., Ran], forward: RangeName) -> None:
    trace, record = tmp_path / "new" / "t.json.gz", tmp_path / "t.json"
    done = program("--requests", "3", "--tracer", "torch", "--trace", str(trace), "--record", str(record))
    assert done.code == 0, done.err
    told = json.loads(record.read_text())
    assert (told["tracer"], told["trace_mode"], told["requests"]) == ("torch", "node", 3)
    ranges = read_chrome_trace(trace).ranges
    counts = Counter(ranges.loc[ranges["domain"] == NVTX_DOMAIN, "name"])
    expected = {"load": 1, "warm-up": 1, "request": 3, "copy": 3, str(forward): 3, "synchronize": 3}
    assert counts == expected | ({"capture": 1} if forward is RangeName.REPLAY else {})
    assert [path.name for path in trace.parent.iterdir()] == ["t.json.gz"]


def test_a_program_that_fails_leaves_no_trace_and_ends_in_order(tmp_path: Path) -> None:
    # A profiler that is still on at the end of the process would make it a segmentation fault.
    trace, record = tmp_path / "t.json.gz", tmp_path / "t.json"
    options = ["--tracer", "torch", "--trace", str(trace), "--record", str(record)]
    done = _process(*options, "--prompt-length", "5000")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("error: prompt length 5000")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tracer", "torch"], "--tracer torch: needs --trace FILE, and FILE ends in .json or .json.gz"),
        (["--tracer", "torch", "--trace", "t.sqlite"], "--tracer torch: needs --trace FILE"),
        (["--trace", "t.json"], "--trace t.json: nsys writes its own file; give --tracer torch as well"),
        (["--tracer", "nvprof"], "argument --tracer: invalid choice: 'nvprof'"),
    ],
)
def test_options(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*SMALL, "--record", str(tmp_path / "t.json"), *options]
    assert run_command(lambda: run("as run_baseline", [Strategy.EAGER], argv)) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert told.startswith(f"error: {message}")


def test_the_record_follows_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    tracer = TorchTracer(trace)
    seen = []
    with tracer.recording(on_gpu=False):
        with tracer.annotate(RangeName.REQUEST):
            torch.ones(3) + 1
        tracer.finish(lambda: seen.append(trace.exists()))
        with pytest.raises(LaunchgapError, match="nothing to write"):
            tracer.finish(lambda: seen.append(True))
    assert seen == [True]
    assert read_chrome_trace(trace).ranges["name"].tolist() == ["request"]


def test_a_folder_that_vanished_keeps_the_record_unsaved(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tracer = TorchTracer(tmp_path / "file" / "t.json")
    with tracer.recording(on_gpu=False), pytest.raises(OSError, match="file"):
        tracer.finish(lambda: pytest.fail("the record was saved"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch records GPU work")
def test_a_torch_without_cupti_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(LaunchgapError, match="built without CUPTI, so its profiler sees no kernels"),
        TorchTracer(tmp_path / "t.json").recording(on_gpu=True),
    ):
        pytest.fail("it recorded")
