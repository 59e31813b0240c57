"""When and on which thread the node behind a replayed one was captured.

A replay runs the nodes of an executable graph, which instantiation cloned from those that the capture made;
a graph that was cloned before has more steps. Each clone has a row that names its original. It has another
row without one as well, at the same instant, for it is a new node too (seen with nsys 2025.3).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.attribute import IntArray
from analysis.schema import NO_ID, PROCESS_MASK


def captured_nodes(graph_nodes: pd.DataFrame) -> pd.DataFrame:
    """Every node of a trace with where it comes from: process, graph_node, thread, captured_ns, seen.

    Args:
        graph_nodes: `Trace.graph_nodes`.

    Returns:
        One row per node. `thread` and `captured_ns` are those of the first of its originals; `seen` is False
        where that one was made before the recording began, and thread and time are then the node's own.
    """
    nodes = _once(graph_nodes)
    root = _roots(nodes)
    seen = root < len(nodes)
    source = np.where(seen, root, np.arange(len(nodes)))
    return nodes[["process", "graph_node"]].assign(
        thread=nodes["thread"].to_numpy()[source],
        captured_ns=nodes["start_ns"].to_numpy()[source],
        seen=seen,
    )


def _once(graph_nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per node: the first that names an original, or else the first."""
    thread = graph_nodes["thread"].to_numpy(dtype=np.int64)
    rows = graph_nodes.assign(process=thread & PROCESS_MASK, clone=graph_nodes["original"] != NO_ID)
    rows = rows.sort_values(["clone", "start_ns"], ascending=[False, True], kind="stable")
    return rows.drop_duplicates(["process", "graph_node"]).reset_index(drop=True)


def _roots(nodes: pd.DataFrame) -> IntArray:
    """Place of the node at the beginning of each node's chain; the number of nodes where it is not there."""
    count = len(nodes)
    known = pd.MultiIndex.from_frame(nodes[["process", "graph_node"]])
    parent = known.get_indexer(pd.MultiIndex.from_frame(nodes[["process", "original"]])).astype(np.int64)
    parent = np.where(nodes["clone"], np.where(parent < 0, count, parent), np.arange(count))
    step = np.append(parent, count)
    root = step
    # Each round doubles the steps of the chains that are behind us.
    for _ in range(count.bit_length()):
        root = root[root]
    # A chain that runs in a circle has no beginning.
    return np.where(step[root] == root, root, count)[:count].astype(np.int64)
