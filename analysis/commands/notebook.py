"""What `analysis/explore.ipynb` needs besides tables and figures: settings, choices, errors of one line."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.attribute import RangeSelector, attribute
from analysis.chrome_trace import read_any_trace
from analysis.commands.export import readable
from analysis.commands.ranges import proposals, ranges_table
from analysis.commands.render import finding_line
from analysis.commands.requests import Requests, record_beside, request_range, trusted
from analysis.commands.select import domain_shown
from analysis.commands.words import markdown, shown
from analysis.finding import Finding
from analysis.overview import work_of
from analysis.trace import Trace
from analysis.waterfall import median_request
from contract import NVTX_DOMAIN, LaunchgapError, RangeName

_SHOWN_BY_IPYTHON = "_render_traceback_"
"""Method that IPython asks an exception for, instead of a stack trace."""

_IN_A_NOTEBOOK = {
    "--graph-range": "GRAPH_RANGE",
    "--range": "RANGE",
    "--domain": "DOMAIN",
    "--graph": "GRAPH",
}
"""Options that messages name, and what they are called in the notebook."""


_COMMAND_CHARACTERS = 400
"""Longest command line that is shown."""


def show_errors_in_one_line() -> None:
    """From now on a notebook shows a user's error as its message alone, and stops there as with any error."""
    setattr(LaunchgapError, _SHOWN_BY_IPYTHON, _lines)


def setting(name: str, default: str) -> str:
    """The environment variable `LAUNCHGAP_<name>`, which outranks what the notebook says."""
    return os.environ.get(f"LAUNCHGAP_{name}", default)


def open_trace(path: Path) -> tuple[Trace, tuple[Finding, ...]]:
    """A trace of any kind that `python -m analysis` reads, and warnings about its numbers.

    Raises:
        LaunchgapError: it cannot be read, shows no GPU work, or something in it is fatal to all numbers.
    """
    with readable(path) as export:
        trace = read_any_trace(export)
    return trace, trusted(path, trace, "explore")


def chosen_range(trace: Trace, path: Path, name: str, domain: str) -> RangeSelector:
    """The range that is named; else launchgap's own requests; else the one that looks most like a request.

    An empty domain is none given: the domain without a name is written as the tables show it, `(default)`.

    Raises:
        LaunchgapError: there is no such range, several domains have it, or nothing looks like a request.
    """
    own = trace.ranges[trace.ranges["domain"] == NVTX_DOMAIN]["name"]
    if not name and RangeName.REQUEST.value not in set(own):
        best = proposals(ranges_table(work_of(trace))).head(1)
        for row in best.to_dict("records"):
            return RangeSelector(str(row["name"]), str(row["domain"]))
    return request_range(trace, path, name or None, domain or None)


def range_choices(trace: Trace, chosen: RangeSelector) -> dict[str, RangeSelector]:
    """The proposed ranges and the chosen one, by what a menu calls them."""
    table = proposals(ranges_table(work_of(trace)))
    pairs = zip(table["name"].map(str), table["domain"].map(str), strict=True)
    found = dict.fromkeys([chosen, *(RangeSelector(*pair) for pair in pairs)])
    return {f"{shown(one.name)}, domain {domain_shown(one.domain)}": one for one in found}


def requests_in(trace: Trace, path: Path, selector: RangeSelector) -> Requests:
    """The requests that a range names; warnings about the trace are those of `open_trace`.

    Raises:
        LaunchgapError: nothing ran in them.
    """
    attributed = attribute(trace, selector)
    if attributed.operations.empty:
        raise LaunchgapError(
            f"{path}: none of the {len(attributed.requests)} ranges {shown(selector.name)!r} launched GPU "
            "work on its own thread; give RANGE another of the ranges listed above"
        )
    return Requests(path, trace, selector, attributed, (), record_beside(path))


def request_choices(requests: Requests) -> dict[str, int]:
    """The numbers of the requests, by what a menu calls them."""
    return {f"{number} of 0 to {requests.count - 1}": number for number in range(requests.count)}


def request_number(given: str, requests: Requests) -> int:
    """The number of the request to look at; the one with the median range if none is given.

    Raises:
        LaunchgapError: it is no number, or there is no request of that number.
    """
    ranges = requests.attributed.requests
    if not given:
        return median_request((ranges["end_ns"] - ranges["start_ns"]).tolist())
    if not (given.isascii() and given.isdecimal() and int(given) < requests.count):
        raise LaunchgapError(
            f"REQUEST {given!r}: there are {requests.count} requests; give a number from 0 to "
            f"{requests.count - 1}, or '' for the one with the median range"
        )
    return int(given)


@dataclass(frozen=True)
class Fixed:
    """A choice that was made beforehand; shown as what it is about and what was chosen."""

    label: str
    name: str
    value: object

    def __repr__(self) -> str:
        return f"{self.label}: {self.name}"


def menu(label: str, options: Mapping[str, object], chosen: object) -> Any:  # noqa: ANN401  # widgets are untyped
    """Something to display that has a `value`: a menu where ipywidgets is installed, else a `Fixed`.

    The value is one of the options' values, `chosen` at first.
    """
    try:
        widgets = importlib.import_module("ipywidgets")
    except ImportError:
        return Fixed(label, next(name for name, value in options.items() if value == chosen), chosen)
    return widgets.Dropdown(description=label, options=list(options.items()), value=chosen)


def bullets(findings: Sequence[Finding]) -> str:
    """Findings as Markdown, a line each."""
    return "\n".join(f"- {markdown(finding_line(one))}" for one in findings) or "No warnings."


def next_commands(path: Path, selector: RangeSelector, graph: Path | None) -> tuple[str, ...]:
    """Command lines that go deeper into one range, of a graph as well if its trace is given."""
    of = ["--range", selector.name, "--domain", selector.domain]
    asked: list[list[object]] = [
        [path, *of],
        ["ledger", path, *of],
        ["blockers", path, *of],
        ["perfetto", path, "-o", "timeline.json.gz"],
    ]
    if graph is not None:
        asked.append(["match", path, graph, *of])
    lines = [shlex.join(["python", "-m", "analysis", *map(str, words)]) for words in asked]
    # What cannot stand on one line of Markdown, or is a book, is no command to copy.
    return tuple(line for line in lines if _can_be_shown(line))


def _can_be_shown(line: str) -> bool:
    return line.isprintable() and "`" not in line and len(line) <= _COMMAND_CHARACTERS


def _lines(error: LaunchgapError) -> list[str]:
    text = str(error)
    for option, name in _IN_A_NOTEBOOK.items():
        text = text.replace(option, name)
    return [f"error: {text}"]
