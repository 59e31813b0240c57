"""The overhead of a graph, found again in calibrations that were made by the formula."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.calibration import calibration_of, read_calibration, shipped_calibration
from analysis.overhead import (
    Sizes,
    equal_kernels_gap_us,
    gap_and_constant_us,
    kind_cost_us,
    overhead_draws_us,
    overhead_us,
    summary_lines,
)
from contract import LaunchgapError
from tests.analysis.calibration_record import BESIDE_US, record, saved

PATH = Path("calibration.json")


def sizes(kernels: list[float], memsets: float = 0, memcpys: float = 0) -> Sizes:
    count = np.array(kernels, dtype=np.float64)
    return Sizes(count, np.full_like(count, memsets), np.full_like(count, memcpys))


@pytest.mark.parametrize("nodes", [1, 2, 37, 200, 479, 480, 5000])
def test_gap_and_constant_are_found_again(nodes: int) -> None:
    calibration = calibration_of(record(gap_us=0.6, constant_us=25.0), PATH)
    assert overhead_us(calibration, sizes([nodes]))[0] == pytest.approx(25 + (nodes - 1) * 0.6)
    assert gap_and_constant_us(calibration, nodes) == pytest.approx((0.6, 25.0))


def test_a_fill_and_a_copy_cost_what_they_add_beyond_their_length() -> None:
    calibration = calibration_of(record(fill_us=0.3, copy_us=1.5), PATH)
    assert kind_cost_us(calibration, "memset") == pytest.approx(0.3)
    assert kind_cost_us(calibration, "memcpy") == pytest.approx(1.5)
    plain = overhead_us(calibration, sizes([100.0]))[0]
    assert overhead_us(calibration, sizes([90.0], memsets=10))[0] == pytest.approx(plain + 10 * 0.3)
    assert overhead_us(calibration, sizes([98.0], memcpys=2))[0] == pytest.approx(plain + 2 * 1.5)


def test_a_gap_that_grows_with_the_graph_is_followed() -> None:
    bent = record(gap_us=0.5)
    for probe in bent["probes"].values():
        for size in probe["sizes"]:
            late = max(size["nodes"] - 240, 0) * 0.25
            size["event_us"]["samples"] = [one + late for one in size["event_us"]["samples"]]
    calibration = calibration_of(bent, PATH)
    found = overhead_us(calibration, sizes([240.0, 360.0, 480.0, 1000.0]))
    # Beyond the largest size, 480, each node takes what one took up to there.
    assert np.diff(found) == pytest.approx([120 * 0.75, 120 * 0.75, 520 * (0.5 + 240 * 0.25 / 479)])


def test_of_several_levels_the_lowest_counts_and_the_draws_hold_all() -> None:
    calibration = calibration_of(record(gap_us=0.2, levels_us=(0.17, 0.0, 0.34, 0.34)), PATH)
    assert gap_and_constant_us(calibration, 241) == pytest.approx((0.2, 20.0))
    assert gap_and_constant_us(calibration, 241, "highest") == pytest.approx((0.54, 20.0))
    assert equal_kernels_gap_us(calibration, 400) == pytest.approx(0.2)
    drawn = overhead_draws_us(calibration, sizes([241.0]), 500, np.random.default_rng(0))[:, 0]
    assert sorted(set(np.round(drawn, 6))) == pytest.approx([20 + 240 * gap for gap in (0.2, 0.37, 0.54)])


def test_what_a_fill_costs_is_compared_within_a_stretch() -> None:
    calibration = calibration_of(record(fill_us=0.3, levels_us=(0.0, 0.34)), PATH)
    assert kind_cost_us(calibration, "memset") == pytest.approx(0.3)


def test_more_stretches_than_samples_are_half_a_calibration() -> None:
    torn = record(levels_us=(0.0, 0.1))
    torn["settings"]["stretches"] = 50
    with pytest.raises(LaunchgapError, match="half a calibration"):
        calibration_of(torn, PATH)


def test_the_mean_of_the_layer_probes_counts_and_the_draws_hold_every_probe() -> None:
    gaps = {"layer-float32": 0.7, "layer-bfloat16": 0.5, "empty": 0.1, "small": 0.2, "wide": 0.3}
    calibration = calibration_of(record(gap_us=gaps), PATH)
    assert gap_and_constant_us(calibration, 241)[0] == pytest.approx(0.6)
    assert equal_kernels_gap_us(calibration, 400) == pytest.approx(0.2)
    drawn = overhead_draws_us(calibration, sizes([241.0]), 500, np.random.default_rng(0))[:, 0]
    assert sorted(set(np.round(drawn, 6))) == pytest.approx(
        [20 + 240 * gap for gap in (0.1, 0.2, 0.3, 0.5, 0.7)]
    )


def test_the_fills_among_the_kernels_of_a_layer_are_taken_off() -> None:
    calibration = calibration_of(record(fill_us=0.6, layer_kinds=("kernel", "memset", "kernel")), PATH)
    assert gap_and_constant_us(calibration, 301)[0] == pytest.approx(0.5)


def test_noise_widens_the_draws_around_the_truth() -> None:
    found = []
    for noise_us in (0.1, 2.0):
        calibration = calibration_of(record(noise_us=noise_us), PATH)
        drawn = overhead_draws_us(calibration, sizes([300.0]), 2000, np.random.default_rng(0))[:, 0]
        assert np.median(drawn) == pytest.approx(20 + 299 * 0.5, abs=2 * noise_us)
        found.append(drawn.std())
    assert found[1] > 5 * found[0] > 0


def test_the_rest_of_a_request_and_the_cheapest_launch() -> None:
    calibration = calibration_of(record(), PATH)
    assert calibration.request_us == pytest.approx(BESIDE_US)
    assert calibration.launch_us == 3.0
    assert calibration.small_us == 1.2
    assert calibration.bandwidth_bytes_per_s == 4e12
    assert calibration_of(record(bandwidth=None), PATH).bandwidth_bytes_per_s is None


def test_the_summary_names_what_was_measured() -> None:
    lines = "\n".join(summary_lines(calibration_of(record(fill_us=0.25), PATH)))
    for words in (
        "NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130",
        "0.500",
        "20.00",
        "+0.250",
        "4.00 TB/s",
    ):
        assert words in lines


def test_a_saved_record_is_read_again(tmp_path: Path) -> None:
    assert read_calibration(saved(tmp_path)).gpu == "NVIDIA H200"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: one.pop("probes"),
        lambda one: one["probes"].pop("small"),
        lambda one: one["probes"].pop("memset"),
        lambda one: [one["probes"].pop(name) for name in ("layer-float32", "layer-bfloat16")],
        lambda one: one["probes"]["layer-float32"].pop("kinds"),
        lambda one: one["probes"]["small"].pop("sizes"),
        lambda one: one["probes"]["small"]["sizes"].pop(0),
        lambda one: one["probes"]["small"]["sizes"].append(one["probes"]["small"]["sizes"][-1]),
        lambda one: one["probes"]["memcpy"]["sizes"].clear(),
        lambda one: one["probes"]["small"]["sizes"][0]["event_us"]["samples"].clear(),
        lambda one: one["probes"]["empty"]["sizes"][0]["event_us"]["samples"].append(-1.0),
        lambda one: one["probes"]["empty"]["eager_duration_us"].update(samples=["long"]),
        lambda one: one["probes"]["empty"]["eager_launch_us"].update(median=0),
        lambda one: one.update(read_bandwidth_bytes_per_s={"median": 0.0}),
        lambda one: one.update(environment=None),
        lambda one: one.update(probes=[]),
    ],
)
def test_half_a_record_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    one = record()
    spoil(one)
    with pytest.raises(LaunchgapError, match=r"calibration\.json: half a calibration .*scripts\.calibrate"):
        calibration_of(one, PATH)


def test_the_shipped_record_is_whole_and_of_the_gpu_it_names() -> None:
    calibration = read_calibration(shipped_calibration())
    assert calibration.gpu == "NVIDIA H200"
    # Real kernels take more than one that is repeated: what the layer probes are for.
    assert gap_and_constant_us(calibration, 200)[0] > equal_kernels_gap_us(calibration, 200) > 0


def test_another_file_and_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"no such calibration; .*scripts\.calibrate"):
        read_calibration(tmp_path / "none.json")
    (tmp_path / "other.json").write_text(json.dumps({"kind": "latency"}))
    with pytest.raises(LaunchgapError, match="not a calibration record"):
        read_calibration(tmp_path / "other.json")
