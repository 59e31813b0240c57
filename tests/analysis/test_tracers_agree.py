"""Two profilers on the same program: torch.profiler's traces of gpt2 fp32 against those of Nsight Systems.

Both were recorded on an H200 (driver 580.159.04, torch 2.11.0+cu130), in runs of their own. Those in
tests/data/chrome are as torch wrote them, cut to the three requests and without the operators' own events.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from analysis.attribute import Attributed, RangeSelector, attribute, count_by_request
from analysis.chrome_trace import read_chrome_trace
from analysis.launches import LaunchKind
from analysis.trace import read_trace

ROOT = Path(__file__).resolve().parents[2]
BY_NSYS = ROOT / "profiles/reference/gpt2-float32-p50-m1024"
BY_TORCH = ROOT / "tests/data/chrome"
STRATEGIES = ("eager", "graph")


def by_nsys(strategy: str) -> Attributed:
    return attribute(read_trace(BY_NSYS / f"{strategy}.node.sqlite.gz"), RangeSelector())


def by_torch(strategy: str) -> Attributed:
    trace = read_chrome_trace(BY_TORCH / f"h200-gpt2-fp32-{strategy}.torch.json.gz")
    return attribute(trace, RangeSelector())


def per_request(found: Attributed, table: str) -> set[int]:
    return set(count_by_request(getattr(found, table), len(found.requests)).tolist())


@pytest.mark.parametrize("table", ["kernels", "memcpys", "memsets", "launches"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_request_counts_the_same(strategy: str, table: str) -> None:
    nsys, torch = by_nsys(strategy), by_torch(strategy)
    assert len(nsys.requests) > 1
    assert len(torch.requests) > 1
    assert per_request(torch, table) == per_request(nsys, table)
    assert len(per_request(torch, table)) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_kernel_runs_as_often(strategy: str) -> None:
    # Names are demangled differently by the two, so how often each occurs is compared.
    often = [
        sorted(count / len(found.requests) for count in Counter(found.kernels["name"]).values())
        for found in (by_nsys(strategy), by_torch(strategy))
    ]
    assert often[0] == often[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_launches_are_of_the_same_kinds_and_all_answered(strategy: str) -> None:
    found = by_torch(strategy)
    assert found.launches["answered"].all()
    kinds = Counter(found.launches["kind"])
    assert (kinds[LaunchKind.GRAPH] == len(found.requests)) == (strategy == "graph")
    expected = Counter(by_nsys(strategy).launches["kind"])
    share = len(found.requests) / len(by_nsys(strategy).requests)
    assert kinds == {kind: count * share for kind, count in expected.items()}
