from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from analysis.report import gather, render_json
from contract import SCHEMA_VERSION, LatencyRecord, read_record
from tests.analysis.report_samples import (
    failed,
    latency_record,
    peers_record,
    request_rows,
    trace_entry,
    write_preflight,
    write_record,
    write_tables,
)

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/report.schema.json").read_text("utf-8"))


def report_of(root: Path, *records: LatencyRecord, tables: bool = True) -> dict[str, Any]:
    for record in records:
        write_record(root, record)
        if tables:
            write_tables(root, record["case"]["name"])
    path = root / "report.json"
    path.write_text(render_json(gather(root / "latency", root / "tables", None, root)), encoding="utf-8")
    return read_record(path, "report")


def test_it_is_a_record_like_the_others(tmp_path: Path) -> None:
    report = report_of(tmp_path, latency_record())
    assert report["schema_version"] == SCHEMA_VERSION
    assert report["kind"] == "report"
    assert report["acceptance_percent"] == 30
    assert report["confidence_percent"] == 95


def test_numbers_are_those_of_record_and_tables(tmp_path: Path) -> None:
    record = latency_record()
    (case,) = report_of(tmp_path, record)["cases"]
    strategies = {one["name"]: one for one in case["strategies"]}
    assert strategies["graph"]["latency_ms"]["min"] == min(record["strategies"]["graph"]["event_ms"])
    assert strategies["graph"]["graph_pool_mib"] == 46
    assert strategies["graph"]["pays_after_requests"] > 0
    assert strategies["eager"]["pays_after_requests"] is None
    assert strategies["graph"]["one_request_as_traced"]["kernels"] == 306
    assert strategies["graph"]["one_request_as_traced"]["times_from_trace_mode"] == "graph"
    traced = strategies["graph"]["one_request_as_traced"]
    assert traced["gpu_busy_node_mode_us"] == pytest.approx(1503.45)
    assert traced["replay_span_graph_mode_us"] == 1670.5
    share = strategies["graph"]["gpu_busy_share_of_latency_percent"]
    assert share == pytest.approx(1503.45 / strategies["graph"]["latency_ms"]["median"] / 10)
    whole = strategies["graph"]["whole_request_reduction"]
    assert whole["low_percent"] < whole["percent"] < whole["high_percent"]
    assert strategies["eager"]["whole_request_reduction"] is None
    reduction = strategies["graph"]["reduction"]
    assert reduction["low_percent"] < reduction["percent"] < reduction["high_percent"]
    assert case["verdict"]["reduction"] == reduction
    assert case["verdict"]["status"] == "met"
    assert len(case["kernel_comparison"]) == 40
    assert case["sources"]["tables"] == "tables/gpt2-float32-p50-m1024"


def test_what_was_not_measured_is_null(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph"] = failed("graph: out of GPU memory")
    (case,) = report_of(tmp_path, record, tables=False)["cases"]
    graph = case["strategies"][1]
    assert graph["status"] == "failed"
    assert graph["latency_ms"] is graph["reduction"] is graph["one_request_as_traced"] is None
    assert case["launches"] is case["kernels"] is case["traces"] is None
    assert case["missing"][0]["remedy"]


def test_a_simulation_has_no_reduction(tmp_path: Path) -> None:
    (case,) = report_of(tmp_path, latency_record(simulated=True), tables=False)["cases"]
    assert case["verdict"]["status"] == "none"
    assert all(one["reduction"] is None for one in case["strategies"])


def test_drift_is_a_number_and_a_sentence(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["eager"]["event_ms"] = [4.0] * 20 + [6.0] * 20
    (case,) = report_of(tmp_path, record)["cases"]
    assert case["strategies"][0]["drift_percent"] == 50
    assert "eager by +50.0 %" in case["drift"]


def test_broken_cases_are_listed(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record(), "cut").write_text("{", encoding="utf-8")
    report = report_of(tmp_path, latency_record())
    assert [case["name"] for case in report["broken_cases"]] == ["cut"]


def test_it_is_strict_json(tmp_path: Path) -> None:
    report_of(tmp_path, latency_record())

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads((tmp_path / "report.json").read_text(encoding="utf-8"), parse_constant=refuse)


def faults(report: dict[str, Any]) -> list[str]:
    Draft202012Validator.check_schema(SCHEMA)
    return sorted(error.json_path for error in Draft202012Validator(SCHEMA).iter_errors(report))


def test_the_schema_is_of_this_version() -> None:
    assert SCHEMA["properties"]["schema_version"] == {"const": SCHEMA_VERSION}
    assert SCHEMA["title"].endswith(f"version {SCHEMA_VERSION}")


def test_reports_keep_to_their_schema(tmp_path: Path) -> None:
    lost = latency_record("lost")
    lost["strategies"] = {name: failed(f"{name}: out of GPU memory") for name in lost["strategies"]}
    simulated = latency_record("simulated", simulated=True)
    write_record(tmp_path, simulated)
    entries = [trace_entry("eager", "node", "no gpu", "there is no GPU work to count")]
    write_tables(tmp_path, simulated["case"]["name"], entries=entries, requests=request_rows(simulated=True))
    untraced = latency_record("untraced")
    write_record(tmp_path, untraced)
    write_record(tmp_path, latency_record(), "cut").write_text("{", encoding="utf-8")
    for record in (peers_record(), lost):
        write_record(tmp_path, record)
        write_tables(tmp_path, record["case"]["name"])
    data = gather(tmp_path / "latency", tmp_path / "tables", write_preflight(tmp_path), tmp_path)
    report = json.loads(render_json(data))
    assert len(report["cases"]) == 4
    assert faults(report) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("cases", 0, "verdict", "status"), "perhaps"),
        (("cases", 0, "strategies", 1, "latency_ms", "median"), "1.8"),
        (("cases", 0, "strategies", 1, "pays_after_requests"), "soon"),
        (("cases", 0, "kernels", 0, "mean_us"), "3 us"),
        (("cases", 0, "kernels", 0, "colour"), "blue"),
        (("cases", 0, "explained", "floor_us"), None),
        (("cases", 0, "timelines", 0, "range_us"), None),
    ],
)
def test_the_schema_refuses_what_is_no_report(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    report = report_of(tmp_path, latency_record())
    place: Any = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    expected_to_pass = path[-1] == "floor_us"  # not measured is null
    assert (faults(report) == []) is expected_to_pass


@pytest.mark.parametrize("name", ["cases", "headline"])
def test_the_schema_misses_what_is_left_out(tmp_path: Path, name: str) -> None:
    report = report_of(tmp_path, latency_record())
    del report[name]
    assert faults(report) == ["$"]


def test_timelines_and_commands_are_told(tmp_path: Path) -> None:
    (case,) = report_of(tmp_path, latency_record())["cases"]
    assert [one["strategy"] for one in case["timelines"]] == ["eager", "graph"]
    assert case["timelines"][0]["gpu_busy_us"] == 8.0
    assert case["traces"][0]["command"] == ["nsys", "profile", "--cuda-graph-trace=node", "eager"]
    assert case["doubts"] == []
