from __future__ import annotations

from analysis.console import comparison_table, why_below
from contract import LatencyRecord, Strategy
from tests.analysis.report_samples import failed, latency_record, peers_record, strategy


def test_fast_and_equal_passes_and_a_higher_bar_does_not() -> None:
    record = latency_record()
    assert why_below(record, None) is None
    assert why_below(record, 30) is None
    assert "--fail-under 90: the reduction's lower bound is 6" in (why_below(record, 90) or "")


def test_the_bar_asked_for_counts_and_not_the_criterion() -> None:
    record = latency_record(medians_ms={"eager": 4.6, "graph": 3.7})
    assert why_below(record, 10) is None
    assert "lower bound" in (why_below(record, 30) or "")


def test_a_wrong_output_never_passes() -> None:
    record = latency_record()
    record["strategies"]["graph"] = strategy("graph", 1.8, verdict="DIFFERENT")
    for percent in (0.0, 30.0):
        reason = why_below(record, percent)
        assert reason is not None
        assert reason.startswith(f"--fail-under {percent:g}: ")
        assert "output differs from eager's" in reason


def test_an_output_that_was_not_compared_never_passes() -> None:
    record = latency_record()
    record["strategies"]["graph"]["correctness"] = None
    assert "was not compared with eager's" in (why_below(record, 10) or "")
    assert "was not compared with eager's" in comparison_table(record)


def test_nothing_to_judge_never_passes() -> None:
    record = latency_record()
    record["strategies"]["graph"] = failed("graph: out of GPU memory")
    assert "out of GPU memory" in (why_below(record, 10) or "")
    assert "simulation" in (why_below(latency_record(simulated=True), 10) or "")


def test_both_clocks_have_a_reduction() -> None:
    table = comparison_table(latency_record())
    assert "reduction [95 %]" in table
    assert "wall reduction [95 %]" in table
    graph = next(line for line in table.splitlines() if line.startswith("graph "))
    assert graph.count(" % [") == 2


def moved(record: LatencyRecord) -> LatencyRecord:
    record["strategies"]["eager"]["event_ms"] = [4.0] * 20 + [6.0] * 20
    return record


def test_drift_is_one_line() -> None:
    assert "Drift" not in comparison_table(latency_record())
    lines = comparison_table(moved(latency_record())).splitlines()
    assert len([line for line in lines if line.startswith("Drift: ") and "eager by +50.0 %" in line]) == 1


def test_every_strategy_has_a_row_and_the_last_logits_a_star() -> None:
    table = comparison_table(peers_record())
    rows = {line.split()[0]: line for line in table.splitlines() if line[:1].isalpha()}
    assert set(Strategy) <= set(rows)
    assert rows["graph_fused"].split()[1] == "*"
    assert rows["eager_unmasked"].split()[1] != "*"
    assert "* The last token's logits alone" in table
    assert "eager_last 41." in table  # of the floor


def test_a_row_says_what_was_compiled_and_when_it_pays() -> None:
    table = comparison_table(peers_record())
    heading = next(line for line in table.splitlines() if "median ms" in line)
    assert "compile s" in heading
    assert "pays after requests" in heading
    rows = {line.split()[0]: line for line in table.splitlines()[3:] if line}
    assert " 41.5 " in rows["graph_fused"]
    assert rows["graph_padded"].split()[-1] == "never"
    assert int(rows["graph_fused"].split()[-1]) > int(rows["graph_last"].split()[-1]) > 0
    assert rows["eager"].split()[-1] == rows["eager_last"].split()[-1] == "-"
    assert "compile s" not in comparison_table(latency_record())
