"""Puts together what `python -m analysis layers` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.commands.progress import Steps
from analysis.commands.requests import Requests, about_side, check_same_case, read_requests
from analysis.commands.sections import Fact, Section, View
from analysis.commands.words import shown
from analysis.finding import Finding
from analysis.layers import (
    LAYER_COLUMNS,
    OUTSIDE,
    SUMS,
    ModuleWork,
    compare_layers,
    layer_sums,
    layers_table,
    module_work,
)
from analysis.layers_picture import LayersPicture, LayerStack
from analysis.schema import NO_ID
from analysis.tracers import tracer_of
from contract import LaunchgapError

_ALL = "(all)"
_NOTE = (
    "Means per request; the last row is the trace's own total. gpu_us adds up the times of kernels, copies "
    "and fills (operations). A replay is one launch, and of no module. A row whose name begins others holds "
    "what none of them does."
)


@dataclass(frozen=True)
class Request:
    """What is asked for; see the command's options."""

    range_name: str | None
    domain: str | None
    graph: Path | None
    graph_range: str | None
    depth: int | None
    merge: bool


def layers_view(path: Path, request: Request) -> tuple[View, LayersPicture]:
    """The view of a trace's layers, and what a figure of them shows.

    Raises:
        LaunchgapError: a file cannot be read or used, has no such requests or no ranges of modules, or is not
            what it is given for.
    """
    with Steps(3 if request.graph is None else 5) as steps:
        one = read_requests(path, request.range_name, request.domain, steps)
        # Before another trace is read, which may take a while.
        work = module_work(one.trace, one.attributed)
        other = _graph_side(one, request, steps)
        steps.begin("adding up")
        beside = None if other is None else module_work(other.trace, other.attributed)
        table = _table(work, beside, request)
    facts = _facts(one, work, request, "")
    findings = [*one.findings, *_findings(work)]
    if other is not None and beside is not None:
        facts |= {"graph": str(other.path)} | _facts(other, beside, request, "graph_")
        about = (*other.findings, *_findings(beside))
        findings = [*about_side(tuple(findings), "eager"), *about_side(about, "graph")]
        findings += check_same_case(one, other)
    totals = [_totals(side) for side in (one, other) if side is not None]
    section = Section(
        "layers", "Layers", _with_totals(table, totals), _NOTE, _long(beside is not None), whole=True
    )
    view = View("trace-layers", str(path), facts, tuple(findings), (section,))
    return view, _picture(one, table, beside is not None)


def _graph_side(one: Requests, request: Request, steps: Steps) -> Requests | None:
    if request.graph is None:
        return None
    if one.replays:
        raise LaunchgapError(
            f"{one.path}: it replays graphs, so it is not what --graph is to be compared with; give the "
            "trace of the eager run"
        )
    other = read_requests(request.graph, request.graph_range or request.range_name, request.domain, steps)
    if not other.replays:
        raise LaunchgapError(f"{other.path}: its requests replay no graph; give --graph the graph's trace")
    return other


def _table(work: ModuleWork, beside: ModuleWork | None, request: Request) -> pd.DataFrame:
    if beside is None:
        return layers_table(work, request.depth, request.merge)
    return compare_layers(work, beside, request.depth, request.merge)


def _long(is_compared: bool) -> tuple[str, ...]:
    """Kernels are most of the operations, and their differences can be read off: too wide for a terminal."""
    if not is_compared:
        return ()
    return ("eager_operations", "graph_operations", "operations_difference", "kernels_difference")


def _totals(requests: Requests) -> dict[str, float]:
    """What the mean request has by the trace's own tables, whatever the layers say."""
    sums, count = _all_sums(requests), max(requests.count, 1)
    means = {name: sums[name] / count for name in SUMS[:-1]}
    return means | {"gpu_us": sums["gpu_ns"] / count / 1_000.0}


def _all_sums(requests: Requests) -> dict[str, int]:
    found = requests.attributed
    tables = (found.kernels, found.memcpys, found.memsets)
    return {
        "kernels": len(found.kernels),
        "operations": sum(map(len, tables)),
        "launches": len(found.launches),
        "gpu_ns": sum(int((table["end_ns"] - table["start_ns"]).sum()) for table in tables),
    }


def _with_totals(table: pd.DataFrame, totals: list[dict[str, float]]) -> pd.DataFrame:
    row: dict[str, object] = {"layer": _ALL}
    if len(totals) == 1:
        row |= totals[0]
    else:
        for name in LAYER_COLUMNS[1:]:
            before, after = (side[name] for side in totals)
            row |= {f"eager_{name}": before, f"graph_{name}": after, f"{name}_difference": after - before}
    return pd.concat([table, pd.DataFrame([row])], ignore_index=True)


def _facts(requests: Requests, work: ModuleWork, request: Request, lead: str) -> dict[str, Fact]:
    sums = layer_sums(work, request.depth, request.merge)
    exact = sum(int(sums[name].sum()) == total for name, total in _all_sums(requests).items())
    about: dict[str, Fact] = {
        "range": requests.selector.name,
        "requests": requests.count,
        "adds_up": f"{exact} of {len(SUMS)} sums over layers are all requests' own, exactly",
    }
    told = {f"{lead}{name}": fact for name, fact in about.items()}
    return told if lead else {"tracer": tracer_of(requests.trace).name} | told


def _findings(work: ModuleWork) -> Iterator[Finding]:
    """What speaks against the layers of a trace."""
    operations = work.operations
    if work.unseen:
        yield Finding(
            "warning",
            f"of {work.unseen} of {len(operations)} operations the trace does not tell when the graph's node "
            "was made",
            work.unseen,
            f"they are under {OUTSIDE}",
            "start recording before the capture",
        )
    nodes = operations[operations["graph_node"] != NO_ID]
    if len(nodes) and not work.unseen and (nodes["module"] == OUTSIDE).all():
        yield Finding(
            "warning",
            "no module was running when the graph's nodes were made",
            len(nodes),
            f"all of the graph is under {OUTSIDE}",
            "open the ranges of modules before the capture, on the thread that captures",
        )


def _picture(one: Requests, table: pd.DataFrame, is_compared: bool) -> LayersPicture:
    sides = ("eager", "graph") if is_compared else ("",)
    title = one.path.name if one.record is None else str(one.record["case"]["name"])
    stacks = []
    for side in sides:
        lead = f"{side}_" if side else ""
        gpu_us, launches = (tuple(table[f"{lead}{name}"].tolist()) for name in ("gpu_us", "launches"))
        stacks.append(LayerStack(side or ("graph" if one.replays else "eager"), gpu_us, launches))
    layers = tuple(shown(str(name)) for name in table["layer"])
    return LayersPicture(shown(f"Time and launches by layer: {title}", 200), layers, tuple(stacks))
