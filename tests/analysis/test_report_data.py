from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.latency import reduction
from analysis.report import ReportData, gather
from analysis.report_tables import ANALYSE_AGAIN
from analysis.report_views import overview_table
from analysis.report_words import remarks
from contract import LatencyRecord, LaunchgapError
from tests.analysis.report_samples import (
    ENTRIES,
    failed,
    latency_record,
    request_rows,
    trace_entry,
    write_preflight,
    write_record,
    write_tables,
)

NSYS_MISSING = "nsys: not found; run `bash envs/install-nsys.sh`"


def read(root: Path, preflight: Path | None = None) -> ReportData:
    return gather(root / "latency", root / "tables", preflight, root)


def test_a_whole_case_is_read_with_its_statistics_and_traces(tmp_path: Path) -> None:
    record = latency_record()
    name = record["case"]["name"]
    write_record(tmp_path, record)
    write_tables(tmp_path, name)
    (case,) = read(tmp_path, write_preflight(tmp_path)).cases
    assert case.name == name
    assert case.missing == ()
    assert case.verdict.status == "met"
    assert case.latency_source == f"latency/{name}/latency.json"
    assert (read(tmp_path).warnings, case.unread) == ((), ())
    assert case.tables is not None
    assert case.tables.source == f"tables/{name}"
    eager, graph, padded = case.strategies
    assert eager.reduction is None
    samples = record["strategies"]
    assert graph.reduction == reduction(samples["eager"]["event_ms"], samples["graph"]["event_ms"], 0)
    assert padded.reduction is not None
    assert padded.reduction.percent < -100
    assert graph.traced is not None
    assert graph.traced.kernels == 306
    assert case.strategy("compiled") is None


def test_capture_time_is_earned_back_by_the_time_saved(tmp_path: Path) -> None:
    record = latency_record()
    write_record(tmp_path, record)
    _, graph, padded = read(tmp_path).cases[0].strategies
    assert graph.pays_after == pytest.approx(310 / (4.6 - 1.8), rel=0.05)
    assert padded.pays_after == "never"


def test_a_simulation_has_latency_but_no_reduction_and_no_verdict(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record(simulated=True))
    (case,) = read(tmp_path).cases
    assert case.simulated
    assert case.verdict.status == "none"
    assert all(one.latency is not None and one.reduction is None for one in case.strategies)
    assert case.missing[0].why == "the simulation on the CPU launches no kernels"
    assert "NVIDIA GPU" in case.missing[0].remedy


def test_a_failed_strategy_leaves_the_others_standing(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph"] = failed("graph: out of GPU memory")
    write_record(tmp_path, record)
    (case,) = read(tmp_path).cases
    assert [one.latency is None for one in case.strategies] == [False, True, False]
    assert case.verdict.status == "none"


def test_zero_successes_are_still_a_case(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"] = {name: failed("out of GPU memory") for name in record["strategies"]}
    record["aa_event_ms"] = []
    write_record(tmp_path, record)
    (case,) = read(tmp_path).cases
    assert all(one.latency is None for one in case.strategies)
    assert case.noise is None


def test_a_record_without_eager_has_no_reduction(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record(medians_ms={"graph": 1.8}))
    (case,) = read(tmp_path).cases
    assert case.strategies[0].reduction is None


def test_without_tables_the_report_says_why_and_how_to_get_them(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record())
    (part,) = read(tmp_path).cases[0].missing
    assert part.why == "there are no tables for this case"
    assert "snakemake --cores 1" in part.remedy
    preflight = write_preflight(tmp_path, can_trace=False, findings=[NSYS_MISSING])
    data = read(tmp_path, preflight)
    assert data.findings == (NSYS_MISSING,)
    (part,) = data.cases[0].missing
    assert part.why == NSYS_MISSING
    assert "install-nsys.sh" in part.remedy


def test_traces_missing_for_one_reason_are_told_once(tmp_path: Path) -> None:
    record = latency_record()
    entries = [
        trace_entry(entry["strategy"], entry["trace_mode"], "missing", NSYS_MISSING) for entry in ENTRIES
    ]
    write_record(tmp_path, record)
    write_tables(tmp_path, record["case"]["name"], entries=entries, requests=[])
    (part,) = read(tmp_path).cases[0].missing
    assert (part.what, part.why) == ("Kernel counts, launches and GPU times", NSYS_MISSING)
    assert part.remedy == ""


def test_a_trace_that_failed_is_told_by_name(tmp_path: Path) -> None:
    record = latency_record()
    entries = [
        *ENTRIES[:-1],
        trace_entry("graph_padded", "graph", "failed", "no ranges; pin nvtx below 0.2.12"),
    ]
    write_record(tmp_path, record)
    write_tables(tmp_path, record["case"]["name"], entries=entries)
    (part,) = read(tmp_path).cases[0].missing
    assert part.what == "traces of graph_padded (graph mode)"
    assert part.why == "no ranges; pin nvtx below 0.2.12"


def test_a_traced_simulation_points_to_a_gpu(tmp_path: Path) -> None:
    record = latency_record(simulated=True)
    write_record(tmp_path, record)
    entries = [trace_entry("eager", "node", "no gpu", "there is no GPU work to count")]
    write_tables(tmp_path, record["case"]["name"], entries=entries, requests=request_rows(simulated=True))
    (case,) = read(tmp_path).cases
    assert case.strategies[0].traced is None
    assert "NVIDIA GPU" in case.missing[0].remedy


def test_broken_tables_do_not_take_the_latency_with_them(tmp_path: Path) -> None:
    record = latency_record()
    write_record(tmp_path, record)
    (write_tables(tmp_path, record["case"]["name"]) / "kernels.csv").unlink()
    data = read(tmp_path)
    (case,) = data.cases
    assert case.tables is None
    why = case.missing[0].why
    assert why.startswith(f"tables/{record['case']['name']}/kernels.csv: cannot be read")
    assert overview_table(data).notes == (f"{case.name} lacks kernel counts, launches and GPU times: {why}.",)
    assert data.warnings[0].startswith(f"Kernel counts, launches and GPU times: {tmp_path / 'tables'}/")


def test_a_broken_preflight_is_a_finding(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record())
    path = tmp_path / "preflight.json"
    for content in (
        "{",
        '{"schema_version": 1, "kind": "preflight"}',
        '{"schema_version": 2, "kind": "preflight"}',
    ):
        path.write_text(content, encoding="utf-8")
        data = read(tmp_path, path)
        assert data.preflight is None
        (finding,) = data.findings
        assert data.warnings == (finding.replace("./preflight.json", str(path)),)
        assert str(tmp_path) not in finding
    findings_as_text = {
        **json.loads(write_preflight(tmp_path).read_text(encoding="utf-8")),
        "findings": "none",
    }
    path.write_text(json.dumps(findings_as_text), encoding="utf-8")
    assert "findings is no list" in read(tmp_path, path).findings[0]


def test_a_broken_case_is_told_and_the_others_stand(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record())
    write_record(tmp_path, latency_record(), "cut").write_text('{"schema_version": 1, "kin', encoding="utf-8")
    write_record(tmp_path, latency_record(), "other").write_text(
        '{"schema_version": 7, "kind": "latency"}', encoding="utf-8"
    )
    (tmp_path / "latency" / "unmeasured").mkdir()
    data = read(tmp_path)
    assert len(data.cases) == 1
    reasons = {case.name: case.reason for case in data.broken}
    assert reasons["cut"].startswith("latency/cut/latency.json: not valid JSON")
    assert "record schema 7" in reasons["other"]
    assert "cannot be read (No such file" in reasons["unmeasured"]
    assert str(tmp_path) not in "".join(reasons.values())


def paths_of(value: dict[str, object], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every field that the record's type promises; what is in a free-form part is not."""
    found: list[tuple[str, ...]] = []
    for key, inner in value.items():
        found.append((*prefix, key))
        if isinstance(inner, dict) and key not in ("settings", "environment", "eager", "graph_padded"):
            found += paths_of(inner, (*prefix, key))
    return [path for path in found if path[-1] not in ("eager", "graph", "graph_padded")]


FIELDS = [path for path in paths_of(dict(latency_record())) if path not in (("schema_version",), ("kind",))]


def damaged(path: tuple[str, ...], value: object = None) -> LatencyRecord:
    """A record without the field, or with another value in its place."""
    record = copy.deepcopy(latency_record())
    holder: Any = record
    for key in path[:-1]:
        holder = holder[key]
    if value is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return record


@pytest.mark.parametrize("value", [None, {"unexpected": 1}, [[]]], ids=["absent", "object", "list"])
@pytest.mark.parametrize("path", FIELDS, ids=".".join)
def test_a_half_written_record_is_one_sentence(tmp_path: Path, path: tuple[str, ...], value: object) -> None:
    if path in (("settings",), ("environment",)) and isinstance(value, dict):
        value = "text"
    write_record(tmp_path, damaged(path, value), "case")
    with pytest.raises(LaunchgapError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/latency/case/latency.json: half-written or edited, ")
    assert path[-1] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logits": "some"}, "strategies.graph.logits is 'some', not one of all, last"),
        ({"compile_s": "long"}, "strategies.graph.compile_s is 'long', not a number"),
    ],
)
def test_a_field_that_may_be_absent_may_not_be_wrong(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    record = latency_record()
    record["strategies"]["graph"] |= change  # type: ignore[typeddict-item]
    write_record(tmp_path, record, "case")
    with pytest.raises(LaunchgapError, match=words):
        read(tmp_path)


@pytest.mark.parametrize("sample", [0.0, -1.0, float("nan"), True, "fast"])
def test_a_sample_that_is_no_time_breaks_the_case(tmp_path: Path, sample: float) -> None:
    record = latency_record()
    record["strategies"]["graph"]["event_ms"][3] = sample
    write_record(tmp_path, record, "case")
    with pytest.raises(LaunchgapError, match=r"latency/case/latency\.json"):
        read(tmp_path)


def test_series_of_different_length_break_the_case(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"]["graph"]["event_ms"].pop()
    write_record(tmp_path, record, "case")
    with pytest.raises(LaunchgapError, match="compared in pairs"):
        read(tmp_path)


def test_a_record_without_strategies_is_refused(tmp_path: Path) -> None:
    record = latency_record()
    record["strategies"] = {}
    write_record(tmp_path, record)
    with pytest.raises(LaunchgapError, match="no strategy was measured"):
        read(tmp_path)


def test_a_missing_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"cannot be read \(No such file.*measure first"):
        read(tmp_path)
    (tmp_path / "latency").mkdir()
    (tmp_path / "latency" / ".hidden").mkdir()
    with pytest.raises(LaunchgapError, match="holds no case folder"):
        read(tmp_path)


def sample(root: Path) -> Path:
    """A whole case; the folder of its tables."""
    record = latency_record()
    write_record(root, record)
    return write_tables(root, record["case"]["name"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.unlink(), "timeline.json: cannot be read (No such file or directory); analyse"),
        (lambda path: path.write_text("{"), "timeline.json: not valid JSON"),
        (lambda path: path.write_text(path.read_text().replace("gpt2", "bert")), "about case 'bert-float32"),
        (lambda path: path.write_text(path.read_text().replace('"range_ns":', '"x":')), "damaged (range_ns"),
        (lambda path: path.write_text(path.read_text().replace('_version":1', '_version":9')), "schema 9"),
    ],
)
def test_a_timeline_that_cannot_be_read_costs_only_itself(
    tmp_path: Path, change: Callable[[Path], object], why: str
) -> None:
    change(sample(tmp_path) / "timeline.json")
    data = read(tmp_path)
    (case,) = data.cases
    (part,) = case.missing
    assert len(data.warnings) == 1
    assert part.what == "Timeline of a request"
    assert why in part.why
    assert part.why.endswith(f"; {ANALYSE_AGAIN}")
    assert str(tmp_path) not in part.why
    assert case.timelines == ()
    assert case.explained is not None
    assert case.strategies[1].traced is not None


def test_strategies_that_were_traced_and_not_measured_are_doubted(tmp_path: Path) -> None:
    sample(tmp_path)
    write_record(tmp_path, latency_record(medians_ms={"eager": 4.6, "graph": 1.8}))
    (case,) = read(tmp_path).cases
    (doubt,) = case.doubts
    assert doubt.startswith("Traced but not measured: graph_padded. The latency record has only eager, graph")
    assert doubt in remarks(case)
    assert case.verdict.status == "met"


def test_another_number_of_requests_is_doubted(tmp_path: Path) -> None:
    path = sample(tmp_path) / "requests.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("graph,node,2")) + "\n")
    (case,) = read(tmp_path).cases
    (doubt,) = case.doubts
    assert doubt.startswith("graph (node mode): requests.csv has 2 requests, traces.json says 3")
    assert doubt.endswith(f"; {ANALYSE_AGAIN}.")


def test_a_latency_record_in_the_tables_of_another_case_keeps_its_latency(tmp_path: Path) -> None:
    folder = sample(tmp_path)
    other = latency_record("bert-tiny")
    write_record(tmp_path, other, folder.name)
    (case,) = read(tmp_path).cases
    assert case.tables is None
    assert "about case 'gpt2-float32-p50-m1024', not 'bert-tiny-float32-p50-m1024'" in case.missing[0].why
    assert case.verdict.status == "met"


def test_a_record_of_another_schema_version_breaks_its_case_alone(tmp_path: Path) -> None:
    sample(tmp_path)
    newer: dict[str, object] = {**latency_record("newer"), "schema_version": 2}
    write_record(tmp_path, latency_record("newer")).write_text(json.dumps(newer), encoding="utf-8")
    data = read(tmp_path)
    assert [case.name for case in data.cases] == ["gpt2-float32-p50-m1024"]
    (broken,) = data.broken
    assert "record schema 2, this launchgap reads 1" in broken.reason
