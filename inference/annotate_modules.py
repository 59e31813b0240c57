"""NVTX ranges around the forward pass of every module of a model, on request: they say which layer ran what.

Ranges are host events. Of a graph they show in the capture, while its nodes are made, and never in a replay.
They make the host slower, module by module, so an annotated run is for layers and not for times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import nvtx
from torch import nn

from contract import MODULE_DOMAIN, ROOT_MODULE, LaunchgapError, Strategy

COMPILED = frozenset({Strategy.GRAPH_FUSED, Strategy.COMPILED_DEFAULT, Strategy.COMPILED})
"""Strategies whose kernels a compiler makes: it fuses across modules, and no module is called any more."""


def refuse_compiled(strategy: Strategy) -> None:
    """Refuse strategies in which modules do not survive.

    Raises:
        LaunchgapError: the strategy compiles the model.
    """
    if strategy in COMPILED:
        raise LaunchgapError(
            f"--annotate modules: {strategy} is compiled, which fuses kernels across modules and leaves none "
            "to annotate; annotate another strategy"
        )


@contextmanager
def module_ranges(model: nn.Module) -> Iterator[None]:
    """Give every module of the model a range, named by its path in the model, until the block ends.

    Ranges are in a domain of their own, so they disturb no other. A module that raises closes its range.
    Copies that are made of the model meanwhile keep the hooks, which do nothing once the block has ended.
    """
    ranges = _Ranges()
    handles = []
    try:
        for path, module in model.named_modules():
            opening, closing = _hooks(ranges, path or ROOT_MODULE)
            handles.append(module.register_forward_pre_hook(opening, prepend=True))
            # always_call: also where forward raises.
            handles.append(module.register_forward_hook(closing, always_call=True))
        yield
    finally:
        ranges.on = False
        for handle in handles:
            handle.remove()


class _Ranges:
    """The ranges that are open on each thread, innermost last."""

    def __init__(self) -> None:
        self.on = True
        self._thread = threading.local()

    def open(self, path: str) -> None:
        if self.on:
            nvtx.push_range(path, domain=MODULE_DOMAIN)
            self._opened().append(path)

    def close(self, path: str) -> None:
        """Close the innermost range of that path, and those inside it that an error left open."""
        opened = self._opened()
        while path in opened:
            nvtx.pop_range(domain=MODULE_DOMAIN)
            if opened.pop() == path:
                return

    def _opened(self) -> list[str]:
        opened: list[str] = self._thread.__dict__.setdefault("opened", [])
        return opened


def _hooks(ranges: _Ranges, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Functions, since a deep copy of a model copies all else that its hooks hold."""

    def opening(_module: nn.Module, _arguments: object) -> None:
        ranges.open(path)

    def closing(_module: nn.Module, _arguments: object, _output: object) -> None:
        ranges.close(path)

    return opening, closing
