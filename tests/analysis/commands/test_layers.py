"""`python -m analysis layers`: the tables of both sides, the figure, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from analysis.__main__ import main
from analysis.figures_layers import layers_figure
from analysis.figures_style import THEME_COLOURS, render_svg
from analysis.layers_picture import LayersPicture, LayerStack
from commandline import run_command
from tests.analysis.commands.run_command import ROOT, analysis
from tests.analysis.layers_file import eager_trace, graph_trace

REFERENCE = ROOT / "profiles" / "reference" / "gpt2-float32-p50-m1024"


@pytest.fixture
def eager(tmp_path: Path) -> Path:
    return eager_trace(tmp_path / "eager.sqlite")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return graph_trace(tmp_path / "graph.sqlite")


def told(capsysbinary: pytest.CaptureFixture[bytes], *words: str | Path) -> dict[str, Any]:
    assert main(["layers", *map(str, words), "--format", "json"]) == 0
    content = json.loads(capsysbinary.readouterr().out)
    assert isinstance(content, dict)
    return content


def complaint(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert run_command(lambda: main(["layers", *map(str, words)])) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_one_trace(eager: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    content = told(capsysbinary, eager)
    *rows, whole = content["tables"]["layers"]
    assert [row["layer"] for row in rows] == [
        *("net", "net.embed", "net.h.0", "net.h.1", "head", "(outside modules)")
    ]
    assert whole["layer"] == "(all)"
    for name in ("kernels", "operations", "launches", "gpu_us"):
        assert whole[name] == pytest.approx(sum(row[name] for row in rows))
    assert content["trace"]["adds_up"] == "4 of 4 sums over layers are all requests' own, exactly"
    assert content["findings"] == []


def test_both_sides_and_merged_blocks(
    eager: Path, graph: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    content = told(capsysbinary, eager, "--graph", graph, "--merge", "--depth", "4")
    *rows, whole = content["tables"]["layers"]
    assert [row["layer"] for row in rows][2:4] == ["net.h.*.attn", "net.h.*.mlp"]
    assert (rows[2]["eager_kernels"], rows[2]["graph_kernels"]) == (2, 2)
    assert (rows[2]["eager_launches"], rows[2]["graph_launches"], rows[2]["launches_difference"]) == (
        2,
        0,
        -2,
    )
    assert (whole["eager_launches"], whole["graph_launches"]) == (9, 2)
    assert whole["gpu_us_difference"] == pytest.approx(whole["graph_gpu_us"] - whole["eager_gpu_us"])
    assert content["trace"]["graph_adds_up"].startswith("4 of 4")


def test_as_a_shell_runs_it(eager: Path, graph: Path, tmp_path: Path) -> None:
    figure, out = tmp_path / "new" / "layers.png", tmp_path / "layers.md"
    ran = analysis("layers", eager, "--graph", graph, "--figure", figure, "-o", out)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert "| net.h.1 |" in out.read_text()
    assert min(Image.open(figure).size) > 300


def test_findings_say_what_is_not_attributed(
    eager: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    late = graph_trace(tmp_path / "late.sqlite", seen=False)
    (finding,) = told(capsysbinary, eager, "--graph", late)["findings"]
    assert finding["what"] == (
        "graph: of 12 of 14 operations the trace does not tell when the graph's node was made"
    )


def test_refusals(eager: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, whole = REFERENCE / "eager.node.sqlite.gz", REFERENCE / "graph.graph.sqlite.gz"
    assert "has no ranges of modules, so it does not tell layers apart; capture it with --annotate" in (
        complaint(capsys, plain)
    )
    assert "eager.node.sqlite.gz: has no ranges" in complaint(capsys, plain)
    assert "graph.graph.sqlite.gz: has no ranges of modules" in complaint(capsys, eager, "--graph", whole)
    assert "it replays graphs, so it is not what" in complaint(capsys, graph, "--graph", graph)
    assert "its requests replay no graph; give --graph" in complaint(capsys, eager, "--graph", eager)
    nodeless = graph_trace(tmp_path / "n.sqlite", node_events=False)
    assert "(no CUDA_GRAPH_NODE_EVENTS); record the capture as well" in complaint(capsys, nodeless)
    assert "--depth 0: must be 1 or more" in complaint(capsys, eager, "--depth", "0")
    assert "invalid int value: 'x'" in complaint(capsys, eager, "--depth", "x")
    assert "is neither .svg nor .png" in complaint(capsys, eager, "--figure", "a.pdf")
    assert "--graph-range: there is no graph's trace" in complaint(capsys, eager, "--graph-range", "r")
    assert "is one of the inputs" in complaint(capsys, eager, "-o", eager)
    assert "is to hold two outputs" in complaint(
        capsys, eager, "--figure", tmp_path / "a.svg", "-o", tmp_path / "a.svg"
    )


@pytest.mark.parametrize("blocks", [1, 12, 32])
def test_the_figure_names_every_block_of_a_usual_model(blocks: int) -> None:
    layers = ("model.embed", *(f"model.layers.{number}" for number in range(blocks)), "lm_head")
    layers = (*layers, "(outside modules)")
    us = (4.0, *([50.0] * blocks), 80.0, 2.0)
    eager = LayerStack("eager", us, (2.0, *([20.0] * blocks), 1.0, 4.0))
    graph = LayerStack("graph", us, (*([0.0] * (blocks + 2)), 2.0))
    picture = LayersPicture("Time and launches by layer: m", layers, (eager, graph))
    figure = layers_figure(picture)
    time, launches = figure.axes
    labels = [text.get_text() for text in time.texts]
    for number in map(str, range(blocks)):
        assert labels.count(number) == 2
        assert [text.get_text() for text in launches.texts].count(number) == 1
    assert "lm_head" in labels
    assert len(time.patches) == 2 * len(layers)
    assert len(launches.patches) == len(layers) + 1
    first, last = time.patches[0], time.patches[len(layers) - 1]
    assert first.get_x() == 0  # type: ignore[attr-defined]
    assert last.get_x() + last.get_width() == pytest.approx(sum(us))  # type: ignore[attr-defined]
    # A number lies within its segment.
    figure.canvas.draw()
    segments = {patch.get_window_extent().x0: patch.get_window_extent().x1 for patch in time.patches}
    for text in time.texts:
        if text.get_text().isdigit():
            box = text.get_window_extent()
            assert any(x0 <= box.x0 and box.x1 <= x1 for x0, x1 in segments.items())
    svg = render_svg(figure).decode()
    assert {colour for colour in THEME_COLOURS if colour in svg} >= {"#d9822b", "#17548f"}
    assert render_svg(layers_figure(picture)).decode() == svg


def test_a_figure_of_nothing_and_of_strange_names() -> None:
    empty = LayersPicture("t", (), (LayerStack("eager", (), ()),))
    assert layers_figure(empty).axes
    strange = LayersPicture("t", ("$a_$.*", "x" * 90), (LayerStack("eager", (1.0, 2.0), (0.0, 0.0)),))
    assert b"svg" in render_svg(layers_figure(strange))
