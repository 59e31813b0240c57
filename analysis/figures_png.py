"""Draws a figure as pixels with its text as outlines, which is what its SVG shows.

Matplotlib would fit each letter to the grid of pixels and copy it there, one by one. At the size of our
pictures the eye sees no difference, and that took more than half of the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D

_POINTS_PER_IN = 72


class OutlineCanvas(FigureCanvasAgg):
    """A canvas of pixels whose text is drawn as outlines."""

    _drawn_by: _OutlineRenderer | None = None

    def get_renderer(self) -> _OutlineRenderer:
        """One renderer for each size, like the canvas that this one extends."""
        size = (*self.get_width_height(physical=True), self.figure.dpi)
        if self._drawn_by is None or self._drawn_by.size != size:
            self._drawn_by = _OutlineRenderer(*size)
        return self._drawn_by


class _OutlineRenderer(RendererAgg):
    """The names of the arguments are those of matplotlib, which passes some by name.

    No figure of ours has formulas or asks for features of a font, so these arguments are not looked at.
    """

    def __init__(self, width: int, height: int, dpi: float) -> None:
        super().__init__(width, height, dpi)  # type: ignore[no-untyped-call]
        self.size = (width, height, dpi)

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        *_: Any,  # noqa: ANN401
        **__: Any,  # noqa: ANN401
    ) -> None:
        scale = prop.get_size_in_points() * self.dpi / _POINTS_PER_IN / text_to_path.FONT_SCALE
        place = Affine2D().scale(scale).rotate_deg(angle).translate(x, self.height - y)
        gc.set_linewidth(0.0)
        self.draw_path(gc, _outlines(s, prop.copy()), place, gc.get_rgb())  # type: ignore[no-untyped-call]

    def get_text_width_height_descent(
        self,
        s: str,
        prop: FontProperties,
        *_: Any,  # noqa: ANN401
        **__: Any,  # noqa: ANN401
    ) -> tuple[float, float, float]:
        width, height, descent = _extent(s, prop.copy())
        scale = self.dpi / _POINTS_PER_IN
        return width * scale, height * scale, descent * scale


@lru_cache(maxsize=512)
def _outlines(text: str, font: FontProperties) -> Path:
    vertices, codes = text_to_path.get_text_path(font, text)
    return Path(vertices, codes)


@lru_cache(maxsize=512)
def _extent(text: str, font: FontProperties) -> tuple[float, float, float]:
    """Width, height and descent in points."""
    return text_to_path.get_text_width_height_descent(text, font, False)
