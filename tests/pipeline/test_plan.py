"""The plan that a dry run tells: which cases, what of each, and how long by what is known."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from rules.plan import RECENT_NSYS, Plan, Step, duration, expected_traces, rule_of_thumb_s

SETTINGS = {"runs": 100, "warmup_s": 2.0, "strategies": ["eager", "graph"], "traced_requests": 20}
STEPS = Path(__file__).resolve().parents[2] / "docs/measurements/sweep/steps.csv"
MODELS = {"a1": "a", "a2": "a", "b1": "b"}


def _plan(steps: Sequence[Step], traces: int = 0, **more: int) -> Plan:
    return Plan(steps, MODELS, dict.fromkeys(MODELS, SETTINGS), dict.fromkeys(MODELS, traces), "cpu", **more)


def _measure(case: str, earlier_s: float | None = None, *, needed: bool = True) -> Step:
    return Step("measure", case, needed, earlier_s)


def test_nothing_to_run_is_not_told() -> None:
    assert _plan([_measure("a1", 5.0, needed=False), Step("report")]).lines() == []


def test_a_step_that_ran_before_takes_as_long_again_and_its_like_the_median() -> None:
    plan = _plan([_measure("a1", 10.0, needed=False), _measure("b1", 50.0), _measure("a2")])
    assert [plan.seconds(step) for step in plan.steps] == [10.0, 50.0, 10.0]
    other_model = _plan([_measure("a1", 10.0), _measure("a2", 30.0), _measure("b1")])
    assert other_model.seconds(other_model.steps[2]) == 20.0


def test_a_rule_of_thumb_where_nothing_ran() -> None:
    plan = _plan([_measure("a1")])
    assert plan.seconds(plan.steps[0]) == rule_of_thumb_s("measure", SETTINGS, 3, "cpu")
    assert plan.lines()[-1].startswith("times are a rule of thumb")
    more = SETTINGS | {"runs": 1000}
    for device in ("cuda", "cpu"):
        assert rule_of_thumb_s("measure", more, 3, device) > rule_of_thumb_s("measure", SETTINGS, 3, device)


def test_the_rule_of_thumb_of_a_gpu_is_within_a_fifth_of_the_run_that_it_is_made_from() -> None:
    """Seconds of an H200's host: bert-tiny, gpt2, llama; three strategies, 100 runs, 20 requests."""
    of_three = SETTINGS | {"strategies": ["eager", "graph", "graph_padded"]}
    with STEPS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    measured, traced = (
        median(float(row["seconds"]) for row in rows if row["step"] == step)
        for step in ("measure", "capture")
    )
    assert rule_of_thumb_s("measure", of_three, 3, "cuda") == pytest.approx(measured, rel=0.2)
    assert rule_of_thumb_s("capture", of_three, 3, "cuda") == pytest.approx(traced, rel=0.2)


@pytest.mark.parametrize(
    ("device", "profiler", "nsys", "traces"),
    [
        ("cuda", "auto", RECENT_NSYS, ["eager.node", "graph.node", "graph.graph"]),
        ("cuda", "auto", (2023, 4, 0), ["eager.node", "graph.node"]),
        ("cuda", "auto", None, ["eager.node", "graph.node"]),
        ("cuda", "torch", RECENT_NSYS, ["eager.node", "graph.node"]),
        ("cuda", "required", None, []),
        ("cpu", "auto", RECENT_NSYS, ["eager.node", "graph.node"]),
        ("cpu", "auto", None, []),
        ("cpu", "off", RECENT_NSYS, []),
    ],
)
def test_traces_to_expect(
    device: str, profiler: str, nsys: tuple[int, int, int] | None, traces: list[str]
) -> None:
    assert expected_traces(["eager", "graph"], device, profiler, nsys) == traces


def test_steps_are_counted_as_snakemake_counts_them() -> None:
    steps = [_measure("a1"), _measure("b1", needed=False), Step("report"), Step("all")]
    assert _plan(steps, traces=3).count() == 1 + 3 + 1 + 2


def test_traces_of_a_case_that_is_yet_to_be_measured_are_counted() -> None:
    plan = _plan([_measure("a1"), _measure("b1", 3.0, needed=False)], traces=3)
    head, line, _ = plan.lines()
    assert head.startswith("plan: 1 of 3 cases have something to run, ")
    assert line.split("  ")[1:3] == ["a1", "measure, 3 traces, tables"]


def test_traces_that_are_there_are_not_counted_twice() -> None:
    there = [Step("capture", "a1", needed=False, earlier_s=4.0), Step("analyse", "a1", earlier_s=1.0)]
    line = _plan([_measure("a1", 10.0), *there], traces=2).lines()[1]
    assert line.split("  ")[2] == "measure, 1 trace, tables"
    assert line.endswith(" 15 s")


def test_gpus_share_what_is_timed_and_cores_the_rest() -> None:
    steps = [_measure(case, 60.0) for case in MODELS] + [
        Step("analyse", case, earlier_s=10.0) for case in MODELS
    ]
    report = Step("report", earlier_s=7.0)
    assert _plan([*steps, report]).total_s() == 3 * 60 + 3 * 10 + 7
    assert _plan([*steps, report], gpus=3, cores=6).total_s() == 60 + 5 + 7
    assert "on 3 GPUs side by side" in _plan(steps, gpus=3).lines()[0]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (750, "12 min 30 s"),
        (3600, "1 h 0 min"),
        (11130, "3 h 5 min"),
    ],
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said
