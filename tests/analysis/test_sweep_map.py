"""The heat map of many cases: which cell holds what, and what is said of lengths where graphs stop paying."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.figures import render_svg
from analysis.figures_sweep import draw_reduction_map, sweep_figure
from analysis.report import gather, render, render_html, render_markdown
from analysis.report_data import ReportData
from analysis.sweep_map import MapCell, MapRow, ReductionMap, count, reduction_map
from contract import LatencyRecord, case_name
from tests.analysis.report_samples import latency_record, write_record


def _record(model: str, parameters: int, length: int, graph_ms: float, **more: object) -> LatencyRecord:
    record = latency_record(medians_ms={"eager": 4.0, "graph": graph_ms})
    record["model"]["parameters"] = parameters
    record["case"] |= {"model": model, "prompt_length": length, **more}  # type: ignore[typeddict-item]
    fields = {key: value for key, value in record["case"].items() if key != "name"}
    record["case"]["name"] = case_name(**fields)  # type: ignore[arg-type]
    return record


def _data(folder: Path, *records: LatencyRecord) -> ReportData:
    for record in records:
        write_record(folder, record, record["case"]["name"])
    return gather(folder / "latency", folder / "tables", None, folder)


@pytest.fixture
def records() -> list[LatencyRecord]:
    return [
        _record("org/large", 1_240_000_000, 50, 3.0),
        _record("org/large", 1_240_000_000, 512, 4.4),
        _record("small", 124_000_000, 50, 1.0),
        _record("small", 124_000_000, 512, 2.0),
    ]


def test_small_models_first_and_short_prompts_left(tmp_path: Path, records: list[LatencyRecord]) -> None:
    found = reduction_map(_data(tmp_path, *records))
    assert found is not None
    assert found.lengths == (50, 512)
    assert [row.label for row in found.rows] == ["small float32 (124 M)", "large float32 (1.2 B)"]
    percents = [[cell.percent if cell else None for cell in row.cells] for row in found.rows]
    for row, expected in zip(percents, ([75, 50], [25, -10]), strict=True):
        assert row == pytest.approx(expected, abs=3)
    assert found.sentences() == [
        "large float32 (1.2 B): from 512 tokens on a graph is no longer surely faster."
    ]


def test_settings_that_do_not_touch_the_graph_share_a_cell_and_others_a_row(
    tmp_path: Path, records: list[LatencyRecord]
) -> None:
    more = [_record("small", 124_000_000, 50, 2.0, max_length=2048)]
    more += [_record("small", 124_000_000, 50, 3.0, attn_implementation="eager")]
    found = reduction_map(_data(tmp_path, *records, *more))
    assert found is not None
    cells = {row.label: row.cells[0] for row in found.rows}
    assert cells["small float32 (124 M)"] is not None
    assert cells["small float32 (124 M)"].percent == pytest.approx(62.5, abs=3)
    eager = next(row for row in found.rows if row.label == "small float32 eager (124 M)")
    assert eager.cells[1] is None


def test_too_few_cells_or_one_length_have_no_map(tmp_path: Path, records: list[LatencyRecord]) -> None:
    assert reduction_map(_data(tmp_path / "few", *records[:3])) is None
    same = [_record(f"m{number}", number, 50, 1.0) for number in range(1, 6)]
    assert reduction_map(_data(tmp_path / "same", *same)) is None


def test_a_simulation_has_no_map(tmp_path: Path, records: list[LatencyRecord]) -> None:
    for record in records:
        record["simulated"] = True
    assert sweep_figure(_data(tmp_path, *records)) is None


def test_a_wrong_output_has_no_cell(tmp_path: Path, records: list[LatencyRecord]) -> None:
    correctness = records[0]["strategies"]["graph"]["correctness"]
    assert correctness is not None
    correctness |= {"verdict": "DIFFERENT", "allclose": False, "bitwise": False}
    assert reduction_map(_data(tmp_path, *records)) is None  # three are left


def test_sentences_begin_where_no_longer_prompt_surely_gains() -> None:
    gain, unsure, loss = MapCell(40.0, sure=True), MapCell(2.0, sure=False), MapCell(-9.0, sure=True)
    rows = [
        MapRow("always", 1, (gain, gain, gain)),
        MapRow("between", 1, (gain, loss, gain)),
        MapRow("stops", 1, (gain, unsure, loss)),
        MapRow("gap", 1, (gain, None, loss)),
        MapRow("never", 1, (loss, None, None)),
        MapRow("empty", 1, (None, None, None)),
    ]
    told = ReductionMap((10, 20, 30), tuple(rows)).sentences()
    assert [line.split(" tokens")[0] for line in told] == ["stops: from 20", "gap: from 30", "never: from 10"]


def test_the_figure_is_in_every_form_of_the_report(
    tmp_path: Path, records: list[LatencyRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.report_drawing.case_figures", lambda _case: [])
    monkeypatch.setattr("analysis.report_html.case_figures", lambda _case: [])
    data = _data(tmp_path, *records)
    files = render(data)
    assert {"figures/reduction_map.svg", "figures/reduction_map.png"} <= set(files)
    assert "](figures/reduction_map.png)" in render_markdown(data)
    page = render_html(data)
    assert "Reduction in percent for prompts of 50, 512 tokens. small float32 (124 M): " in page
    assert "from 512 tokens on a graph is no longer surely faster." in page


def test_equal_maps_give_equal_pictures() -> None:
    cells = (MapCell(40.0, sure=True), None, MapCell(-9.5, sure=False))
    found = ReductionMap((1, 2, 3), (MapRow("a model of a very long name that must be cut " * 3, 5, cells),))
    first, second = (render_svg(draw_reduction_map(found, 5.0), text_as_outlines=False) for _ in range(2))
    assert first == second
    for text in (b"40.0", "\u22129.5".encode(), "\u2013".encode(), "\u2026".encode()):
        assert text in first


@pytest.mark.parametrize(
    ("number", "said"), [(999, "999"), (4_400_000, "4.4 M"), (124_439_808, "124 M"), (1_235_814_400, "1.2 B")]
)
def test_counts(number: int, said: str) -> None:
    assert count(number) == said
