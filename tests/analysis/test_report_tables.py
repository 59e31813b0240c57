from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.report_tables import ANALYSE_AGAIN, read_tables
from analysis.report_traced import launch_rows, time_mode, traced_facts
from contract import LaunchgapError
from tests.analysis.report_samples import request_rows, trace_entry, write_tables

CASE = "gpt2-float32-p50-m1024"


def test_cells_that_were_not_measured_are_none(tmp_path: Path) -> None:
    tables = read_tables(write_tables(tmp_path, CASE), "tables/x", CASE)
    graph_mode = [row for row in tables.requests if row.strategy == "graph" and row.trace_mode == "graph"]
    assert {row.kernels for row in graph_mode} == {None}
    assert {row.graph_launches for row in graph_mode} == {1.0}
    assert tables.source == "tables/x"


@pytest.mark.parametrize("text", ["", "NA", "nan", "<NA>"])
def test_every_spelling_of_not_measured_is_understood(tmp_path: Path, text: str) -> None:
    folder = write_tables(
        tmp_path, CASE, requests=[["eager", "node", 0, text, 1, 4, 0, 5, 1.0, 2.0, 3.0, 4.0]]
    )
    assert read_tables(folder, "", CASE).requests[0].kernels is None


def test_facts_take_counts_from_node_mode_and_times_from_graph_mode(tmp_path: Path) -> None:
    tables = read_tables(write_tables(tmp_path, CASE), "", CASE)
    graph = traced_facts(tables, "graph")
    assert graph is not None
    assert (graph.kernels, graph.launches, graph.launch_api_us) == (306, 2, 11.25)
    assert graph.gpu_busy_us == pytest.approx(1503.45)
    assert graph.replay_span_us == 1670.5
    assert (graph.time_mode, graph.requests) == ("graph", 3)
    assert graph.launch_share_percent == pytest.approx(11.25 / 1710.5 * 100)
    eager = traced_facts(tables, "eager")
    assert eager is not None
    assert (eager.kernels, eager.launches, eager.launch_api_us) == (232, 237, 1311.5)
    assert (eager.time_mode, eager.gpu_busy_us, eager.replay_span_us) == ("node", 1500.25, None)
    assert eager.varies == ()


def test_node_mode_serves_where_there_is_no_graph_mode(tmp_path: Path) -> None:
    rows = [row for row in request_rows() if row[1] == "node"]
    tables = read_tables(write_tables(tmp_path, CASE, requests=rows), "", CASE)
    facts = traced_facts(tables, "graph")
    assert facts is not None
    assert (facts.time_mode, facts.launch_api_us) == ("node", 602.5)
    assert {row.trace_mode for row in launch_rows(tables, ["graph"])} == {"node"}


def test_graph_mode_alone_shows_a_span_and_no_busy_time(tmp_path: Path) -> None:
    rows = [row for row in request_rows() if row[1] == "graph"]
    facts = traced_facts(read_tables(write_tables(tmp_path, CASE, requests=rows), "", CASE), "graph")
    assert facts is not None
    assert (facts.gpu_busy_us, facts.kernels, facts.replay_span_us) == (None, None, 1670.5)


def test_counts_that_vary_between_requests_are_told(tmp_path: Path) -> None:
    rows = request_rows()
    rows[0][3] = 230
    facts = traced_facts(read_tables(write_tables(tmp_path, CASE, requests=rows), "", CASE), "eager")
    assert facts is not None
    assert facts.kernels == pytest.approx(231.333, abs=1e-3)
    assert facts.varies == ("kernels vary from 230 to 232 between requests; the mean is shown",)


def test_a_simulation_has_no_facts(tmp_path: Path) -> None:
    folder = write_tables(
        tmp_path,
        CASE,
        requests=request_rows(simulated=True),
        entries=[trace_entry("eager", "node", "no gpu", "x")],
    )
    tables = read_tables(folder, "", CASE)
    assert time_mode(tables, "eager") is None
    assert traced_facts(tables, "eager") is None
    assert traced_facts(tables, "never measured") is None


def drop_column(folder: Path) -> None:
    path = folder / "kernels.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("share_percent", "part"), encoding="utf-8")


def spoil_number(folder: Path) -> None:
    path = folder / "launches.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("1010.0", "many"), encoding="utf-8")


def infinite_number(folder: Path) -> None:
    path = folder / "launches.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("1010.0", "inf"), encoding="utf-8")


def cut_short(folder: Path) -> None:
    path = folder / "comparison.csv"
    path.write_text(path.read_text(encoding="utf-8").rsplit(",", 2)[0], encoding="utf-8")


def not_text(folder: Path) -> None:
    (folder / "requests.csv").write_bytes(b"\xff\xfe\x00")


def remove_table(folder: Path) -> None:
    (folder / "requests.csv").unlink()


def half_written(folder: Path) -> None:
    (folder / "traces.json").write_text('{"schema_version": 1, "ki', encoding="utf-8")


def other_schema(folder: Path) -> None:
    path = folder / "traces.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"schema_version": 9}), encoding="utf-8"
    )


def entry_without_status(folder: Path) -> None:
    path = folder / "traces.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["traces"][0]["status"]
    path.write_text(json.dumps(record), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_column, r"kernels\.csv: no column share_percent"),
        (spoil_number, r"launches\.csv, line 2: launch_api_us_per_request is 'many', no number"),
        (infinite_number, r"launches\.csv, line 2: .* is 'inf', no number"),
        (cut_short, r"comparison\.csv, line 41: cut short"),
        (not_text, r"requests\.csv: not valid CSV"),
        (remove_table, r"requests\.csv: cannot be read \(No such file"),
        (half_written, r"traces\.json: not valid JSON"),
        (other_schema, r"traces\.json: record schema 9"),
        (entry_without_status, r"traces\.json: incomplete"),
    ],
)
def test_a_damaged_table_is_one_line_that_names_it(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = write_tables(tmp_path, CASE)
    damage(folder)
    with pytest.raises(LaunchgapError, match=message) as caught:
        read_tables(folder, "", CASE)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(f"; {ANALYSE_AGAIN}")


def test_tables_of_another_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match="about case 'gpt2-float32-p50-m1024', not 'other'"):
        read_tables(write_tables(tmp_path, CASE), "", "other")
