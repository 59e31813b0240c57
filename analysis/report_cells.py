"""Tables as data, which HTML and Markdown both print, and how numbers become text in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.latency import Reduction

NOT_MEASURED = "–"
"""What a cell without a value shows. Never 0: nothing was measured."""

MINUS = "−"


@dataclass(frozen=True)
class Bar:
    """A bar inside a cell: `percent` of the cell's width, in the colour of a strategy."""

    percent: float
    strategy: str


@dataclass(frozen=True)
class Cell:
    """One cell. `sort` orders numeric columns, `title` is the long form, `code` marks a name from a trace.

    `anchor` names the section of the page that the cell leads to.
    """

    text: str
    sort: float | None = None
    title: str = ""
    code: bool = False
    bars: tuple[Bar, ...] = ()
    anchor: str = ""


@dataclass(frozen=True)
class Column:
    """One column's heading, its unit included. A `prose` column may wrap, others stay on one line."""

    title: str
    numeric: bool = True
    prose: bool = False


@dataclass(frozen=True)
class Table:
    """One table, where its numbers come from, and remarks below it. The first column names the row."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    source: str = ""
    notes: tuple[str, ...] = field(default=())


def text_cell(text: str, title: str = "", code: bool = False) -> Cell:
    """A cell of words."""
    return Cell(text=text, title=title, code=code)


def number_cell(value: float | None, decimals: int) -> Cell:
    """A cell of one number with fixed decimals, so that a column lines up; without a value it says so."""
    if value is None:
        return Cell(NOT_MEASURED, title="not measured")
    return Cell(signed(value, decimals), sort=value)


def count_cell(value: float | None) -> Cell:
    """A cell of a count per request: whole as a rule, one decimal where requests differ."""
    if value is None:
        return Cell(NOT_MEASURED, title="not measured")
    return Cell(count(value), sort=value)


def bar_cell(values: Sequence[tuple[float | None, str]], largest: float) -> Cell:
    """A cell of bars, one for each (value, strategy), as wide as the value's share of `largest`."""
    bars = [
        Bar(round(100 * max(0.0, value or 0.0) / largest, 2), strategy)
        for value, strategy in values
        if largest > 0
    ]
    return Cell("", bars=tuple(bars))


def columns(*titles: str) -> tuple[Column, ...]:
    """Columns of numbers; a title that starts with `:` is a column of short words, with `~` of long ones."""
    return tuple(
        Column(title.lstrip(":~"), title[:1] not in (":", "~"), title.startswith("~")) for title in titles
    )


def signed(value: float, decimals: int) -> str:
    """Fixed decimals, a typographic minus, thin spaces between thousands; a rounded zero has no sign."""
    text = f"{abs(value):,.{decimals}f}".replace(",", "\u2009")
    return MINUS + text if value < 0 and float(f"{value:.{decimals}f}") != 0 else text


def count(value: float) -> str:
    """A count: whole as a rule, one decimal where it is a mean of different counts."""
    return signed(value, 0 if float(value).is_integer() else 1)


def reduction_cell(found: Reduction | None) -> Cell:
    """A reduction in percent with its 95 % interval behind it."""
    if found is None:
        return Cell(NOT_MEASURED)
    return Cell(f"{signed(found.percent, 1)} {interval(found)}", sort=found.percent)


def interval(found: Reduction, decimals: int = 1) -> str:
    """The 95 % interval of a reduction, or that there is none."""
    if found.low is None or found.high is None:
        return "no interval"
    return f"[{signed(found.low, decimals)}, {signed(found.high, decimals)}]"


def change_words(found: Reduction) -> str:
    """A reduction in words, losses as plainly as wins: `61.2 % less time`, `105.3 % slower`."""
    if found.low is not None and found.high is not None and found.low <= 0 <= found.high:
        return "no clear difference"
    size = signed(abs(found.percent), 1)
    return f"{size} % slower" if found.percent < 0 else f"{size} % less time"


def mebibytes(size_bytes: float | None) -> float | None:
    """Bytes as MiB."""
    return None if size_bytes is None else size_bytes / 2**20
