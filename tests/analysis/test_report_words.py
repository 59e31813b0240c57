from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis import report_words as words
from analysis.latency import Reduction
from analysis.report import CaseReport, ReportData, gather
from analysis.report_cells import NOT_MEASURED, change_words, count_cell, interval, number_cell, signed
from contract import LatencyRecord
from tests.analysis.report_samples import (
    failed,
    latency_record,
    request_rows,
    strategy,
    write_record,
    write_tables,
)


def read(root: Path, *records: LatencyRecord, tables: bool = True) -> ReportData:
    for record in records:
        write_record(root, record)
        if tables:
            write_tables(root, record["case"]["name"])
    return gather(root / "latency", root / "tables", None, root)


def one_case(root: Path, record: LatencyRecord, tables: bool = True) -> CaseReport:
    return read(root, record, tables=tables).cases[0]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Reduction(61.24, 60.0, 62.0), "61.2 % less time"),
        (Reduction(-105.3, -110.0, -100.0), "105.3 % slower"),
        (Reduction(0.4, -1.0, 2.0), "no clear difference"),
        (Reduction(-0.4, -1.0, 2.0), "no clear difference"),
        (Reduction(-3.0, None, None), "3.0 % slower"),
    ],
)
def test_losses_are_said_as_plainly_as_wins(found: Reduction, said: str) -> None:
    assert change_words(found) == said


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (1234.5, 1, "1\u2009234.5"),
        (-3.25, 1, "−3.2"),
        (-0.01, 1, "0.0"),
        (0.0, 0, "0"),
        (1e6, 0, "1\u2009000\u2009000"),
    ],
)
def test_numbers_line_up(value: float, decimals: int, text: str) -> None:
    assert signed(value, decimals) == text


def test_what_was_not_measured_is_a_dash_and_never_zero() -> None:
    assert number_cell(None, 3).text == count_cell(None).text == NOT_MEASURED
    assert number_cell(0.0, 1).text == "0.0"
    assert interval(Reduction(1.0, None, None)) == "no interval"
    assert count_cell(232.5).text == "232.5"


def test_the_verdict_is_one_sentence_with_its_interval(tmp_path: Path) -> None:
    case = one_case(tmp_path, latency_record())
    assert words.badge(case) == "criterion met"
    assert "95 % interval" in words.headline(case)
    assert words.headline(case).startswith("Graph takes 61.")
    assert words.overall_headline(read(tmp_path)) == words.headline(case)


def test_a_simulation_is_never_judged(tmp_path: Path) -> None:
    case = one_case(tmp_path, latency_record(simulated=True), tables=False)
    sentence = words.headline(case)
    assert sentence.startswith("Simulation on the CPU: no speed-up is to be expected")
    assert "30" not in sentence
    assert words.badge(case) == "simulation"
    assert words.remarks(case) == []
    assert words.machine_line(case).startswith("A CPU")


def test_several_cases_are_summed_up_with_the_worst_and_the_best(tmp_path: Path) -> None:
    records = [latency_record("a"), latency_record("b", medians_ms={"eager": 4.0, "graph": 5.0})]
    data = read(tmp_path, *records)
    sentence = words.overall_headline(data)
    assert sentence.startswith("1 of 2 cases clears the 30 % criterion: graph takes 61.")
    assert "is 2" in sentence
    assert "slower at worst" in sentence
    assert words.overall_heading(data) == "2 cases on NVIDIA H200"


@pytest.mark.parametrize(
    ("medians", "said"),
    [
        ([2.0, 1.0], r"graph takes 50\.\d to 75\.\d % less time than eager\."),
        ([8.0, 12.0], r"graph is 98\.\d to 197\.\d % slower than eager\."),
        ([2.0, 2.0], r"graph takes 50\.\d % less time than eager\."),
        ([8.0, 8.0], r"graph is 98\.\d % slower than eager\."),
    ],
)
def test_a_spread_of_wins_or_losses(tmp_path: Path, medians: list[float], said: str) -> None:
    records = [
        latency_record(f"m{i}", medians_ms={"eager": 4.0, "graph": ms}) for i, ms in enumerate(medians)
    ]
    assert re.search(said, words.overall_headline(read(tmp_path, *records, tables=False)))


def test_cases_that_cannot_be_judged_are_counted(tmp_path: Path) -> None:
    broken = latency_record("b")
    broken["strategies"]["graph"] = failed("graph: out of GPU memory")
    data = read(tmp_path, latency_record("a"), broken)
    assert words.overall_headline(data).endswith("1 more could not be judged.")
    only_broken = ReportData(cases=(data.cases[1],) * 2, broken=(), findings=(), preflight=None)
    assert words.overall_headline(only_broken) == "No case could be judged."


def test_simulations_together_promise_nothing(tmp_path: Path) -> None:
    records = [latency_record("a", simulated=True), latency_record("b", simulated=True)]
    data = read(tmp_path, *records, tables=False)
    assert "no speed-up is to be expected" in words.overall_headline(data)
    assert words.overall_heading(data) == "2 cases"


def test_remarks_name_losers_failures_and_wrong_outputs(tmp_path: Path) -> None:
    record = latency_record(medians_ms={"eager": 4.6, "graph": 1.8, "graph_padded": 9.6})
    record["strategies"]["graph"] = strategy("graph", 1.8, verdict="DIFFERENT")
    record["strategies"]["extra"] = failed("extra: cannot be captured")
    case = one_case(tmp_path, record)
    remarks = words.remarks(case)
    assert any(
        remark.startswith("graph_padded against eager: 10") and "slower" in remark for remark in remarks
    )
    assert any("graph: its output DIFFERS" in remark for remark in remarks)
    assert "extra failed: cannot be captured" in remarks
    assert words.badge(case) == "criterion missed"


def test_random_weights_are_told_and_pretrained_ones_are_not(tmp_path: Path) -> None:
    random = one_case(tmp_path / "random", latency_record())
    assert "latency is real" in (words.weights_note(random) or "")
    pretrained = one_case(tmp_path / "pretrained", latency_record(weights="pretrained"))
    assert words.weights_note(pretrained) is None


def test_tiles_show_before_and_after_or_a_dash(tmp_path: Path) -> None:
    traced = one_case(tmp_path / "traced", latency_record())
    assert [tile[1:3] for tile in words.tiles(traced)[1:]] == [("237", "2"), ("232", "306"), ("32 %", "83 %")]
    untraced = one_case(tmp_path / "untraced", latency_record(), tables=False)
    assert [tile[1:3] for tile in words.tiles(untraced)[1:]] == [("–", "–")] * 3
    assert {tile[3] for tile in words.tiles(untraced)[1:]} == {
        "not traced, see below",
        "no node-mode trace, see below",
    }


def test_drift_is_a_remark(tmp_path: Path) -> None:
    record = latency_record(medians_ms={"eager": 4.6, "graph": 1.8, "graph_padded": 9.6})
    (lost,) = words.remarks(one_case(tmp_path / "still", record))
    assert lost.startswith("graph_padded")
    record["strategies"]["eager"]["event_ms"] = [6.0] * 20 + [4.5] * 20
    _, said = words.remarks(one_case(tmp_path / "moved", record))
    assert said.startswith("Drift: ")
    assert "eager by −25.0 %" in said


@pytest.mark.parametrize(("graph_kernels", "told"), [(224, True), (232, False), (306, False)])
def test_a_check_that_only_eager_runs_is_told(tmp_path: Path, graph_kernels: int, told: bool) -> None:
    record = latency_record(medians_ms={"eager": 4.6, "graph": 1.8})
    record["strategies"]["graph"]["attention_mask"] = "none"
    rows = request_rows()
    for row in rows:
        if row[:2] == ["graph", "node"]:
            row[3] = graph_kernels
    write_record(tmp_path, record)
    write_tables(tmp_path, record["case"]["name"], requests=rows)
    (case,) = gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path).cases
    graph = case.strategy("graph")
    assert graph is not None
    assert ("check for packed sequences" in words.mask_note(case, graph)) is told


def test_at_a_glance_output_cost_and_noise(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph_padded"] = strategy("graph_padded", 9.6, verdict="within tolerance")
    answers = dict(words.glance(one_case(tmp_path, record)))
    assert "graph is bitwise equal" in answers["Same output as eager?"]
    assert "graph_padded is within tolerance (largest difference 2.5e-01)" in answers["Same output as eager?"]
    assert "0.31 s and 46 MiB to capture, earned back after 1" in answers["What does a graph cost?"]
    assert "Eager against eager" in answers["How large is the noise?"]


def test_unknown_noise_is_said(tmp_path: Path) -> None:
    record = latency_record()
    record["aa_event_ms"] = []
    assert "the noise is unknown" in words.noise_sentence(one_case(tmp_path, record))
