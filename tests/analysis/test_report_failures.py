"""Cases that failed, and neighbours on the GPU: what the report says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.neighbours import neighbour_doubts
from analysis.report import gather, render_html, render_json, render_markdown
from analysis.report_data import ReportData
from analysis.report_failures import NOT_RUN, read_failures
from contract import LaunchgapError
from tests.analysis.report_samples import latency_record, write_record, write_tables

REASON = "model ./broken: config.json is not valid JSON; mend it"
FAILURE = {"step": "measuring", "reason": REASON, "log": "logs/measure/broken.log"}


def _failures(folder: Path, cases: dict[str, Any]) -> Path:
    path = folder / "failures.json"
    path.write_text(json.dumps({"schema_version": 1, "kind": "failures", "cases": cases}))
    return path


def _gather(folder: Path, names: list[str], cases: dict[str, Any]) -> ReportData:
    failures = read_failures(_failures(folder, cases))
    return gather(folder / "latency", folder / "tables", None, folder, names, failures)


@pytest.mark.usefixtures("without_figures")
def test_a_case_that_could_not_be_measured_is_failed_with_its_reason(tmp_path: Path) -> None:
    name = write_record(tmp_path, latency_record()).parent.name
    data = _gather(tmp_path, [name, "broken"], {"broken": FAILURE})
    said = f"measuring failed: {REASON}; logs/measure/broken.log says more"
    assert [(case.name, case.reason, case.status) for case in data.broken] == [("broken", said, "failed")]
    assert [case.name for case in data.cases] == [name]
    assert "**broken** failed: measuring failed: model ./broken" in render_markdown(data)
    assert f"broken, failed: {said}." in render_html(data)
    assert json.loads(render_json(data))["broken_cases"] == [
        {"name": "broken", "reason": said, "status": "failed"}
    ]


def test_a_case_that_could_not_be_traced_keeps_its_latency_and_no_older_tables(tmp_path: Path) -> None:
    name = write_record(tmp_path, latency_record()).parent.name
    write_tables(tmp_path, name)
    assert _gather(tmp_path, [name], {}).cases[0].tables is not None
    failure = {"step": "tracing graph (node mode)", "reason": "nsys: no space.", "log": "logs/x.log"}
    (case,) = _gather(tmp_path, [name], {name: failure}).cases
    assert case.tables is None
    assert case.strategies[0].latency is not None
    (missing,) = case.missing
    assert missing.why == "tracing graph (node mode) failed: nsys: no space; logs/x.log says more"


@pytest.mark.usefixtures("without_figures")
def test_a_case_that_was_not_run_yet_is_said_to_be(tmp_path: Path) -> None:
    name = write_record(tmp_path, latency_record()).parent.name
    write_tables(tmp_path, name)
    still_to_run = dict.fromkeys((name, "later"), NOT_RUN)
    data = gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path, [name, "later"], still_to_run)
    said = "not run yet, or not to its end"
    assert [(case.name, case.reason, case.status) for case in data.broken] == [("later", said, "not run")]
    (case,) = data.cases
    assert case.tables is None
    assert [missing.why for missing in case.missing] == [said]
    assert f"**later**: {said}" in render_markdown(data)
    assert f"later, not run: {said}." in render_html(data)
    assert json.loads(render_json(data))["broken_cases"][0]["status"] == "not run"


@pytest.mark.parametrize("cases", [[], {"a": {"step": "x"}}, {"a": 3}])
def test_a_record_that_is_none(tmp_path: Path, cases: Any) -> None:  # noqa: ANN401 - what a file may hold
    with pytest.raises(LaunchgapError, match="not a record of failures"):
        read_failures(_failures(tmp_path, cases))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, None, []),
        ([], [], []),
        (
            [{"program": "train", "memory_mib": 9.0}, {"program": "train", "memory_mib": None}],
            [{"program": "python", "memory_mib": 1.0}],
            ["Not alone on the GPU: 2 times train before measuring and python after measuring. Other"],
        ),
    ],
)
def test_neighbours_are_a_doubt(before: object, after: object, said: list[str]) -> None:
    record = latency_record()
    record["environment"] |= {"neighbours_before": before, "neighbours_after": after}
    found = list(neighbour_doubts(record))
    assert [one.startswith(start) for one, start in zip(found, said, strict=True)] == [True] * len(said)


def test_neighbours_are_told_in_the_report(tmp_path: Path) -> None:
    record = latency_record()
    record["environment"]["neighbours_after"] = [{"program": "train|x", "memory_mib": 9.0}]
    name = write_record(tmp_path, record).parent.name
    assert "Not alone on the GPU: train\\|x after measuring" in render_markdown(_gather(tmp_path, [name], {}))


def test_records_from_before_say_nothing_of_neighbours() -> None:
    assert list(neighbour_doubts(latency_record())) == []
