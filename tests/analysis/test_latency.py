import math
from typing import Any

import numpy as np
import pytest

from analysis.latency import (
    P99_MIN_SAMPLES,
    block_rounds,
    drift,
    drift_sentence,
    noise,
    reduction,
    summarise,
    verdict,
)
from contract import ACCEPTANCE_PERCENT, LaunchgapError


def record(eager: list[float], graph: list[float], **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    equal = {"verdict": "equal"}

    def run(samples: list[float]) -> dict[str, Any]:
        return {"status": "ok", "error": None, "event_ms": samples, "wall_ms": samples, "correctness": equal}

    return {
        "simulated": False,
        "settings": {"seed": 3},
        "strategies": {"eager": run(eager), "graph": run(graph)},
        "aa_event_ms": [],
    } | changes


def around(median_ms: float, spread_ms: float, n: int = 60, seed: int = 0) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).normal(median_ms, spread_ms, n)]


def test_summary_of_known_samples() -> None:
    found = summarise([4.0, 1.0, 2.0, 3.0, 10.0])
    assert (found.n, found.mean, found.median, found.min, found.max) == (5, 4.0, 3.0, 1.0, 10.0)
    assert found.p95 == pytest.approx(8.8)
    assert found.p99 is None


def test_p99_only_with_enough_samples() -> None:
    samples = [1.0] * (P99_MIN_SAMPLES - 1)
    assert summarise(samples).p99 is None
    assert summarise([*samples, 1.0]).p99 == 1.0


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0, 2.0], [math.nan], [math.inf, 1.0]])
def test_samples_that_are_no_times_are_refused(samples: list[float]) -> None:
    with pytest.raises(LaunchgapError, match="latency: "):
        summarise(samples)


def test_reduction_is_of_the_medians() -> None:
    found = reduction([10.0, 20.0, 30.0], [5.0, 5.0, 500.0])
    assert found.percent == 75.0
    assert reduction([1.0, 1.0], [2.0, 2.0]).percent == -100.0


def test_interval_is_the_same_for_the_same_seed() -> None:
    baseline, other = around(4.0, 0.4), around(1.8, 0.1, seed=1)
    assert reduction(baseline, other, 7) == reduction(baseline, other, 7)
    found = reduction(baseline, other, 7)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.percent < found.high
    assert found != reduction(baseline, other, 8)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth, held = 50.0, 0
    for seed in range(40):
        found = reduction(around(4.0, 0.5, 30, seed), around(2.0, 0.1, 30, 1000 + seed), seed)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 33


def test_drift_that_both_share_does_not_widen_the_interval() -> None:
    drift = np.linspace(1.0, 2.0, 80)
    eager = [float(v) for v in 4.0 * drift]
    graph = [float(v) for v in 2.0 * drift]
    paired = reduction(eager, graph, 0)
    shuffled = reduction(eager, [graph[i] for i in np.random.default_rng(1).permutation(80)], 0)
    assert paired.percent == shuffled.percent == 50.0
    assert (paired.low, paired.high) == (50.0, 50.0)
    assert shuffled.low is not None
    assert shuffled.low < 49.0


def wandering(seed: int, n: int = 100, memory: float = 0.85) -> list[float]:
    """A series around 4 ms whose neighbours correlate as they did in eager on a busy host."""
    random = np.random.default_rng(seed)
    value, values = random.normal() / (1 - memory**2) ** 0.5, []
    for step in random.normal(size=n):
        value = memory * value + step
        values.append(4.0 + 0.1 * float(value))
    return values


def test_neighbours_that_move_together_widen_the_interval() -> None:
    widths = {"as measured": 0.0, "shuffled": 0.0}
    for seed in range(12):
        eager = wandering(seed)
        shuffled = [eager[i] for i in np.random.default_rng(seed).permutation(len(eager))]
        for name, series in (("as measured", eager), ("shuffled", shuffled)):
            found = reduction(series, [1.0] * len(series))
            assert found.low is not None
            assert found.high is not None
            widths[name] += found.high - found.low
    assert widths["as measured"] > 1.5 * widths["shuffled"]


def test_interval_holds_for_correlated_rounds_too() -> None:
    truth, held = 75.0, 0
    for seed in range(60):
        found = reduction(wandering(seed), [1.0] * 100, seed)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 42  # rounds drawn one by one hold it 27 times


@pytest.mark.parametrize("rounds", [2, 3, 5, 99, 1000])
def test_every_round_is_as_likely_as_any_other(rounds: int) -> None:
    drawn = block_rounds(rounds, 4000, np.random.default_rng(0))
    assert drawn.shape == (4000, rounds)
    share = np.bincount(drawn.ravel(), minlength=rounds) / 4000
    assert share == pytest.approx(np.ones(rounds), abs=0.35)


@pytest.mark.parametrize(
    ("samples", "percent"),
    [([4.0], 0.0), ([4.0, 5.0], 25.0), ([4.0, 99.0, 3.0], -25.0), ([2.0, 2.0, 2.0, 2.0], 0.0)],
)
def test_drift_is_the_second_half_against_the_first(samples: list[float], percent: float) -> None:
    assert drift(samples) == pytest.approx(percent)


def test_drift_of_no_samples_is_refused() -> None:
    with pytest.raises(LaunchgapError, match="latency: "):
        drift([])


def test_drift_is_told_above_five_percent_and_names_who_drifted() -> None:
    still = [4.0] * 10
    assert drift_sentence(record(still, [1.0] * 5 + [1.04] * 5)) is None
    said = drift_sentence(record([4.0] * 5 + [6.0] * 5, [1.0] * 10)) or ""
    assert "eager by +50.0 %" in said
    assert "graph" not in said
    assert "graph by -25.0 %" in (drift_sentence(record(still, [4.0] * 5 + [3.0] * 5)) or "")
    assert drift_sentence(record([], [])) is None


def test_constant_samples_give_a_point() -> None:
    found = reduction([4.0] * 10, [1.0] * 10)
    assert (found.percent, found.low, found.high) == (75.0, 75.0, 75.0)


def test_one_sample_has_no_interval() -> None:
    found = reduction([4.0], [1.0])
    assert (found.percent, found.low, found.high) == (75.0, None, None)


def test_series_of_different_length_are_refused_with_both_lengths() -> None:
    with pytest.raises(LaunchgapError, match="3 baseline samples against 2"):
        reduction([1.0, 1.0, 1.0], [1.0, 1.0])


@pytest.mark.parametrize(("baseline", "other"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_series_without_times_are_refused(baseline: list[float], other: list[float]) -> None:
    with pytest.raises(LaunchgapError, match="latency: "):
        reduction(baseline, other)


def test_criterion_met() -> None:
    found = verdict(record(around(4.0, 0.2), around(1.8, 0.02)))
    assert found.status == "met"
    assert "less time than eager" in found.sentence
    assert f"criterion of {ACCEPTANCE_PERCENT:g} % is met" in found.sentence


def test_criterion_missed_clearly() -> None:
    found = verdict(record(around(4.0, 0.2), around(3.9, 0.2)))
    assert found.status == "missed"
    slower = verdict(record(around(4.0, 0.1), around(9.0, 0.1)))
    assert slower.status == "missed"
    assert "more time than eager" in slower.sentence


def test_point_estimate_alone_does_not_meet_it() -> None:
    eager = around(4.0, 1.2, 12)
    graph = [float(v) for v in np.random.default_rng(5).normal(2.6, 1.0, 12).clip(0.5)]
    found = verdict(record(eager, graph))
    assert found.reduction is not None
    assert found.reduction.low is not None
    assert found.reduction.percent > ACCEPTANCE_PERCENT > found.reduction.low
    assert found.status == "missed"
    assert "lower bound does not" in found.sentence


def test_fast_but_wrong_is_missed() -> None:
    made = record(around(4.0, 0.2), around(1.8, 0.02))
    made["strategies"]["graph"]["correctness"] = {"verdict": "DIFFERENT"}
    found = verdict(made)
    assert found.status == "missed"
    assert "output differs" in found.sentence
    assert found.wrong_output


def test_an_output_that_was_not_compared_is_not_judged() -> None:
    made = record(around(4.0, 0.2), around(1.8, 0.02))
    made["strategies"]["graph"]["correctness"] = None
    found = verdict(made)
    assert (found.status, found.wrong_output) == ("none", False)
    assert found.reduction is not None
    assert "was not compared with eager's" in found.sentence


def test_simulation_is_never_judged() -> None:
    found = verdict(record(around(4.0, 0.2), around(1.0, 0.02), simulated=True))
    assert (found.status, found.reduction, found.noise) == ("none", None, None)
    assert f"{ACCEPTANCE_PERCENT:g} %" not in found.sentence
    assert "simulation" in found.sentence


def test_one_round_is_not_judged() -> None:
    found = verdict(record([4.0], [1.0]))
    assert found.status == "none"
    assert "run more" in found.sentence


def test_failed_and_missing_strategies_are_not_judged() -> None:
    made = record([4.0, 4.0], [])
    made["strategies"]["graph"] |= {"status": "failed", "error": "out of GPU memory"}
    assert "graph failed (out of GPU memory)" in verdict(made).sentence
    assert "graph_padded was not measured" in verdict(made, "graph_padded").sentence
    made["strategies"]["graph"] |= {"status": "ok"}
    assert "graph has no samples" in verdict(made).sentence
    del made["strategies"]["eager"]
    assert "eager was not measured" in verdict(made).sentence


def test_noise_is_eager_against_eager() -> None:
    eager = around(4.0, 0.1)
    found = noise(record(eager, eager, aa_event_ms=around(4.0, 0.1, seed=9)))
    assert found is not None
    assert abs(found.percent) < 5
    assert verdict(record(eager, eager, aa_event_ms=eager)).noise == reduction(eager, eager, 3)
    assert noise(record(eager, eager)) is None
    assert noise(record([], eager, aa_event_ms=eager)) is None


@pytest.mark.parametrize("rounds", [2, 3, 60, 101])
def test_the_interval_is_that_of_medians_taken_one_by_one(rounds: int) -> None:
    eager, graph = (np.array(around(median, 0.4, rounds, seed)) for median, seed in ((5.0, 1), (2.0, 2)))
    random = np.random.default_rng(7)
    drawn = np.concatenate([block_rounds(rounds, 1_000, random) for _ in range(10)])
    before = np.median(eager[drawn], axis=1)
    low, high = np.quantile((before - np.median(graph[drawn], axis=1)) / before * 100, [0.025, 0.975])
    found = reduction(eager.tolist(), graph.tolist(), 7)
    assert (found.low, found.high) == (float(low), float(high))
