"""The parts of a model that could be captured one by one, and the inputs that they get in an eager call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from inference.doctor_trial import Inputs


def parts_of(model: nn.Module) -> dict[str, nn.Module]:
    """Layers, and what stands beside them, by name: containers of layers are opened, layers are not."""
    found: dict[str, nn.Module] = {}
    for name, child in model.named_children():
        inner = _opened(child)
        if inner is None:
            found[name] = child
        else:
            found.update({f"{name}.{below}": part for below, part in inner.items()})
    return found


def inner_parts(name: str, part: nn.Module) -> dict[str, nn.Module]:
    """What a part is made of, by its full name."""
    return {f"{name}.{below}": child for below, child in part.named_children()}


@torch.no_grad()
def record_inputs(
    parts: Mapping[str, nn.Module], calls: Sequence[Callable[[], object]]
) -> dict[str, list[Inputs]]:
    """The inputs of each part's first call in each of the given calls, copied; parts not called have none."""
    recorded: dict[str, list[Inputs]] = {name: [] for name in parts}
    for call in calls:
        seen: set[str] = set()
        handles = [
            part.register_forward_pre_hook(_recorder(name, recorded, seen), with_kwargs=True)
            for name, part in parts.items()
        ]
        try:
            call()
        finally:
            for handle in handles:
                handle.remove()
    return recorded


def _recorder(
    name: str, recorded: dict[str, list[Inputs]], seen: set[str]
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def record(_part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name not in seen:
            seen.add(name)
            recorded[name].append(Inputs(args, kwargs).copied())

    return record


def _opened(module: nn.Module) -> dict[str, nn.Module] | None:
    """The parts of a container of layers; None for a module that is a part itself."""
    if isinstance(module, nn.ModuleList):
        return dict(module.named_children())
    if any(isinstance(child, nn.ModuleList) for child in module.children()):
        return parts_of(module)
    if any(_opened(child) is not None for child in module.children()) and _is_model(module):
        return parts_of(module)
    return None


def _is_model(module: nn.Module) -> bool:
    """A model of transformers within another: its layers may lie deeper, as BERT's do in an encoder."""
    return hasattr(module, "config") and hasattr(module, "get_input_embeddings")
