"""Which module of the model each launch and GPU operation of a request belongs to, and sums by layer.

Modules have NVTX ranges of their own (`--annotate modules`). An operation that was launched by itself
belongs to the innermost of them that was open on the launching thread at its launch call. A node of a graph
belongs to the one that was open on the capturing thread when the node was made: replays run no module. What
no open module accounts for is `OUTSIDE`, so the sums over all layers are those over all requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.attribute import Attributed, hidden_requests
from analysis.containment import Spans, contained
from analysis.launches import LaunchKind
from analysis.layers_nodes import captured_nodes
from analysis.schema import NO_ID
from analysis.trace import Trace
from contract import MODULE_DOMAIN, ROOT_MODULE, LaunchgapError

OUTSIDE = "(outside modules)"
"""Work that was launched, or a node that was made, while no module was running."""

SUMS = ("kernels", "operations", "launches", "gpu_ns")
LAYER_COLUMNS = ("layer", "kernels", "operations", "launches", "gpu_us")

_ANY_NUMBER = "*"
_NUMBER = re.compile(r"\d+")
_NS_PER_US = 1_000.0


@dataclass(frozen=True)
class ModuleWork:
    """The work of a trace's requests by module.

    Attributes:
        operations: kernels, copies and fills in requests; request, kind, graph_node, module, duration_ns.
        launches: launch calls in requests; request, kind, module. A replay is one launch.
        modules: paths of all modules that ran, in order of their first range.
        requests: how many there are.
        unseen: operations whose node was made before the recording began, or by an unknown thread.
    """

    operations: pd.DataFrame
    launches: pd.DataFrame
    modules: tuple[str, ...]
    requests: int
    unseen: int


def module_work(trace: Trace, attributed: Attributed) -> ModuleWork:
    """Give every launch and operation of the requests to a module.

    Raises:
        LaunchgapError: the trace has no ranges of modules, shows replays whole, or shows nodes of graphs but
            not when they were made.
    """
    ranges = module_ranges(trace)
    if hidden_requests(attributed).size:
        raise LaunchgapError(
            f"{trace.path}: shows replays whole, without their nodes; capture it with --cuda-graph-trace=node"
        )
    operations = _operations(attributed)
    launches = attributed.launches[["request", "call", "kind"]].reset_index(drop=True)
    calls = np.union1d(operations["call"].to_numpy(np.int64), launches["call"].to_numpy(np.int64))
    called = trace.api_calls.loc[calls]
    by_call = pd.Series(_innermost(Spans.of(called), ranges), called.index)
    module = operations["call"].map(by_call).to_numpy(dtype=np.object_)
    is_node = operations["graph_node"].to_numpy(dtype=np.int64) != NO_ID
    module[is_node], seen = _modules_of_nodes(trace, operations[is_node], ranges)
    return ModuleWork(
        operations=operations.assign(module=module)[
            ["request", "kind", "graph_node", "module", "duration_ns"]
        ],
        launches=launches.assign(module=launches["call"].map(by_call))[["request", "kind", "module"]],
        modules=tuple(map(str, ranges["name"].drop_duplicates())),
        requests=len(attributed.requests),
        unseen=int((~seen).sum()),
    )


def module_ranges(trace: Trace) -> pd.DataFrame:
    """The ranges of modules that ended, in order of time; start_ns, end_ns, thread, name.

    Raises:
        LaunchgapError: there are none.
    """
    ours = trace.ranges[trace.ranges["domain"] == MODULE_DOMAIN]
    whole = ours[ours["same_thread"] & ours["end_ns"].notna()]
    if whole.empty:
        raise LaunchgapError(
            f"{trace.path}: has no ranges of modules, so it does not tell layers apart; capture it with "
            "--annotate modules (scripts.run_baseline, scripts.run_graph) under nsys"
        )
    whole = whole.assign(end_ns=whole["end_ns"].astype("int64"))
    return whole[["start_ns", "end_ns", "thread", "name"]].reset_index(drop=True)


def layer_of(module: str, depth: int | None = None, merge: bool = False) -> str:
    """The layer that a module belongs to: the start of its path.

    Args:
        module: path in the model, as `transformer.h.3.attn.c_attn`.
        depth: parts of the path to keep; None: up to the first number, which counts blocks
            (`transformer.h.3`), or all of a path without one.
        merge: whether blocks are one layer whatever their number (`transformer.h.*`).
    """
    if module in (OUTSIDE, ROOT_MODULE):
        return module
    parts = module.split(".")
    if depth is None:
        depth = next((n for n, part in enumerate(parts, 1) if _NUMBER.fullmatch(part)), len(parts))
    kept = parts[:depth]
    if merge:
        kept = [_ANY_NUMBER if _NUMBER.fullmatch(part) else part for part in kept]
    return ".".join(kept)


def layer_sums(work: ModuleWork, depth: int | None = None, merge: bool = False) -> pd.DataFrame:
    """Sums over all requests by layer: layer and `SUMS`, integers, exact.

    Rows are in the order in which layers first ran, `OUTSIDE` last; those without any work are left out. The
    times of operations that run at once all count.
    """
    layers = {path: layer_of(path, depth, merge) for path in (*work.modules, OUTSIDE)}
    operations = work.operations.assign(layer=work.operations["module"].map(layers))
    by_layer = operations.groupby("layer")
    launches = work.launches["module"].map(layers).value_counts()
    is_kernel = operations["kind"] == LaunchKind.KERNEL
    order = list(dict.fromkeys(layers.values()))
    sums = {
        "kernels": operations.loc[is_kernel, "layer"].value_counts(),
        "operations": by_layer.size(),
        "launches": launches,
        "gpu_ns": by_layer["duration_ns"].sum(),
    }
    table = pd.DataFrame(
        {name: values.reindex(order, fill_value=0).astype("int64") for name, values in sums.items()}
    )
    table = table[(table[["operations", "launches"]] != 0).any(axis=1)]
    return table.rename_axis("layer").reset_index()


def layers_table(work: ModuleWork, depth: int | None = None, merge: bool = False) -> pd.DataFrame:
    """The mean request by layer, as `layer_sums`; columns `LAYER_COLUMNS`."""
    sums = layer_sums(work, depth, merge)
    requests = max(work.requests, 1)
    counts = {name: sums[name] / requests for name in SUMS[:-1]}
    return pd.DataFrame({"layer": sums["layer"], **counts, "gpu_us": sums["gpu_ns"] / requests / _NS_PER_US})


def compare_layers(
    eager: ModuleWork, graph: ModuleWork, depth: int | None = None, merge: bool = False
) -> pd.DataFrame:
    """Eager's mean request beside the graph's by layer; `layer`, then each column of `LAYER_COLUMNS` thrice.

    Columns are named eager_kernels, graph_kernels, kernels_difference and so on; a difference is the graph's
    less eager's. Layers are in eager's order, those of the graph alone before `OUTSIDE`.
    """
    before, after = (layers_table(side, depth, merge).set_index("layer") for side in (eager, graph))
    order = [*dict.fromkeys([*before.index, *after.index])]
    order.sort(key=lambda layer: layer == OUTSIDE)
    before, after = (side.reindex(order, fill_value=0.0) for side in (before, after))
    table = pd.DataFrame({"layer": order})
    for name in LAYER_COLUMNS[1:]:
        ours, theirs = (side[name].to_numpy(dtype=np.float64) for side in (before, after))
        table = table.assign(
            **{f"eager_{name}": ours, f"graph_{name}": theirs, f"{name}_difference": theirs - ours}
        )
    return table


def _operations(attributed: Attributed) -> pd.DataFrame:
    """Single operations: request, call, process, graph_node, kind, duration_ns."""
    tables: Sequence[tuple[pd.DataFrame, LaunchKind]] = (
        (attributed.kernels, LaunchKind.KERNEL),
        (attributed.memcpys, LaunchKind.MEMCPY),
        (attributed.memsets, LaunchKind.MEMSET),
    )
    columns = ["request", "call", "process", "graph_node"]
    parts = [
        rows[columns].assign(kind=str(kind), duration_ns=rows["end_ns"] - rows["start_ns"])
        for rows, kind in tables
    ]
    return pd.concat(parts, ignore_index=True)


def _modules_of_nodes(
    trace: Trace, operations: pd.DataFrame, ranges: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """The module of each operation of a graph, and whether the making of its node was seen.

    Raises:
        LaunchgapError: there are such operations, and the trace shows no node being made.
    """
    if len(operations) and trace.graph_nodes.empty:
        raise LaunchgapError(
            f"{trace.path}: does not show when the graph's nodes were made (no CUDA_GRAPH_NODE_EVENTS); "
            "record the capture as well, with --cuda-graph-trace=node and nsys 2024.2 or newer"
        )
    if operations.empty:
        return np.empty(0, dtype=np.object_), np.empty(0, dtype=np.bool_)
    made = captured_nodes(trace.graph_nodes)
    place = pd.MultiIndex.from_frame(made[["process", "graph_node"]]).get_indexer(
        pd.MultiIndex.from_frame(operations[["process", "graph_node"]].astype("int64"))
    )
    times = made["captured_ns"].to_numpy(dtype=np.int64)
    modules = _innermost(Spans(made["thread"].to_numpy(dtype=np.int64), times, times), ranges)
    # What is not in the list has the place -1: the last one, which is added here.
    modules, seen = np.append(modules, OUTSIDE), np.append(made["seen"].to_numpy(dtype=np.bool_), False)
    return np.where(seen[place], modules[place], OUTSIDE), seen[place]


def _innermost(points: Spans, ranges: pd.DataFrame) -> np.ndarray:
    """Name of the innermost range of its thread that each call or moment lies in, else `OUTSIDE`."""
    found = np.full(points.start.size, OUTSIDE, dtype=np.object_)
    outer = Spans.of(ranges)
    inside, owner = contained(points, outer)
    # Innermost is what began last; of several at once what ended first, then what was told last.
    order = np.lexsort((owner, -outer.end[owner], outer.start[owner]))
    names = ranges["name"].to_numpy(dtype=np.object_)
    found[inside[order]] = names[owner[order]]
    return found
