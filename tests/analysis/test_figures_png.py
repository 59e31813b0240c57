"""Text drawn as outlines stands where matplotlib's own renderer puts it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from analysis.figures import render_png

DPI = 100


def ink(png: bytes) -> tuple[list[int], float]:
    """Box around everything darker than grey, in pixels, and how dark the picture is on the whole."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    rows, columns = np.nonzero(pixels < 128)
    return [columns.min(), columns.max(), rows.min(), rows.max()], float((255 - pixels).sum())


@pytest.mark.parametrize("angle", [0, 90, 30])
@pytest.mark.parametrize("words", ["cudaGraphLaunch → 2", "share of\nrequests"])
def test_text_is_where_and_as_dark_as_matplotlib_draws_it(words: str, angle: int) -> None:
    figure = Figure(figsize=(3, 3))
    figure.text(0.5, 0.5, words, rotation=angle, ha="center", va="center", fontsize=12, parse_math=False)
    buffer, canvas = io.BytesIO(), figure.canvas
    FigureCanvasAgg(figure).print_figure(buffer, format="png", dpi=DPI)
    figure.set_canvas(canvas)
    (box, darkness), (usual_box, usual_darkness) = ink(render_png(figure, DPI)), ink(buffer.getvalue())
    assert np.abs(np.subtract(box, usual_box)).max() <= 3
    assert darkness == pytest.approx(usual_darkness, rel=0.1)
    assert figure.canvas is canvas


def test_an_empty_text_and_letters_that_no_font_has_are_drawn() -> None:
    figure = Figure(figsize=(2, 1))
    figure.text(0.1, 0.5, " ")
    blank = render_png(figure, DPI)
    assert not Image.open(io.BytesIO(blank)).convert("L").point(lambda value: 255 - value).getbbox()
    figure.text(0.1, 0.5, "\U0010fffd")
    with pytest.warns(UserWarning, match="Glyph"):
        assert render_png(figure, DPI) != blank
