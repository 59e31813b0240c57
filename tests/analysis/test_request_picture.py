"""The picture of one request, by hand and against the ledgers, and its drawing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.attribute import Attributed, RangeSelector, attribute
from analysis.figures_request import kernel_bars, request_timeline
from analysis.figures_style import render_png
from analysis.ledger import gpu_ledger
from analysis.request_picture import STREAMS_AT_MOST, Look, RequestPicture, request_picture
from analysis.request_work import only_request
from analysis.tables import CountedTrace, TraceLabel, kernels_table, requests_table
from analysis.trace import Trace, read_trace
from contract import LaunchgapError, TraceMode
from tests.analysis.trace_file import EXAMPLES, TraceFile


def read(file: TraceFile) -> tuple[Trace, Attributed]:
    trace = read_trace(file.save())
    return trace, attribute(trace, RangeSelector())


def spans(picture: RequestPicture, look: Look) -> list[tuple[float, float]]:
    found = [bars for row in picture.rows for bars in row.bars if bars.look == look]
    return [pair for bars in found for pair in zip(bars.begin_us, bars.length_us, strict=True)]


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.fixture
def file(tmp_path: Path) -> TraceFile:
    return TraceFile(tmp_path / "trace.sqlite")


def test_every_event_of_a_request_has_its_place_in_microseconds_of_the_request(file: TraceFile) -> None:
    file.requests((0, 900), (10_000, 20_000))
    file.launch("of the first", (100, 200), (300, 400), streamId=7)
    file.launch("matmul", (11_000, 12_000), (13_000, 15_000), streamId=7)
    file.memset(16_000, 16_500, file.call("cudaMemsetAsync_v3020", 15_000, 15_500), streamId=9)
    file.call("cudaStreamSynchronize_v3020", 17_000, 21_000)
    file.call("cudaEventQuery_v3020", 9_000, 10_500)
    file.call("cudaEventQuery_v3020", 20_500, 20_600)
    trace, attributed = read(file)
    picture = request_picture(trace, attributed, 1, "second")
    assert (picture.range_us, picture.end_us, picture.hidden_streams) == (10.0, 10.0, 0)
    assert [row.name for row in picture.rows] == [
        "host: CUDA calls",
        "GPU 0: stream 7",
        "GPU 0: stream 9",
        "GPU: gaps",
    ]
    assert spans(picture, Look.LAUNCHES) == [(1.0, 1.0), (5.0, 0.5)]
    assert spans(picture, Look.WAITS) == [(7.0, 3.0)]
    assert spans(picture, Look.OTHER_CALLS) == [(0.0, 0.5)]
    assert spans(picture, Look.KERNELS) == [(3.0, 2.0)]
    assert spans(picture, Look.COPIES) == [(6.0, 0.5)]
    assert spans(picture, Look.GAPS) == [(5.0, 1.0)]


def test_work_after_the_range_is_drawn_and_marked(file: TraceFile) -> None:
    file.requests((0, 1_000))
    file.launch("late", (100, 200), (800, 4_000))
    trace, attributed = read(file)
    picture = request_picture(trace, attributed, 0, "late")
    assert picture.end_us == 4.0
    assert spans(picture, Look.GAPS) == []
    assert "the range ends" in words(request_timeline(picture))


def test_a_request_without_gpu_work_has_no_streams(file: TraceFile) -> None:
    file.requests((0, 1_000), (2_000, 3_000))
    file.launch("matmul", (100, 200), (300, 400))
    trace, attributed = read(file)
    picture = request_picture(trace, attributed, 1, "idle")
    assert [row.name for row in picture.rows] == ["host: CUDA calls", "GPU: gaps"]
    assert render_png(request_timeline(picture))


def test_of_too_many_streams_the_busiest_are_drawn_and_the_others_counted(file: TraceFile) -> None:
    file.requests((0, 100_000))
    for stream in range(STREAMS_AT_MOST + 3):
        for place in range(2 if stream >= 3 else 1):
            begin = 1_000 * stream + 100 * place
            file.launch("matmul", (begin, begin + 10), (begin + 20, begin + 30), streamId=stream)
    trace, attributed = read(file)
    picture = request_picture(trace, attributed, 0, "many")
    assert picture.hidden_streams == 3
    assert [row.name for row in picture.rows[1:-1]] == [
        f"GPU 0: stream {stream}" for stream in range(3, STREAMS_AT_MOST + 3)
    ]
    assert "3 more streams" in words(request_timeline(picture))


@pytest.mark.parametrize("name", ["eager.node", "graph.node", "graph.graph"])
def test_gaps_are_those_of_the_ledger_and_operations_those_of_the_table(name: str) -> None:
    trace = read_trace(EXAMPLES[name])
    attributed = attribute(trace, RangeSelector("forward", ""))
    ledger = gpu_ledger(attributed)
    for number in (0, len(ledger) - 1):
        picture = request_picture(trace, attributed, number, name)
        row = ledger.iloc[number]
        gap_us = sum(length for _, length in spans(picture, Look.GAPS))
        assert gap_us == pytest.approx((row["launch_bound_gaps_ns"] + row["device_gaps_ns"]) / 1e3)
        drawn = [*spans(picture, Look.KERNELS), *spans(picture, Look.COPIES), *spans(picture, Look.REPLAYS)]
        assert len(drawn) == row["operations"]


@pytest.mark.parametrize("name", ["eager.node", "graph.graph"])
def test_one_request_by_itself_counts_as_it_does_among_the_others(name: str) -> None:
    trace = read_trace(EXAMPLES[name])
    attributed = attribute(trace, RangeSelector("forward", ""))
    label = TraceLabel("eager", TraceMode.NODE)
    among = requests_table([CountedTrace(label, attributed, has_gpu=True)]).iloc[[3]]
    alone = requests_table([CountedTrace(label, only_request(attributed, 3), has_gpu=True)])
    expected = among.assign(request=0).reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, expected, check_dtype=False)


@pytest.mark.parametrize("number", [-1, 2])
def test_a_request_that_is_not_there_is_refused_in_one_line(file: TraceFile, number: int) -> None:
    file.requests((0, 100), (200, 300))
    file.launch("matmul", (10, 20), (30, 40))
    trace, attributed = read(file)
    with pytest.raises(LaunchgapError, match=rf"request {number}: there are 2; give a number from 0 to 1"):
        request_picture(trace, attributed, number, "")


def test_kernel_bars_name_the_first_and_sum_up_the_others() -> None:
    trace = read_trace(EXAMPLES["eager.node"])
    attributed = only_request(attribute(trace, RangeSelector("forward", "")), 0)
    kernels = kernels_table([CountedTrace(TraceLabel("eager", TraceMode.NODE), attributed, has_gpu=True)])
    figure = kernel_bars(kernels, "gpt2", top=3)
    widths = [patch.get_width() for patch in figure.axes[0].patches]  # type: ignore[attr-defined]  # bars
    times_us = kernels["total_us_per_request"].to_numpy()
    np.testing.assert_allclose(widths, [*times_us[:3], times_us[3:].sum()])
    assert f"({len(kernels) - 3} other kernels)" in words(figure)


def test_kernel_bars_of_nothing_say_why() -> None:
    figure = kernel_bars(kernels_table([]), "replayed as a whole")
    assert "graph mode" in words(figure)
    assert render_png(figure)


def test_equal_pictures_give_equal_bytes_and_a_part_another() -> None:
    trace = read_trace(EXAMPLES["graph.graph"])
    picture = request_picture(trace, attribute(trace, RangeSelector("forward", "")), 0, "same")
    assert render_png(request_timeline(picture)) == render_png(request_timeline(replace(picture)))
    part = request_timeline(picture, (100.0, 200.0))
    assert part.axes[0].get_xlim() == (100.0, 200.0)
