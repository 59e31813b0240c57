"""What explains a case, from the committed traces of an H200 to the report."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import analysis.case_explained
from analysis.case import AnalysedCase, analyse_case
from analysis.case_beside import read_beside
from analysis.case_explained import TABLE_COLUMNS
from analysis.host_ledger import HOST_PARTS
from analysis.ledger import GPU_PARTS
from analysis.report import ReportData, gather, render_html, render_json, render_markdown
from analysis.report_tables import ANALYSE_AGAIN
from tests.analysis.calibration_record import record as calibration_record
from tests.analysis.report_page import Page
from tests.analysis.report_samples import HOSTILE

CASE = "bert-tiny-float32-p50-m512"
REFERENCE = Path(__file__).resolve().parents[2] / "profiles/reference" / CASE
NAMES = ("eager.node", "graph.node", "graph.graph")
LAYER_NORM = "SELECT id FROM StringIds WHERE value LIKE '%layer_norm%'"
TITLES = (
    "From eager to graph to the floor",
    "The graph, predicted from the eager trace",
    "Does the graph do eager's work?",
    "What stands in the way of a capture",
)


def traces(folder: Path, names: tuple[str, ...] = NAMES, **edits: str) -> Path:
    """A copy of the reference traces; an edit is a statement for the trace of that strategy, node mode."""
    folder.mkdir()
    for name in names:
        shutil.copy(REFERENCE / f"{name}.json", folder)
        shutil.copy(REFERENCE / f"{name}.sqlite.gz", folder)
    for strategy, statement in edits.items():
        packed = folder / f"{strategy}.node.sqlite.gz"
        plain = packed.with_suffix("")
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
        with sqlite3.connect(plain) as database:
            assert database.execute(statement).rowcount > 0
        database.close()
    return folder


def analysed(folder: Path, gpu: str = "NVIDIA H200") -> AnalysedCase:
    calibration = folder / "calibration.json"
    calibration.write_text(json.dumps(calibration_record(gap_us=0.7, gpu=gpu)))
    return analyse_case(CASE, folder, beside=read_beside(CASE, REFERENCE / "latency.json", calibration))


def missing(case: AnalysedCase) -> dict[tuple[str, str], str]:
    return {(one["part"], one["strategy"]): one["reason"] for one in case.verdicts["missing"]}


def reported(root: Path, case: AnalysedCase) -> ReportData:
    """What the report of a case is made from."""
    tables = root / "tables" / CASE
    tables.mkdir(parents=True)
    for name, text in case.files().items():
        (tables / name).write_text(text, encoding="utf-8")
    (root / "latency" / CASE).mkdir(parents=True)
    shutil.copy(REFERENCE / "latency.json", root / "latency" / CASE)
    return gather(root / "latency", root / "tables", None, root)


def formats(root: Path, case: AnalysedCase) -> tuple[str, str, dict[str, Any]]:
    """The report of a case as a page, as Markdown, and its one case as JSON."""
    data = reported(root, case)
    return render_html(data), render_markdown(data), json.loads(render_json(data))["cases"][0]


def test_a_case_of_an_h200_is_explained_in_every_format(tmp_path: Path) -> None:
    case = analysed(traces(tmp_path / "traces"))
    assert case.verdicts["missing"] == []
    assert {name: tuple(table.columns) for name, table in case.explained.items()} == TABLE_COLUMNS
    assert all(len(table) for name, table in case.explained.items() if name != "blockers")
    for name, parts in (("ledger", GPU_PARTS), ("host_ledger", HOST_PARTS)):
        table = case.explained[name]
        assert len(table) == 60
        assert (table[list(parts)].sum(axis=1) == table["range_ns"]).all()
    page, markdown, record = formats(tmp_path, case)
    seen = Page(page)
    for title in TITLES:
        assert title in seen.text
        assert f"### {title}" in markdown
    waterfall = {row[0]: row[1:] for row in seen.table("GPU's ledger of the request")}
    spans = waterfall["busy (graph: replay span, pauses included)"]
    assert (spans[0], spans[-1]) == ("201.4", "")
    assert waterfall["device gaps"][-1] == ""
    assert "Neither is comparable with eager's" in seen.text
    assert "eager, median request: the GPU was busy for 12 % of the range" in seen.text
    assert "graph, median request: its replay, pauses between its kernels included, spanned 81 %" in seen.text
    assert "graph 265 us, of it replay span 214" in markdown
    assert waterfall["floor"][:2] == ["–", "4.0"]
    (score,) = record["explained"]["scores"]
    assert score["measured_us"] == pytest.approx(229.92)
    assert score["error_percent"] == pytest.approx(
        (score["predicted_us"] / score["measured_us"] - 1) * 100, abs=1e-3
    )
    assert "A graph will help" in markdown
    assert record["explained"]["matches"][0]["kernels"]["same"]["graph_calls_per_request"] == 55
    assert (record["explained"]["alarms"], record["missing"]) == ([], [])
    assert 'role="alert"' not in page
    for name in ("ledger", "host_ledger", "kernel_match", "escaped", "graph_cost", "scores"):
        assert f"Numbers from tables/{CASE}/{name}.csv" in seen.text


@pytest.mark.usefixtures("without_figures")
def test_a_graph_that_lacks_kernels_is_called_out_in_red(tmp_path: Path) -> None:
    lost = f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName IN ({LAYER_NORM})"
    page, markdown, record = formats(tmp_path, analysed(traces(tmp_path / "traces", graph=lost)))
    (alarm,) = record["explained"]["alarms"]
    assert alarm.startswith("graph may be faster because work escaped it: 6 operations per request (")
    assert "missing for no known reason" in alarm
    alerts = [attributes for _, attributes in Page(page).elements if attributes.get("role") == "alert"]
    assert [one["class"] for one in alerts] == ["alarm"] * 3
    assert page.index('role="alert"') < page.index(">Before and after</h3>")
    assert f"**{alarm}**" in markdown.replace("\\", "")
    fatal = [one for one in record["explained"]["findings"] if one["severity"] == "fatal"]
    assert "missing in the graph's request, for no known reason" in fatal[0]["sentence"]


def test_markup_in_a_kernel_name_stays_text(tmp_path: Path) -> None:
    named = f"UPDATE StringIds SET value = '{HOSTILE}' WHERE id IN ({LAYER_NORM})"
    case = analysed(traces(tmp_path / "traces", eager=named))
    page, markdown, _ = formats(tmp_path, case)
    assert "<script>alert" not in page + markdown
    assert "@someone" not in markdown
    assert any(HOSTILE in (attributes.get("title") or "") for _, attributes in Page(page).elements)


def _without(name: str) -> Callable[[Path], AnalysedCase]:
    def analyse(folder: Path) -> AnalysedCase:
        return analysed(traces(folder, tuple(one for one in NAMES if one != name)))

    return analyse


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    ("analyse", "lost"),
    [
        (
            lambda folder: analyse_case(CASE, traces(folder)),
            {("prediction", "eager"): "no calibration was given"},
        ),
        (_without("eager.node"), {}),
        (_without("graph.node"), {}),
        (
            lambda folder: analyse_case(CASE, traces(folder, NAMES[:1]), strategies=["eager", "graph"]),
            {("match of kernels", "graph"): "not in traces", ("GPU ledger", "graph"): "not in traces"},
        ),
    ],
)
def test_what_cannot_be_made_is_told_and_the_rest_stands(
    tmp_path: Path, analyse: Callable[[Path], AnalysedCase], lost: dict[tuple[str, str], str]
) -> None:
    case = analyse(tmp_path / "traces")
    assert len(case.explained["ledger"])
    told = missing(case)
    for part, reason in lost.items():
        assert reason in told[part]
    page, markdown, record = formats(tmp_path, case)
    for part, reason in lost.items():
        assert reason in Page(page).text
        assert reason in markdown
        what = next(
            one["what"] for one in record["missing"] if reason in one["why"] and part[0] in one["what"]
        )
        assert f"{part[1]} (" in what


def test_one_part_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> pd.DataFrame:
        raise ValueError("a shape nobody thought of")

    monkeypatch.setattr(analysis.case_explained, "host_ledger", fail)
    monkeypatch.setattr(analysis.case_explained, "escaped_work", fail)
    case = analysed(traces(tmp_path / "traces"))
    told = missing(case)
    assert set(told) == {("host ledger", "eager"), ("host ledger", "graph"), ("match of kernels", "graph")}
    assert "a fault of launchgap, please report it" in told["host ledger", "graph"]
    assert case.explained["host_ledger"].empty
    assert len(case.explained["ledger"]) == 60
    assert len(case.explained["scores"]) == 1


@pytest.mark.usefixtures("without_figures")
def test_a_calibration_of_another_gpu_is_said_beside_the_prediction(tmp_path: Path) -> None:
    _, markdown, record = formats(tmp_path, analysed(traces(tmp_path / "traces", NAMES[:1]), "NVIDIA A100"))
    words = "The calibration is of NVIDIA A100, the trace of NVIDIA H200"
    assert f"- Warning: {words}" in markdown
    assert record["explained"]["prediction"]["calibrated_gpu"] == "NVIDIA A100"


BROKEN = {
    "{": "not valid JSON",
    '{"schema_version": 1, "kind": "explained", "case": "other"}': "about case 'other'",
    f'{{"schema_version": 1, "kind": "explained", "case": "{CASE}"}}': "incomplete",
    f'{{"schema_version": 1, "kind": "explained", "case": "{CASE}", "matches": [], "missing": [], '
    '"prediction": null, "findings": [{"part": "", "strategy": "", "trace_mode": "", "sentence": "", '
    '"severity": "x"}]}': "incomplete",
}


def test_a_broken_record_costs_the_explanations_alone(tmp_path: Path) -> None:
    reported(tmp_path, analyse_case(CASE, traces(tmp_path / "traces", NAMES[:1])))
    for content, reason in BROKEN.items():
        (tmp_path / "tables" / CASE / "explained.json").write_text(content)
        (found,) = gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path).cases
        assert found.explained is None
        assert found.tables is not None
        (part,) = found.missing
        assert part.what.startswith("Ledgers, match of kernels")
        assert reason in part.why
        assert part.why.endswith(f"; {ANALYSE_AGAIN}")
        assert str(tmp_path) not in part.why


@pytest.mark.parametrize(
    ("latency", "calibration", "reasons"),
    [
        (None, "no.json", ("no latency record to compare with", "no.json: no such calibration")),
        ("{}", "{}", ("latency.json: ", "calibration.json: ")),
    ],
)
def test_what_lies_beside_and_cannot_be_used(
    tmp_path: Path, latency: str | None, calibration: str, reasons: tuple[str, str]
) -> None:
    paths = (tmp_path / "latency.json", tmp_path / "calibration.json")
    for path, content in zip(paths, (latency, calibration), strict=True):
        if content == "{}":
            path.write_text(content)
    named = paths[1] if calibration == "{}" else tmp_path / calibration
    beside = read_beside(CASE, paths[0] if latency else None, named)
    for found, reason in zip((beside.latency, beside.calibration), reasons, strict=True):
        assert isinstance(found, str)
        assert reason in found
        assert str(tmp_path) not in found
    other = read_beside("other", REFERENCE / "latency.json", named)
    assert other.latency == f"latency.json is of {CASE}; give the latency record of the same case"
