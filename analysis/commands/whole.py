"""The tables of a whole trace: who ran what where, launches, kernels, ranges, and which range to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from analysis import overview
from analysis.commands import ranges
from analysis.commands.about import About
from analysis.commands.ranking import RANKING
from analysis.commands.sections import Section
from analysis.overview import Work
from analysis.summaries import api_summary, kernel_summary
from analysis.tracers import Tracer, tracer_of

FULL_NAME = ("full_name",)
SHARES = "Times are in microseconds; the share is of the time of all rows, not of any wall time."

_PROPOSALS = "proposals"
_RANGE_DETAILS = ("launching_instances", "operations", "min_us", "max_us")
_NO_DOMAINS = (
    "{} know no domains: launchgap's own names were given its domain, all others are in the default one."
)


def whole_sections(path: Path, work: Work, about: About) -> dict[str, Callable[[], Section]]:
    """Tables of the whole trace, each made only if it is shown."""
    tracer = tracer_of(work.trace)

    def known(table: pd.DataFrame) -> pd.DataFrame:
        return _known(table, tracer)

    @cache
    def table() -> pd.DataFrame:
        return ranges.ranges_table(work)

    def proposals() -> pd.DataFrame:
        proposed = ranges.proposals(table())
        commands = [ranges.command_for(str(path), *key) for key in _names(proposed)]
        return proposed.assign(command=pd.Series(commands, index=proposed.index, dtype="object"))

    title, note = ("NVTX domains", "") if tracer.domains else ("Domains", _NO_DOMAINS.format(tracer.ranges))
    return {
        "devices": lambda: Section("devices", "Devices", known(overview.devices(work, about.gpu))),
        "processes": lambda: Section(
            "processes", "Processes", known(overview.processes(work, about.process_names))
        ),
        "streams": lambda: Section("streams", "Streams", known(overview.streams(work))),
        "graphs": lambda: Section("graphs", "Graph replays on the GPU", overview.graphs(work)),
        "domains": lambda: Section("domains", title, overview.domains(work.trace), note),
        "launches": lambda: Section(
            "launches", "Launches", overview.launches(api_summary(work.trace)), SHARES
        ),
        "kernels": lambda: Section(
            "kernels", "Kernels", overview.kernels(kernel_summary(work.trace)), SHARES, FULL_NAME
        ),
        "ranges": lambda: Section("ranges", tracer.ranges, table(), long=_RANGE_DETAILS),
        _PROPOSALS: lambda: Section(
            _PROPOSALS, "Ranges worth looking at", proposals(), RANKING, ("command",)
        ),
    }


def tip(sections: Sequence[Section]) -> str:
    """What to look at next, where the proposals are shown."""
    for section in sections:
        if section.name == _PROPOSALS and section.table.empty:
            return "No range repeats and launches GPU work: the tables above are all there is to see."
        if section.name == _PROPOSALS:
            return f"Next: {section.table['command'].iloc[0]}" if section.table["command"].iloc[0] else ""
    return ""


def _recorded(tracer: Tracer) -> dict[str, bool]:
    """Columns that not every tracer can fill, and whether this one does."""
    return {"api_calls": tracer.all_calls, "graph_replays": tracer.replays}


def _known(table: pd.DataFrame, tracer: Tracer) -> pd.DataFrame:
    """A table in which what the tracer does not record is unknown, not zero."""
    unknown = [name for name, told in _recorded(tracer).items() if not told and name in table]
    return table.assign(**{name: pd.array([pd.NA] * len(table), dtype="Int64") for name in unknown})


def _names(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Name and domain of each range."""
    return list(zip(table["name"].astype(str), table["domain"].astype(str), strict=True))
