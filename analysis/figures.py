"""Every figure of launchgap: pure functions from data to a matplotlib Figure, and Figures to bytes.

Nothing here touches pyplot or a display, and nothing writes a file. Equal data give equal bytes.
"""

from __future__ import annotations

from analysis.figures_latency import SIMULATION_NOTE, case_title, device_name, latency_comparison
from analysis.figures_style import THEME_COLOURS, WIDE_IN, render_png, render_svg
from analysis.figures_trace import KernelPair, TimeSplit, launches_by_api, top_kernels, where_time_went

__all__ = [
    "SIMULATION_NOTE",
    "THEME_COLOURS",
    "WIDE_IN",
    "KernelPair",
    "TimeSplit",
    "case_title",
    "device_name",
    "latency_comparison",
    "launches_by_api",
    "render_png",
    "render_svg",
    "top_kernels",
    "where_time_went",
]
