"""Ranges of modules: where they open and close, errors, copies, and that nothing of them stays."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections import Counter
from pathlib import Path

import nvtx
import pytest
import torch
from torch import nn

from analysis.trace import read_trace
from commandline import run_command
from contract import MODULE_DOMAIN, NVTX_DOMAIN, ROOT_MODULE, RangeName, Strategy, TraceMode
from inference.annotate_modules import COMPILED, module_ranges
from nsight.capture import capture
from nsight.install import find_nsys
from nsight.trace import Traced
from scripts._traced import run

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    *("--model=bert-tiny", "--device=cpu", "--weights=random", "--max-length=64", "--prompt-length=8"),
    "--warmup-s=0",
]


class Breaking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ArithmeticError("negative")
        return x


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NVTX is told, in order: `+path` opens, `-` closes."""
    seen: list[str] = []

    def push(path: str, domain: str) -> None:
        assert domain == MODULE_DOMAIN != NVTX_DOMAIN
        seen.append(f"+{path}")

    def pop(domain: str) -> None:
        assert domain == MODULE_DOMAIN
        seen.append("-")

    monkeypatch.setattr(nvtx, "push_range", push)
    monkeypatch.setattr(nvtx, "pop_range", pop)
    return seen


def model() -> nn.Module:
    inner = nn.Sequential(Breaking())
    return nn.Sequential(inner, nn.ReLU())


WHOLE = [f"+{ROOT_MODULE}", "+0", "+0.0", "-", "-", "+1", "-", "-"]


def test_ranges_nest_as_modules_call_each_other_and_are_gone_afterwards(told: list[str]) -> None:
    net = model()
    with module_ranges(net):
        net(torch.ones(2))
    assert told == WHOLE
    net(torch.ones(2))
    assert told == WHOLE
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
    assert not any(part._forward_hooks_always_called for part in net.modules())


def test_a_forward_that_raises_closes_its_ranges(told: list[str]) -> None:
    net = model()
    with module_ranges(net):
        with pytest.raises(ArithmeticError):
            net(-torch.ones(2))
        assert told == [f"+{ROOT_MODULE}", "+0", "+0.0", "-", "-", "-"]
        told.clear()
        net(torch.ones(2))
    assert told == WHOLE


def test_a_hook_of_another_that_raises_leaves_no_range_open(told: list[str]) -> None:
    net = model()

    def broken(*_: object) -> None:
        raise LookupError

    with module_ranges(net):
        handle = net[0].register_forward_pre_hook(broken)  # type: ignore[index]
        with pytest.raises(LookupError):
            net(torch.ones(2))
        handle.remove()
        assert told.count("-") == len(told) / 2
        told.clear()
        net(torch.ones(2))
    assert told == WHOLE


def test_ranges_end_though_the_block_raises(told: list[str]) -> None:
    net = model()
    with pytest.raises(ZeroDivisionError), module_ranges(net):
        raise ZeroDivisionError
    net(torch.ones(2))
    assert told == []


def test_a_copy_is_annotated_within_the_block_only(told: list[str]) -> None:
    net = model()
    with module_ranges(net):
        twin = copy.deepcopy(net)
        twin(torch.ones(2))
        assert told == WHOLE
    told.clear()
    twin(torch.ones(2))
    assert told == []


@pytest.mark.parametrize("strategy", sorted(COMPILED))
def test_compiled_strategies_are_refused(
    strategy: Strategy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--strategy", strategy, "--annotate", "modules", "--record", str(tmp_path / "r.json")]
    assert run_command(lambda: run("as run_graph", list(Strategy), words)) == 2
    assert capsys.readouterr().err == (
        f"error: --annotate modules: {strategy} is compiled, which fuses kernels across modules and leaves "
        "none to annotate; annotate another strategy\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--annotate", "modules", "--tracer", "torch", "--trace", "{}/t.json"],
            "--annotate modules: torch.profiler does not tell when a node was made; trace with nsys",
        ),
        (["--annotate", "layers"], "argument --annotate: invalid choice: 'layers'"),
    ],
)
def test_options(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--record", str(tmp_path / "r.json"), *(word.format(tmp_path) for word in options)]
    assert run_command(lambda: run("as run_baseline", [Strategy.EAGER], words)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")


@pytest.mark.parametrize("strategy", [Strategy.EAGER_LAST, Strategy.GRAPH_LAST])
def test_every_other_kind_of_strategy_runs_annotated(
    strategy: Strategy, tmp_path: Path, told: list[str]
) -> None:
    record = tmp_path / "r.json"
    words = [*SMALL, "--requests=1", "--strategy", strategy, "--annotate=modules", "--record", str(record)]
    run("as run_graph", list(Strategy), words)
    assert json.loads(record.read_text())["annotate"] == "modules"
    assert told.count(f"+{ROOT_MODULE}") >= 4  # three requests of warm-up, then a capture or a request
    assert told.count("-") * 2 == len(told)


@pytest.mark.nsys
def test_nsys_sees_the_modules_of_every_forward_pass(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "scripts.run_baseline", *SMALL, "--requests=2", "--annotate=modules"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    output = tmp_path / "eager.node"
    traced = Traced(tuple(program), TraceMode.NODE, False, 120.0)
    record = capture(find_nsys(os.environ), traced, output, environ)
    assert record["annotate"] == "modules"
    ranges = read_trace(output.with_name("eager.node.sqlite")).ranges
    own = Counter(ranges.loc[ranges["domain"] == NVTX_DOMAIN, "name"])
    assert own == {"load": 1, "warm-up": 1, "request": 2, "copy": 2, "forward": 2, "synchronize": 2}
    modules = ranges[ranges["domain"] == MODULE_DOMAIN]
    passes = modules[modules["name"] == ROOT_MODULE]
    assert len(passes) == 5  # three of the warm-up
    assert (modules["end_ns"] >= modules["start_ns"]).all()
    layers = modules["name"].str.fullmatch(r"bert\.encoder\.layer\.\d+")
    assert set(modules.loc[layers, "name"].value_counts()) == {5}
    forward = ranges[(ranges["domain"] == NVTX_DOMAIN) & (ranges["name"] == RangeName.FORWARD)]
    edges = ["start_ns", "end_ns"]
    inner, outer = (table[edges].to_numpy("int64") for table in (passes.iloc[3:], forward))
    assert (outer[:, 0] <= inner[:, 0]).all()
    assert (inner[:, 1] <= outer[:, 1]).all()
