"""Small traces of a model with two blocks, eager and as a graph, with a range for every module."""

from __future__ import annotations

from pathlib import Path

from contract import MODULE_DOMAIN, ROOT_MODULE
from tests.analysis.trace_file import LATEST, THREAD, TraceFile

LAYER_NS = 100
"""Each module of a pass takes as long on the host."""

LEAVES = ("net.embed", "net.h.0.attn", "net.h.0.mlp", "net.h.1.attn", "net.h.1.mlp", "head")
KERNEL_NS = {name: 10 + place for place, name in enumerate(LEAVES)}
COPY_NS, OWN_NS = 3, 7

_NODES = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
    "nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER"
)
"""As in the schema files of nsys, under either name of the table."""


def modules_of_pass(file: TraceFile, start: int, thread: int = THREAD) -> dict[str, int]:
    """Ranges of one forward pass; returns when each leaf begins."""
    at = {name: start + 10 + LAYER_NS * place for place, name in enumerate(LEAVES)}
    end = start + 10 + LAYER_NS * len(LEAVES)

    def module(path: str, first: int, last: int) -> None:
        file.range(path, first, last, domain=2, thread=thread)

    module(ROOT_MODULE, start, end + 10)
    module("net", start + 5, at["head"] - 1)
    for block in ("net.h.0", "net.h.1"):
        module(block, at[f"{block}.attn"] - 1, at[f"{block}.mlp"] + 91)
    for name, first in at.items():
        module(name, first, first + 90)
    return at


def begin(path: Path, schema: str = LATEST) -> TraceFile:
    file = TraceFile(path, schema)
    file.domain("launchgap", 1)
    file.domain(MODULE_DOMAIN, 2)
    return file


def eager_trace(path: Path) -> Path:
    """Two requests: a copy before the model, a kernel per leaf, one of `net` itself, a fill in the head."""
    file = begin(path)
    modules_of_pass(file, -2_000)  # the warm-up, outside the requests
    file.launch("warm", (-1_985, -1_980), (-1_979, -1_970))
    for start in (1_000, 3_000):
        file.range("request", start, start + 900)
        copy = file.call("cudaMemcpyAsync_v3020", start + 1, start + 4)
        file.memcpy(start + 5, start + 5 + COPY_NS, copy)
        at = modules_of_pass(file, start + 50)
        for name, first in at.items():
            file.launch(name, (first + 10, first + 20), (first + 20, first + 20 + KERNEL_NS[name]))
        own = at["net.embed"] + 95  # between two leaves: no module but net and the model is open
        file.launch("add", (own, own + 2), (own + 100, own + 100 + OWN_NS))
        fill = file.call("cudaMemsetAsync_v3020", at["head"] + 30, at["head"] + 40)
        file.memset(at["head"] + 50, at["head"] + 52, fill)
    return file.save()


def graph_trace(
    path: Path, *, clones: int = 1, schema: str = LATEST, seen: bool = True, node_events: bool = True
) -> Path:
    """A capture of one node per leaf, `clones` steps of cloning, and two requests of one replay each.

    Without `seen` the capture was over before the recording began, which then shows the clones alone.
    """
    file = begin(path, schema)
    file.range("capture", -5_000, -1_000)
    at = modules_of_pass(file, -4_900)
    table = "CUDA_GRAPH_EVENTS" if schema in ("3.0.0", "3.7.2") else "CUDA_GRAPH_NODE_EVENTS"
    if node_events:
        file.execute(f"CREATE TABLE {table} ({_NODES})")

    def made(moment: int, node: int, original: int | None) -> None:
        source = "NULL" if original is None else original
        file.execute(f"INSERT INTO {table} VALUES ({moment}, {moment}, 77, {THREAD}, 1, {node}, {source})")

    for number, name in enumerate(LEAVES):
        first, *copies = ((graph << 32) + number for graph in range(1, clones + 2))
        if node_events and seen:
            made(at[name] + 15, first, None)
        for step, node in enumerate(copies if node_events else ()):
            moment = -4_000 + 500 * step + 10 * number
            # As nsys tells it: a new node, and what it is a copy of.
            made(moment, node, None)
            made(moment + 1, node, node - (1 << 32))
    for start in (1_000, 3_000):
        file.range("request", start, start + 900)
        copy = file.call("cudaMemcpyAsync_v3020", start + 1, start + 4)
        file.memcpy(start + 5, start + 5 + COPY_NS, copy)
        replay = file.call("cudaGraphLaunch_v10000", start + 50, start + 60)
        for number, name in enumerate(LEAVES):
            run = start + 70 + 50 * number
            node = ((clones + 1) << 32) + number
            file.kernel(name, run, run + KERNEL_NS[name] - 1, replay, graphNodeId=node)
    return file.save()
