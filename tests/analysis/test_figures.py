from __future__ import annotations

import io
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from PIL import Image

from analysis.figures import (
    SIMULATION_NOTE,
    THEME_COLOURS,
    KernelPair,
    TimeSplit,
    latency_comparison,
    launches_by_api,
    render_png,
    render_svg,
    top_kernels,
    where_time_went,
)
from analysis.figures_latency import format_ms
from analysis.figures_ledger import ledger_waterfall
from analysis.figures_style import StrategyStyle, shorten_middle, strategy_style
from analysis.figures_trace import KERNELS_ROW
from analysis.waterfall import Picture, Waterfall
from contract import Strategy
from tests.analysis.report_samples import HOSTILE, failed, latency_record, peers_record, strategy

SVG = "{http://www.w3.org/2000/svg}"
SPLITS = [
    TimeSplit("eager", 4.6, 1.5, 17.4),
    TimeSplit("graph", 1.8, 1.67, 5.6),
    TimeSplit("graph_padded", 9.6, 9.5, 1.2),
]
CALLS = {"eager": {"cudaLaunchKernel": 183.0, "cudaMemcpyAsync": 3.0}, "graph": {"cudaGraphLaunch": 1.0}}
KERNELS = {"eager": 232.0, "graph": 306.0}
PAIRS = [KernelPair("gemm" * 40, 530.0, 528.0, 48, 48), KernelPair("mask", 0.0, 31.6, 0, 36)]


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def every_figure(width_in: float) -> dict[str, Figure]:
    title = "gpt2 · float32 · 50-token prompt"
    return {
        "latency": latency_comparison(latency_record(), width_in),
        "simulation": latency_comparison(latency_record(simulated=True), width_in),
        "peers": latency_comparison(peers_record(), width_in),
        "key": launches_by_api(dict.fromkeys(Strategy, CALLS["graph"]), {}, title, width_in),
        "time": where_time_went(SPLITS, title, width_in),
        "launches": launches_by_api(CALLS, KERNELS, title, width_in),
        "kernels": top_kernels(PAIRS, "graph", title, width_in),
    }


@cache
def looked_at(width_in: float) -> dict[str, Figure]:
    """Figures that several tests look at."""
    return every_figure(width_in)


def histograms(figure: Figure) -> list[StepPatch]:
    return [patch for axes in figure.axes for patch in axes.patches if isinstance(patch, StepPatch)]


def test_latency_comparison_says_what_was_measured_and_every_median() -> None:
    said = words(latency_comparison(latency_record()))
    for expected in ("gpt2", "float32", "50-token", "NVIDIA H200", "no profiler", "40 requests each"):
        assert expected in said
    for name in ("eager", "graph", "graph_padded"):
        assert name in said
    assert "61 % less time" in said
    assert "107 % slower" in said


def test_a_simulation_promises_no_speed_up_and_compares_nothing() -> None:
    said = words(latency_comparison(latency_record(simulated=True)))
    assert SIMULATION_NOTE in said.replace("\n", " ")
    assert "less time" not in said
    assert "slower" not in said


def test_histograms_share_their_bins_and_hold_every_request() -> None:
    found = [patch.get_data() for patch in histograms(latency_comparison(latency_record()))]
    assert len({tuple(data[1]) for data in found}) == 1
    assert {sum(data[0]) for data in found} == {40}


def test_strategies_differ_without_colour() -> None:
    styles = [strategy_style(name) for name in ("eager", "graph", "graph_padded")]
    for look in ("hatch", "line", "marker"):
        assert len({getattr(style, look) for style in styles}) == 3


def test_no_two_strategies_look_the_same() -> None:
    styles = [strategy_style(name) for name in Strategy]
    assert len({(style.colour, style.line) for style in styles}) == len(Strategy)
    assert len({(style.colour, style.hatch) for style in styles}) == len(Strategy)
    assert len({style.marker for style in styles}) == len(Strategy)


def test_every_strategy_is_drawn() -> None:
    figure = latency_comparison(peers_record())
    assert len(figure.axes) == len(Strategy) + 1
    assert set(Strategy) <= set(words(figure).splitlines())
    assert render_png(figure)


def test_strategies_without_a_style_of_their_own_get_different_ones() -> None:
    spare = [strategy_style(f"compiled_{i}", i) for i in range(3)]
    assert len({style.colour for style in spare}) == 3
    assert all(isinstance(style, StrategyStyle) for style in spare)


@pytest.mark.parametrize(("graph_ms", "scale"), [(1.0, "linear"), (0.2, "log")])
def test_the_axis_is_logarithmic_when_medians_are_far_apart(graph_ms: float, scale: str) -> None:
    figure = latency_comparison(latency_record(medians_ms={"eager": 4.6, "graph": graph_ms}))
    assert {axes.get_xscale() for axes in figure.axes} == {scale}


def test_outliers_beyond_the_axis_are_counted() -> None:
    record = latency_record()
    record["strategies"]["eager"]["event_ms"][5] = 250.0
    assert "1 beyond, up to 250 ms" in words(latency_comparison(record))


def test_a_failed_strategy_is_named_and_not_drawn() -> None:
    record = latency_record()
    record["strategies"]["graph_padded"] = failed("out of GPU memory")
    figure = latency_comparison(record)
    assert "failed: graph_padded" in words(figure)
    assert len(figure.axes) == 3


def test_without_any_success_the_figure_says_so() -> None:
    record = latency_record()
    record["strategies"] = {"eager": failed("out of GPU memory")}
    assert "nothing was measured" in words(latency_comparison(record))


@pytest.mark.parametrize("times_ms", [[2.5], [2.5, 2.5, 2.5]])
def test_one_sample_or_equal_samples_are_drawn(times_ms: list[float]) -> None:
    record = latency_record(medians_ms={"eager": 2.5})
    record["strategies"]["eager"]["event_ms"] = times_ms
    assert render_png(latency_comparison(record))


def test_no_heading_where_the_page_brings_its_own() -> None:
    assert "gpt2" not in words(latency_comparison(latency_record(), heading=False))
    assert "gpt2" not in words(where_time_went(SPLITS, ""))


def test_time_bars_split_the_latency_into_busy_and_idle() -> None:
    axes = where_time_went(SPLITS, "t").axes[0]
    widths = [round(float(patch.get_width()), 6) for patch in axes.patches]  # type: ignore[attr-defined]
    assert widths[:2] == [1.5, 3.1]
    assert len(widths) == 2 * len(SPLITS)
    said = words(axes.figure)  # type: ignore[arg-type]
    assert "GPU busy 1.50 ms (33 %)" in said
    assert "as traced, launch calls take 17 % of the request" in said


def test_a_replay_recorded_whole_is_called_a_span() -> None:
    parts = (1.0, 5.0, 2.0, 1.0, 1.0)
    eager = Waterfall("eager", parts)
    apart = words(ledger_waterfall(Picture("t", (eager, Waterfall("graph", parts)), None)))
    assert "span" not in apart
    assert apart.split("\n").count("busy") == 2
    whole = words(ledger_waterfall(Picture("t", (eager, Waterfall("graph", parts, is_span=True)), None)))
    assert whole.split("\n").count("busy") == whole.split("\n").count("replay span") == 1
    assert "of a graph its replay span, pauses included" in whole.replace("\n", " ")


def test_busy_beyond_the_latency_is_shown_and_blamed_on_tracing() -> None:
    figure = where_time_went([TimeSplit("graph", 1.0, 1.4, 1.0)], "t")
    assert SPLITS[0].gpu_idle_ms == pytest.approx(3.1)
    assert "GPU busy 1.40 ms (140 %), by tracing" in words(figure)


def test_an_untraced_strategy_is_not_split() -> None:
    figure = where_time_went([TimeSplit("eager", 4.6, None, None)], "t")
    assert "not traced" in words(figure)
    assert TimeSplit("eager", 4.6, None, None).gpu_idle_ms is None


def test_nothing_profiled_is_called_a_latency() -> None:
    for figure in (where_time_went(SPLITS, "t"), top_kernels(PAIRS, "graph", "t")):
        said = words(figure).replace("\n", " ")
        assert "as traced" in said
        assert said.count("latency") == said.count("median latency without a profiler") + said.count(
            "not a latency"
        )


def test_launches_have_a_bar_only_where_there_is_a_call() -> None:
    figure = launches_by_api(CALLS, {"eager": 232.0, "graph": None}, "t")
    said = words(figure)
    assert KERNELS_ROW in said
    bars = [patch for patch in figure.axes[0].patches if patch.get_width() > 0]  # type: ignore[attr-defined]
    assert len(bars) == 4


@pytest.mark.parametrize("width_in", [5.0, 8.4])
def test_no_text_leaves_the_figure(width_in: float) -> None:
    for name, figure in looked_at(width_in).items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
        frame = figure.bbox
        placed = [*figure.texts, *(text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label))]
        assert placed
        for text in placed:
            box = text.get_window_extent(renderer)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            assert inside, (name, text.get_text(), box.extents, frame.extents)


def test_hostile_names_stay_text() -> None:
    record = latency_record(model=HOSTILE)
    record["strategies"][HOSTILE] = strategy("graph", 2.0)
    pairs = [KernelPair(r"$\frac{ $x_1$ <script>alert(1)</script>", 1.0, 2.0, 1, 1)]
    for figure in (latency_comparison(record), top_kernels(pairs, "graph", HOSTILE)):
        for outlines in (True, False):
            root = ET.fromstring(render_svg(figure, outlines))
            assert root.tag == f"{SVG}svg"
            assert not list(root.iter(f"{SVG}script"))
        assert render_png(figure)


def test_figures_use_only_the_colours_that_a_theme_can_swap() -> None:
    for figure in looked_at(5.0).values():
        used = {to_hex(text.get_color()) for text in figure.findobj(Text)}
        assert used <= set(THEME_COLOURS)


def test_png_is_a_picture_and_as_wide_as_asked() -> None:
    figure = latency_comparison(latency_record(), 8.4)
    assert Image.open(io.BytesIO(render_png(figure, dpi=100))).size[0] == 840


# Each kind of figure once, that of the most strategies.
RENDER = """
import sys
from hashlib import sha256
from tests.analysis.test_figures import every_figure
from analysis.figures import render_png, render_svg
figures = every_figure(8.4)
for name in ("peers", "key", "time", "kernels"):
    figure = figures[name]
    print(name, sha256(render_svg(figure)).hexdigest(), sha256(render_png(figure)).hexdigest())
print(sorted({"torch", "matplotlib.pyplot"} & set(sys.modules)))
"""


def test_equal_data_give_equal_bytes_in_any_process(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    foreign = "font.size: 31\naxes.grid: True\nsvg.hashsalt: other\n"
    (tmp_path / "matplotlibrc").write_text(foreign, encoding="utf-8")
    settings = {"PYTHONHASHSEED": "2", "PYTHONPATH": str(root), "MATPLOTLIBRC": str(tmp_path)}
    command = [sys.executable, "-c", RENDER]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **settings}, capture_output=True, text=True, check=True
    )
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    figures = every_figure(8.4)
    for line in lines:
        name, *digests = line.split()
        drawn = (render_svg(figures[name]), render_png(figures[name]))
        assert [sha256(content).hexdigest() for content in drawn] == digests
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.2494, "0.249 ms"), (4.625, "4.62 ms"), (21.84, "21.8 ms"), (250.4, "250 ms")],
)
def test_times_have_three_digits(milliseconds: float, text: str) -> None:
    assert format_ms(milliseconds) == text


@pytest.mark.parametrize(("text", "cut"), [("short", "short"), ("abcdefghij", "abc…ij")])
def test_long_names_lose_their_middle(text: str, cut: str) -> None:
    assert shorten_middle(text, 6) == cut
