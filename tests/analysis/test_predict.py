"""Predictions: the formula, its interval and its answer, and what gap the real traces ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from analysis.attribute import RangeSelector, attribute
from analysis.calibration import Calibration, calibration_of, read_calibration, shipped_calibration
from analysis.equivalence import match_kernels
from analysis.overhead import gap_and_constant_us
from analysis.predict import POOLED_COLUMNS, REQUEST_COLUMNS, judge, pooled_table, predict
from analysis.predict_score import exact_gap_us
from analysis.predict_work import EagerWork, Role, eager_work
from analysis.trace import read_trace
from tests.analysis.calibration_record import BESIDE_US, record
from tests.analysis.trace_file import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "profiles" / "reference"
FORWARD = RangeSelector("forward", "")
FITTED_US = 10.0  # the constant of docs/prediction.md, "Is the form right?"


def calibrated(**values: object) -> Calibration:
    return calibration_of(record(**values), Path("calibration.json"))  # type: ignore[arg-type]


def made(
    work_us: list[float],
    *,
    kernels: int = 100,
    memsets: int = 0,
    eager_us: float = 5_000.0,
    each_us: float = 4.0,
) -> EagerWork:
    count = len(work_us)
    rows = pd.DataFrame(
        {
            "request": range(count),
            "kernels": [kernels] * count,
            "memsets": [memsets] * count,
            "memcpys": [0] * count,
            "launches": [kernels + memsets + 1] * count,
            "work_us": work_us,
            "busy_us": [one + 3.0 for one in work_us],
            "eager_us": [eager_us] * count,
        }
    )
    return EagerWork(rows, pd.DataFrame(), 1, each_us)


def test_a_request_takes_its_work_a_constant_and_its_gaps() -> None:
    found = predict(made([400.0, 410.0, 420.0], memsets=5), calibrated(fill_us=0.2), weight_bytes=4e9)
    overhead_us = 20 + 104 * 0.5 + 5 * 0.2
    assert tuple(found.requests.columns) == REQUEST_COLUMNS
    assert found.requests["predicted_us"].tolist() == pytest.approx(
        [w + overhead_us for w in (400, 410, 420)]
    )
    assert found.latency.us == pytest.approx(410 + overhead_us)
    assert found.wall.us == pytest.approx(found.latency.us + BESIDE_US)
    assert (found.bound_us, found.nodes) == (410.0, 105.0)
    assert (found.gap_us, found.constant_us) == pytest.approx((0.5, 20.0))
    assert found.floor_us == pytest.approx(1_000.0)
    assert found.eager_least_us == pytest.approx(413.0)  # 106 launches of 3 us are less
    assert predict(made([10.0] * 3), calibrated()).eager_least_us == pytest.approx(101 * 3.0)


def test_there_is_no_floor_without_a_size_or_a_bandwidth() -> None:
    assert predict(made([1.0, 2.0]), calibrated()).floor_us is None
    assert predict(made([1.0, 2.0]), calibrated(bandwidth=None), weight_bytes=1e9).floor_us is None


def test_added_kernels_cost_their_length_and_a_gap() -> None:
    plain = predict(made([400.0, 410.0]), calibrated()).latency.us
    more = predict(made([400.0, 410.0]), calibrated(), extra_nodes=75).latency.us
    assert more - plain == pytest.approx(75 * (1.2 + 0.5))


def test_the_interval_holds_requests_and_calibration_and_repeats() -> None:
    random = np.random.default_rng(3)
    work = made((400 + 10 * random.standard_normal(40)).tolist())
    quiet, noisy = (predict(work, calibrated(noise_us=noise)) for noise in (0.0, 8.0))
    unlike = predict(work, calibrated(gap_us={"small": 0.5, "layer-float32": 0.3, "layer-bfloat16": 0.7}))
    for found in (quiet, noisy, unlike):
        assert found.latency.low_us < found.latency.us < found.latency.high_us
    widths = [one.latency.high_us - one.latency.low_us for one in (quiet, noisy, unlike)]
    assert 1 < widths[0] < widths[1] < widths[2]
    assert widths[2] > 99 * 0.4 * 0.9
    assert predict(work, calibrated(noise_us=8.0)).latency == noisy.latency
    assert (noisy.requests["low_us"] < noisy.requests["predicted_us"]).all()


def test_requests_of_many_sizes_are_each_predicted_by_their_own() -> None:
    work = made([100.0] * 4)
    work.requests["kernels"] = [1, 11, 101, 4001]
    found = predict(work, calibrated())
    assert found.requests["predicted_us"].tolist() == pytest.approx([120, 125, 170, 2120])


def test_long_kernels_are_not_helped() -> None:
    work = made([4_900.0] * 3, eager_us=5_000.0, each_us=49.0)
    found = judge(predict(work, calibrated()), work, calibrated(), None)
    assert found.answer == "does not help"
    assert re.search(r"will not help here: .* Kernels are long: they run 49\.0 us .* 98 % of", found.sentence)
    short = made([4_900.0] * 3, eager_us=5_000.0, each_us=2.0)
    told = judge(predict(short, calibrated()), short, calibrated(), None).sentence
    assert "hardly waits for launches" in told


def test_what_the_profiler_hides_is_not_decided() -> None:
    work = made([400.0] * 3, eager_us=2_000.0)
    prediction = predict(work, calibrated())
    assert judge(prediction, work, calibrated(), None).answer == "may help"
    assert "--latency" in judge(prediction, work, calibrated(), None).sentence
    assert judge(prediction, work, calibrated(), 1_500.0).answer == "helps"
    assert judge(prediction, work, calibrated(), 480.0).answer == "does not help"


def test_launches_that_must_cost_more_than_the_graph_decide_alone() -> None:
    work = made([100.0] * 3, kernels=400, eager_us=4_000.0)
    found = judge(predict(work, calibrated()), work, calibrated(), None)
    assert found.answer == "helps"
    assert "us at least and 4,000 us under the profiler" in found.sentence


def test_the_pooled_table_has_every_quantity() -> None:
    table = pooled_table(predict(made([400.0, 410.0]), calibrated(), weight_bytes=4e9))
    assert tuple(table.columns) == POOLED_COLUMNS
    assert table["quantity"].is_unique
    assert {"graph latency", "launches free", "weight-read floor"} <= set(table["quantity"])


class Case(NamedTuple):
    """A real case: work and nodes by the eager trace, and the graph's latency as measured."""

    work_us: float
    nodes: int
    measured_us: float

    def gap_us(self, constant_us: float, share: float = 1.0) -> float:
        return exact_gap_us(self.work_us, self.nodes, constant_us, self.measured_us * share)

    def error_percent(self, constant_us: float, gap_us: float) -> float:
        predicted = self.work_us + constant_us + (self.nodes - 1) * gap_us
        return (predicted - self.measured_us) / self.measured_us * 100


def _of(work: EagerWork, measured_us: float) -> Case:
    rows = work.requests
    nodes = int((rows["kernels"] + rows["memsets"] + rows["memcpys"]).median())
    return Case(float(rows["work_us"].median()), nodes, measured_us)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    found = {}
    for folder in sorted(path for path in REFERENCE.iterdir() if path.is_dir()):
        trace = read_trace(folder / "eager.node.sqlite.gz")
        latency = json.loads((folder / "latency.json").read_text())
        measured_us = median(latency["strategies"]["graph"]["event_ms"]) * 1e3
        found[folder.name] = _of(eager_work(attribute(trace, RangeSelector())), measured_us)
    return found


def masked_case() -> Case:
    """gpt2 fp32 with the mask built inside the graph: what that adds is taken from the graph's own trace."""
    eager, graph = (attribute(read_trace(EXAMPLES[name]), FORWARD) for name in ("eager.node", "graph.node"))
    matched = match_kernels(eager, graph)
    extra = matched[matched["match"] == "extra"]
    case = _of(eager_work(eager, [Role.PACKED]), 1_800.0)
    more = int(extra["graph_calls_per_request"].sum())
    return case._replace(
        work_us=case.work_us + float(extra["graph_us_per_request"].sum()), nodes=case.nodes + more
    )


def test_one_gap_serves_all_reference_cases_within_five_percent(cases: dict[str, Case]) -> None:
    """The form of the model: no single gap is exact for all, but some pairs of numbers are right for all."""
    low, high = (
        pick(case.gap_us(FITTED_US, share) for case in cases.values())
        for pick, share in ((max, 0.95), (min, 1.05))
    )
    assert low < high
    # The case that neither number was taken from is the fourth one, of a process at the highest level.
    lowest, highest = (
        gap_and_constant_us(read_calibration(shipped_calibration()), 345, level)[0]
        for level in ("lowest", "highest")
    )
    assert abs(masked_case().error_percent(FITTED_US, (low + high) / 2 + highest - lowest)) < 5


def rows_of_cases(heading: str) -> list[str]:
    """The rows of cases below a heading of docs/prediction.md."""
    page = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")
    section = page.partition(heading)[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if re.match(r"\| (?:bert-tiny|gpt2)", line)]


def test_the_page_shows_what_the_shipped_calibration_predicts(cases: dict[str, Case]) -> None:
    calibration = read_calibration(shipped_calibration())
    rows = rows_of_cases("## The shipped calibration")
    assert len(rows) == len(cases)
    for line, (name, case) in zip(rows, cases.items(), strict=True):
        work = eager_work(attribute(read_trace(REFERENCE / name / "eager.node.sqlite.gz"), RangeSelector()))
        us = predict(work, calibration, level="lowest").latency.us
        error = (us - case.measured_us) / case.measured_us * 100
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells == [name, f"{us:,.1f}", f"{case.measured_us:,.1f}", f"{error:+.1f} %"]


def test_the_page_shows_the_gaps_that_the_traces_ask_for(cases: dict[str, Case]) -> None:
    every = [*cases.values(), masked_case()]
    rows = rows_of_cases("## Is the form right?")
    assert len(rows) == len(every)
    for line, case, gap_us in zip(rows, every, (0.25, 0.25, 0.25, 0.61), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        gaps = [
            f"{case.gap_us(c):.2f} ({case.gap_us(c, 0.95):.2f} to {case.gap_us(c, 1.05):.2f})"
            for c in (0, FITTED_US)
        ]
        assert cells[1:] == [
            *(f"{case.work_us:,.1f}", str(case.nodes), f"{case.measured_us:,.1f}"),
            *gaps,
            f"{case.error_percent(FITTED_US, gap_us):+.1f} %",
        ]
