"""The whole of some timelines as a picture that needs no script: for paper, and where scripts are off.

Bars are strokes of one path per lane and colour, in a viewBox that stretches to any width while heights and
letters keep their size. Bars that would touch on any screen become one, so that ten thousand calls take no
more room than a thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from analysis.host_parts import HostPart
from analysis.timeline import GapKind, Operation, Timeline, WorkKind

WIDTH = 4_000
"""Units of the whole scale: a few to the pixel of any screen or sheet of paper."""

CALL_STYLES = {HostPart.LAUNCHES: "tl-launch", HostPart.SYNCHRONISING: "tl-wait", HostPart.COPIES: "tl-wait"}
GAP_STYLES = {GapKind.LAUNCH_BOUND: "tl-bound", GapKind.DEVICE: "tl-device"}
_KNOWN = frozenset({"eager", "graph", "graph_padded"})
_SHORTEST, _TOUCHING = 3, 2
_HEADING, _BETWEEN, _AXIS = 24, 14, 26
_HEIGHTS = {"NVTX": 14, "host": 18, "GPU": 18, "gaps": 10}
_LANE_GAP = 4
_MOST_ROWS = 8
_MOST_TICKS = 7

Span = tuple[int, int]


@dataclass(frozen=True)
class Picture:
    """The labels of the lanes and the lanes, as two drawings of one height to be put side by side."""

    labels: Markup
    lanes: Markup


@dataclass
class _Canvas:
    """What was drawn so far, and how far down."""

    scale_ns: int
    y: int = 0
    labels: list[str] = field(default_factory=list)
    bars: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def strategy_class(strategy: str) -> str:
    """CSS class of a strategy's kernels."""
    name = strategy if strategy in _KNOWN else "other"
    return f"tl-{re.sub('_', '-', name)}"


def scale_of(timelines: Sequence[Timeline]) -> int:
    """Nanoseconds that are to be seen: the longest range, and what outlasts it on the GPU; at least one."""
    ends = [one.start_ns + one.duration_ns for timeline in timelines for one in timeline.operations]
    return max([1, *(timeline.range_ns for timeline in timelines), *ends])


def draw(timelines: Sequence[Timeline], headings: Sequence[str]) -> Picture:
    """Draw timelines below each other on one scale, each under its heading."""
    canvas = _Canvas(scale_of(timelines))
    for timeline, heading in zip(timelines, headings, strict=True):
        _draw_timeline(canvas, timeline, heading)
    grid = _draw_axis(canvas)
    height = canvas.y
    inner = f'<svg viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" width="100%" height="{height}">'
    body = f"{inner}{grid}{''.join(canvas.bars)}</svg>{''.join(canvas.texts)}"
    return Picture(
        labels=Markup(f'<svg width="44" height="{height}">{"".join(canvas.labels)}</svg>'),
        lanes=Markup(f'<svg width="100%" height="{height}">{body}</svg>'),
    )


def _draw_timeline(canvas: _Canvas, timeline: Timeline, heading: str) -> None:
    name = f'<tspan class="tl-name">{escape(timeline.strategy)}</tspan> {escape(heading)}'
    canvas.texts.append(f'<text x="0" y="{canvas.y + 16}">{name}</text>')
    canvas.y += _HEADING
    ranges = [("tl-range", [(one.start_ns, one.duration_ns) for one in timeline.ranges])]
    _draw_lane(canvas, "NVTX", ranges)
    _draw_lane(canvas, "host", _call_spans(timeline))
    rows = min(max(len(timeline.rows), 1), _MOST_ROWS)
    for row in range(rows):
        last = row == rows - 1
        drawn = [one for one in timeline.operations if one.row == row or (last and one.row > row)]
        _draw_lane(canvas, "GPU", _work_spans(timeline, drawn), "" if row else "GPU")
    _draw_lane(canvas, "gaps", _gap_spans(timeline))
    canvas.y += _BETWEEN


def _call_spans(timeline: Timeline) -> list[tuple[str, list[Span]]]:
    by_style: dict[str, list[Span]] = {"tl-call": [], "tl-launch": [], "tl-wait": []}
    for call in timeline.calls:
        by_style[CALL_STYLES.get(call.part, "tl-call")].append((call.start_ns, call.duration_ns))
    return list(by_style.items())


def _work_spans(timeline: Timeline, operations: Iterable[Operation]) -> list[tuple[str, list[Span]]]:
    kernel = strategy_class(timeline.strategy)
    by_style: dict[str, list[Span]] = {kernel: [], "tl-copy": []}
    for one in operations:
        style = kernel if one.kind in (WorkKind.KERNEL, WorkKind.GRAPH) else "tl-copy"
        by_style[style].append((one.start_ns, one.duration_ns))
    return list(by_style.items())


def _gap_spans(timeline: Timeline) -> list[tuple[str, list[Span]]]:
    gaps = timeline.gaps
    return [
        (style, [(one.start_ns, one.duration_ns) for one in gaps if one.kind is kind])
        for kind, style in GAP_STYLES.items()
    ]


def _draw_lane(
    canvas: _Canvas, lane: str, spans: Sequence[tuple[str, Sequence[Span]]], label: str | None = None
) -> None:
    height = _HEIGHTS[lane]
    middle = canvas.y + height / 2
    for style, found in spans:
        path = _path(found, canvas.scale_ns)
        if path:
            thick = height / 2 if style == "tl-device" else height
            canvas.bars.append(f'<path class="{style}" stroke-width="{thick:g}" d="M0 {middle:g}{path}"/>')
    text = lane if label is None else label
    canvas.labels.append(f'<text x="0" y="{middle + 4:g}">{text}</text>' if text else "")
    canvas.y += height + _LANE_GAP


def _path(spans: Iterable[Span], scale_ns: int) -> str:
    """Strokes from left to right, each by its distance from the one before and its length, in whole units."""
    bars: list[list[int]] = []
    for start_ns, duration_ns in sorted(spans):
        begin = min(max(round(start_ns * WIDTH / scale_ns), 0), WIDTH - _SHORTEST)
        end = min(max(round((start_ns + duration_ns) * WIDTH / scale_ns), begin + _SHORTEST), WIDTH)
        if bars and begin - bars[-1][1] < _TOUCHING:
            bars[-1][1] = max(bars[-1][1], end)
        else:
            bars.append([begin, end])
    ends = [0, *(end for _, end in bars)]
    return "".join(f"m{begin - ends[place]} 0h{end - begin}" for place, (begin, end) in enumerate(bars))


def _draw_axis(canvas: _Canvas) -> str:
    """Ticks of the scale; returns their lines, which belong below the bars."""
    step_ns = tick_step(canvas.scale_ns)
    unit_ns, unit = (1_000_000, "ms") if canvas.scale_ns >= 1_000_000 else (1_000, "µs")
    lines = []
    for tick in range(0, canvas.scale_ns + 1, step_ns):
        share = tick / canvas.scale_ns
        anchor = "start" if not tick else "end" if share > 0.97 else "middle"
        words = f"{tick / unit_ns:g}" + (f" {unit}" if not tick else "")
        place = f'x="{share * 100:.4g}%" y="{canvas.y + 12}" text-anchor="{anchor}"'
        canvas.texts.append(f'<text {place} class="tl-tick">{words}</text>')
        lines.append(f"M{round(share * WIDTH)} 0V{canvas.y - 4}")
    canvas.y += _AXIS
    return f'<path class="tl-grid" vector-effect="non-scaling-stroke" d="{"".join(lines)}"/>'


def tick_step(scale_ns: int) -> int:
    """The round step, 1, 2 or 5 times a power of ten, that gives seven ticks or a few less."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power * _MOST_TICKS >= scale_ns:
                return factor * power
        power *= 10
