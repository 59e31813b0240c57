"""One matrix product where a model takes several of the same input: query, key and value, or gate and up.

A small product costs a GPU about as much time as one of several times its size. This rewrites what Dynamo has
traced, before it is compiled. That the input is the same is seen in the graph, and that the weights are one
matrix in their addresses (`inference.side_by_side` puts them so), hence nothing needs to be assumed of what
the layers are, and a layer's own forward, hooks and name are left alone.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.nn.functional import linear

from inference.side_by_side import follow

Compiler = Callable[[fx.GraphModule, list[Any]], Callable[..., object]]
"""What `torch.compile` takes as its backend."""

_LEAST_ROWS = 2
"""Of an input whose products are merged, without a bias.

Of a single row Inductor makes sums instead of products, and takes into them what comes after: the activation
between gate and up, for one, which merged products would leave to another kernel.
"""


@dataclass(frozen=True)
class _Product:
    """A product in a graph: of what, and the tensors that its weight, and its bias if any, are at present."""

    node: fx.Node
    given: fx.Node
    tensors: tuple[torch.Tensor, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """The same for products that can be one if their weights are."""
        return self.given, *((t.dtype, t.untyped_storage().data_ptr()) for t in self.tensors)


@dataclass(eq=False)
class MergingCompiler:
    """A compiler that merges products before it hands the graph to another one.

    Attributes:
        compiler: the other one.
        merged: how many products went into each one that they became.
    """

    compiler: Compiler
    merged: list[int] = field(default_factory=list)

    def __call__(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., object]:
        """Compile, as `torch.compile` asks of its backend."""
        rewritten = fx.GraphModule(module, copy.deepcopy(module.graph))  # Dynamo goes on reading its own
        groups = list(_groups(rewritten.graph, inputs))
        if not groups:
            return self.compiler(module, inputs)
        self.merged = [len(group) for group in groups]
        for index, group in enumerate(groups):
            _merge(rewritten, f"merged_{index}", group)
        rewritten.graph.lint()
        rewritten.recompile()
        return self.compiler(rewritten, inputs)


def _groups(graph: fx.Graph, inputs: Sequence[object]) -> Iterator[list[_Product]]:
    """Products to be merged, in the order of their weights in memory."""
    place = {node: index for index, node in enumerate(graph.nodes)}
    writes = [index for node, index in place.items() if _may_write(node)]
    kinds: dict[object, list[_Product]] = defaultdict(list)
    for product in _products(graph, inputs):
        kinds[product.kind].append(product)
    for products in kinds.values():
        for group in _runs(sorted(products, key=lambda product: product.tensors[0].data_ptr())):
            first, *_, last = sorted(place[product.node] for product in group)
            if not any(first < index < last for index in writes):
                yield group


def _products(graph: fx.Graph, inputs: Sequence[object]) -> Iterator[_Product]:
    """Products by weights that are inputs of the graph as they are."""
    at_hand: dict[Any, Any] = dict(zip(graph.find_nodes(op="placeholder"), inputs, strict=True))
    for node in graph.find_nodes(op="call_function", target=linear):
        given, *others = node.args
        tensors: tuple[Any, ...] = tuple(at_hand.get(one) for one in others if one is not None)
        are_plain = all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in tensors)
        if node.kwargs or not are_plain or tensors[0].dim() < 2 or not isinstance(given, fx.Node):
            continue
        if len(tensors) > 1 or given.meta["example_value"].shape[:-1].numel() >= _LEAST_ROWS:
            yield _Product(node, given, tensors)


def _runs(products: Iterable[_Product]) -> Iterator[list[_Product]]:
    """Two products and more of which each one's weight, and bias, follows the one's before."""
    run: list[_Product] = []
    for product in products:
        if run and not all(map(follow, zip(run[-1].tensors, product.tensors, strict=True))):
            if len(run) > 1:
                yield run
            run = []
        run.append(product)
    if len(run) > 1:
        yield run


def _may_write(node: fx.Node) -> bool:
    """Whether a node may write into a tensor that was there before."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "_")
    return (
        node.op == "call_module"
        or name.endswith("_")
        or (getattr(target, "__module__", None) == "_operator" and name.startswith(("i", "set")))
        or "out" in node.kwargs
        or bool(node.kwargs.get("inplace"))
        or (isinstance(target, OpOverload) and target._schema.is_mutable)
    )


def _merge(module: fx.GraphModule, name: str, group: Sequence[_Product]) -> None:
    """Take one product in the place of the first of a group, and cut its result into theirs."""
    graph, nodes = module.graph, {product.node for product in group}
    with graph.inserting_before(next(node for node in graph.nodes if node in nodes)):
        matrices = []
        for index, tensors in enumerate(zip(*(product.tensors for product in group), strict=True)):
            module.register_buffer(f"{name}_{index}", _whole(tensors))
            matrices.append(graph.get_attr(f"{name}_{index}"))
        product = graph.call_function(linear, (group[0].given, *matrices))
        start = 0
        for one in group:
            rows = len(one.tensors[0])
            one.node.replace_all_uses_with(graph.call_method("narrow", (product, -1, start, rows)))
            start += rows
    for node in nodes:
        graph.erase_node(node)


def _whole(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor that tensors which follow each other are parts of: the same memory."""
    first = parts[0].detach()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
