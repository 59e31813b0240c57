"""The NVTX ranges of a trace: what each holds, and one range in detail. `ranking` says which to look at.

A launch lies in a range by NVIDIA's rule (see `analysis.attribute`), and a range's numbers are those of
`analysis.tables`, for any range instead of launchgap's requests.
"""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.attribute import (
    Attributed,
    RangeSelector,
    attribute,
    calls_in_ranges,
    hidden_requests,
)
from analysis.commands.ranking import ranked
from analysis.commands.select import domain_shown
from analysis.commands.words import shown
from analysis.overview import Work, process_id, work_of
from analysis.tables import CountedTrace, TraceLabel, kernels_table, launches_table, requests_table
from analysis.trace import Trace
from analysis.tracers import tracer_of
from contract import LaunchgapError, TraceMode

PROPOSED = 5
"""How many ranges are proposed at most."""

_NS_PER_US = 1_000.0
_CLOSE_NAMES = 3
_COMPARED_NAMES = 5_000
_COMPARED_CHARACTERS = 200
_DROPPED = ["strategy", "trace_mode"]


@dataclass(frozen=True)
class RangeView:
    """One range in detail: `instances` one by one, their `summary`, and launches and kernels per instance.

    `hidden` counts instances that replayed a graph which the trace shows as a whole: their kernels are not
    known.
    """

    summary: pd.DataFrame
    instances: pd.DataFrame
    launches: pd.DataFrame
    launches_by_instance: pd.DataFrame
    kernels: pd.DataFrame
    hidden: int


def ranges_table(work: Work) -> pd.DataFrame:
    """Ranges by domain and name; rank 1 is the most like a request, NA is not proposed (see `ranking`).

    `instances` are complete; `unfinished` are those that never ended or ended on another thread, to which no
    launch can be given. `launches` and `operations` (GPU work) are counted once, however deep a range nests
    in itself; `launch_share_percent` is of all launches of the trace.
    """
    ranges = work.trace.ranges.reset_index(drop=True)
    complete = ranges["same_thread"] & ranges["end_ns"].notna()
    code, groups = pd.factorize(pd.MultiIndex.from_frame(ranges[["domain", "name"]]), sort=True)
    table = pd.DataFrame(list(groups), columns=["domain", "name"], dtype="object")
    table["instances"] = np.bincount(code[complete.to_numpy()], minlength=len(groups))
    table["unfinished"] = np.bincount(code[~complete.to_numpy()], minlength=len(groups))
    table = table.join(_durations(ranges[complete], code[complete.to_numpy()], len(groups)))
    table = table.join(_launched(work, ranges[complete], code, len(groups)))
    return ranked(table, ranges[complete], code[complete.to_numpy()])


def proposals(table: pd.DataFrame) -> pd.DataFrame:
    """The first rows of `ranges_table` that are proposed, with what an instance holds on average."""
    found = table[table["rank"].notna()].head(PROPOSED)
    each = found[["launches", "operations"]].div(found["instances"], axis=0).add_suffix("_per_instance")
    return pd.concat(
        [found[["rank", "domain", "name", "instances", "p50_us", "launch_share_percent"]], each], axis=1
    )


def command_for(trace_path: str, name: str, domain: str) -> str:
    """The command line that shows one range; names that a shell cannot be given in one line are left out."""
    if not (name + domain + trace_path).isprintable() or len(name + domain) > _COMPARED_CHARACTERS:
        return ""
    words = ["python", "-m", "analysis", trace_path, "--range", name, "--domain", domain]
    return " ".join(shlex.quote(word) for word in words)


def find_range(whole: Trace, selected: Trace, name: str, domain: str | None) -> RangeSelector:
    """The one range that a name means.

    Raises:
        LaunchgapError: no range has it, several domains do, or no instance can be used; close names are told.
    """
    named = selected.ranges[selected.ranges["name"] == name]
    if named.empty:
        raise LaunchgapError(_why_no_such_range(whole, selected, name))
    domains = sorted(named["domain"].unique())
    if domain is None and len(domains) > 1:
        listed = " or ".join(f"--domain {shlex.quote(shown(found))}" for found in domains)
        raise LaunchgapError(f"--range {shown(name)!r}: {len(domains)} domains have it; add {listed}")
    if not (named["same_thread"] & named["end_ns"].notna()).any():
        raise LaunchgapError(
            f"--range {shown(name)!r}: none of its {len(named)} instances ended on the thread it began on, "
            "so no launch can be given to it; name a range around the launches, or capture for longer"
        )
    return RangeSelector(name, str(domains[0]))


def range_view(trace: Trace, selector: RangeSelector) -> RangeView:
    """One range in detail, by the definitions of a request."""
    found = attribute(trace, selector)
    # Any mode will do as a label; whether kernels can be shown is decided by what the graphs launched show.
    counted = [CountedTrace(TraceLabel("", TraceMode.NODE), found, trace.has_gpu_work)]
    instances = requests_table(counted).drop(columns=_DROPPED).rename(columns={"request": "instance"})
    instances.insert(1, "start_s", found.requests["start_ns"] / 1e9)
    instances.insert(1, "thread", found.requests["thread"] & 0xFFFFFF)
    instances.insert(1, "process", [process_id(int(key)) for key in found.requests["thread"]])
    return RangeView(
        summary=_summary(instances),
        instances=instances,
        launches=_per_instance(launches_table(counted)),
        launches_by_instance=_launches_by_instance(found),
        kernels=_per_instance(kernels_table(counted)),
        hidden=len(hidden_requests(found)),
    )


def require_gpu_work(trace: Trace, view: RangeView, selector: RangeSelector) -> None:
    """Refuse a range in which nothing was launched.

    Raises:
        LaunchgapError: says so, and which ranges hold GPU work.
    """
    n = len(view.instances)
    if len(view.launches) or (trace.has_gpu_work and view.instances["gpu_busy_us"].fillna(0).sum() > 0):
        return
    better = proposals(ranges_table(work_of(trace)))["name"].tolist()
    names = ", ".join(repr(shown(str(name))) for name in better)
    where = f"these do: {names}" if names else "no range here does; look at the whole trace, without --range"
    raise LaunchgapError(
        f"--range {shown(selector.name)!r}: none of its {n} instances launched GPU work on its own thread; "
        f"{where}, or see its durations with --force"
    )


def _durations(ranges: pd.DataFrame, code: np.ndarray, groups: int) -> pd.DataFrame:
    duration_us = (ranges["end_ns"].astype("int64") - ranges["start_ns"]) / _NS_PER_US
    table = duration_us.groupby(code).agg(["sum", "median", "min", "max"]).reindex(range(groups))
    table.columns = pd.Index(["total_us", "p50_us", "min_us", "max_us"])
    return table.assign(total_us=table["total_us"].fillna(0.0))


def _launched(work: Work, ranges: pd.DataFrame, code: np.ndarray, groups: int) -> pd.DataFrame:
    """Launches and GPU work in each group of ranges: each call once for a group, whatever nests in it."""
    ends = ranges.assign(end_ns=ranges["end_ns"].astype("int64"))
    pairs = calls_in_ranges(work.launches, ends)
    busy = np.bincount(code[pairs["range"].unique()], minlength=groups)
    once = pairs.assign(group=code[pairs["range"]]).drop_duplicates(["call", "group"])
    launches = np.bincount(once["group"], minlength=groups)
    operations = np.bincount(once["group"], weights=work.per_call()[once["call"]], minlength=groups)
    return pd.DataFrame(
        {
            "launching_instances": busy,
            "launches": launches,
            "launch_share_percent": launches * 100.0 / max(len(work.launches), 1),
            "operations": operations.astype(np.int64),
        }
    )


def _summary(instances: pd.DataFrame) -> pd.DataFrame:
    """Median, least, most and total of each number of an instance, over the instances that have it."""
    numbers = instances.drop(columns=["instance", "process", "thread", "start_s"]).astype("Float64")
    table = numbers.agg(["count", "median", "min", "max", "sum"]).T.rename_axis("quantity").reset_index()
    table = table.rename(columns={"count": "instances", "sum": "total"})
    table["total"] = table["total"].where(table["instances"] > 0)
    return table.astype({"instances": "int64"})


def _per_instance(table: pd.DataFrame) -> pd.DataFrame:
    """A table of `analysis.tables` without what tells strategies apart, its columns named after instances."""
    table = table.drop(columns=[name for name in _DROPPED if name in table])
    return table.rename(columns={name: str(name).replace("_per_request", "_per_instance") for name in table})


def _launches_by_instance(found: Attributed) -> pd.DataFrame:
    rows = found.launches.assign(api_us=(found.launches["end_ns"] - found.launches["start_ns"]) / _NS_PER_US)
    grouped = rows.groupby(["request", "api", "kind"])["api_us"]
    table = grouped.agg(calls="size", launch_api_us="sum").reset_index()
    return table.rename(columns={"request": "instance"})


def _why_no_such_range(whole: Trace, selected: Trace, name: str) -> str:
    lead = f"--range {shown(name)!r}"
    elsewhere = whole.ranges[whole.ranges["name"] == name]
    if len(elsewhere):
        domains = ", ".join(repr(domain_shown(domain)) for domain in sorted(elsewhere["domain"].unique())[:5])
        return (
            f"{lead}: {len(elsewhere)} in the trace (domain {domains}), none in the selected part; loosen "
            "--domain, --process or --between"
        )
    if whole.ranges.empty:
        tracer = tracer_of(whole)
        return (
            f"{lead}: the trace has no {tracer.ranges} at all; {tracer.add_ranges}, or look at the whole "
            "trace, without --range"
        )
    close = _close_names(name, selected.ranges if len(selected.ranges) else whole.ranges)
    return (
        f"{lead}: not in the trace; did you mean {' or '.join(close)}?"
        if close
        else (f"{lead}: not in the trace, nor anything like it; without --range all of them are listed")
    )


def _close_names(name: str, ranges: pd.DataFrame) -> list[str]:
    """Names that may have been meant, the closest first; upper and lower case do not matter."""
    names = ranges["name"].value_counts().index[:_COMPARED_NAMES]
    lowered: dict[str, str] = {}
    for known in sorted(map(str, names)):
        lowered.setdefault(known[:_COMPARED_CHARACTERS].casefold(), known)
    wanted = name[:_COMPARED_CHARACTERS].casefold()
    close = difflib.get_close_matches(wanted, lowered, n=_CLOSE_NAMES)
    inside = [key for key in lowered if wanted and wanted in key and key not in close]
    return [repr(shown(lowered[key])) for key in (*close, *inside)[:_CLOSE_NAMES]]
