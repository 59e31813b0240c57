"""nsys and torch.profiler count the same in runs of one program on a real GPU: run with `make gpu-test`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from analysis.attribute import Attributed, RangeSelector, attribute, count_by_request
from analysis.chrome_trace import read_chrome_trace
from analysis.launches import LaunchKind
from analysis.trace import read_trace
from contract import LaunchgapError
from nsight.install import find_nsys

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = 5
CASE = f"--model gpt2 --weights random --device cuda --requests {REQUESTS} --warmup-s 0".split()
PROGRAMS = {
    "eager": ["scripts.run_baseline"],
    "graph": ["scripts.run_graph", "--strategy", "graph"],
}


def _run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _by_nsys(strategy: str, folder: Path) -> Attributed:
    stem = folder / strategy
    program = [sys.executable, "-m", *PROGRAMS[strategy], *CASE]
    _run("scripts.capture_trace", "--output", str(stem), "--device", "cuda", "--", *program)
    return attribute(read_trace(folder / f"{strategy}.sqlite"), RangeSelector())


def _by_torch(strategy: str, folder: Path) -> Attributed:
    trace = folder / f"{strategy}.node.json.gz"
    record = folder / f"{strategy}.node.json"
    _run(*PROGRAMS[strategy], *CASE, "--tracer", "torch", "--trace", str(trace), "--record", str(record))
    return attribute(read_chrome_trace(trace), RangeSelector())


@pytest.mark.parametrize("strategy", PROGRAMS)
def test_both_tracers_count_the_same(strategy: str, tmp_path: Path) -> None:
    try:
        find_nsys(os.environ)
    except LaunchgapError as error:
        pytest.skip(str(error))
    nsys, torch = _by_nsys(strategy, tmp_path), _by_torch(strategy, tmp_path)
    for table in ("kernels", "memcpys", "memsets", "launches"):
        counts = [count_by_request(getattr(found, table), REQUESTS).tolist() for found in (nsys, torch)]
        assert counts[0] == counts[1], table
    assert len(nsys.kernels) > 0
    # Not the names themselves: the two demangle anonymous namespaces and template arguments differently.
    calls = [sorted(Counter(found.kernels["name"]).values()) for found in (nsys, torch)]
    assert calls[0] == calls[1]
    kinds = [Counter(found.launches["kind"]) for found in (nsys, torch)]
    assert kinds[0] == kinds[1]
    assert kinds[0][LaunchKind.GRAPH] == (REQUESTS if strategy == "graph" else 0)
    for found in (nsys, torch):
        assert found.launches["answered"].all()
        assert not found.launched_by_others


def test_a_replay_shows_every_kernel_of_its_graph(tmp_path: Path) -> None:
    found = _by_torch("graph", tmp_path)
    per_call = found.kernels.groupby("call").size()
    replays = found.launches.loc[found.launches["kind"] == LaunchKind.GRAPH, "call"]
    assert per_call.reindex(replays).nunique() == 1
    assert per_call.reindex(replays).min() > 100
    assert (found.kernels["end_ns"] > found.kernels["start_ns"]).all()
