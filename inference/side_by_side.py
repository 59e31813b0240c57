"""Weights of layers that are given the same input, moved so that they are one matrix: query, key and value.

Their products can then be taken as one, which `inference.merging` does. Nothing is known of a model's parts:
it is run once, and layers called one after the other with the very same tensor belong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import torch
from torch import nn
from transformers import PreTrainedModel

_ALIGNMENT_BYTES = 256
"""What cuBLAS looks at of an address: a layer run by itself shall not get another kernel than it had."""


@dataclass(frozen=True)
class _Call:
    """A call of a plain linear layer. Holds the input, so that no other one takes its place in memory."""

    layer: nn.Linear
    given: torch.Tensor
    writes: int

    @property
    def value(self) -> tuple[int, int]:
        """The same for calls with the same tensor that nobody has written to in between."""
        return id(self.given), self.writes


def lay_side_by_side(model: PreTrainedModel) -> int:
    """Move weights, and biases, of layers that are given the same input into one block of memory each.

    Values, names and shapes stay. Addresses change, as by `model.to`: a graph that was captured before reads
    memory that is no longer the model's. Left where they are: what lies side by side already, and weights
    that are tied, shared, not plain, or would lose their alignment. Of further memory it takes what one such
    group has, while that is moved; a group that there is none for is left as it is.

    Returns:
        How many groups of layers lie side by side.
    """
    with torch.inference_mode(False), torch.no_grad():
        groups = [_parameters(group) for group in _groups(model)]
        moved = [_move(tensors) for group in groups for tensors in group]
    if any(moved) and model.device.type == "cuda":
        torch.cuda.empty_cache()  # whole groups do not fit where their parts were
    return sum(all(map(follow, group)) for group in groups)


def follow(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors are one cut along its first dimension: contiguous, of one storage, without gaps."""
    return (
        all(tensor.is_contiguous() for tensor in tensors)
        and len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1
        and all(first.data_ptr() + first.nbytes == second.data_ptr() for first, second in pairwise(tensors))
    )


def _groups(model: PreTrainedModel) -> Iterator[list[nn.Linear]]:
    calls = _calls(model)
    times = Counter(call.layer for call in calls)
    free = _free_parameters(model)
    movable = [
        call
        for call in calls
        if times[call.layer] == 1 and all(id(tensor) in free for tensor in _tensors(call.layer))
    ]
    for _, same_input in groupby(movable, key=lambda call: call.value):
        kinds: dict[object, list[nn.Linear]] = {}
        for call in same_input:
            kind = tuple(tensor.dtype for tensor in _tensors(call.layer))
            kinds.setdefault(kind, []).append(call.layer)
        for group in kinds.values():
            if len(group) > 1 and all(map(_stay_aligned, _parameters(group))):
                yield group


def _calls(model: PreTrainedModel) -> list[_Call]:
    """The calls of plain linear layers in one pass, in order."""
    calls: list[_Call] = []

    def note(layer: nn.Module, given: tuple[object, ...]) -> None:
        assert isinstance(layer, nn.Linear)
        if given and isinstance(given[0], torch.Tensor) and not given[0].is_inference():
            calls.append(_Call(layer, given[0], given[0]._version))

    layers = [module for module in model.modules() if type(module) is nn.Linear]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        model(input_ids=torch.zeros((1, 2), dtype=torch.int64, device=model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _free_parameters(model: PreTrainedModel) -> set[int]:
    """Plain parameters that have one name and their memory for themselves, by `id`."""
    names = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    tensors = [t for t in (*model.parameters(), *model.buffers()) if t.layout is torch.strided and t.numel()]
    overlapping: set[int] = set()
    end, last = 0, 0
    for tensor in sorted(tensors, key=torch.Tensor.data_ptr):
        if tensor.data_ptr() < end:
            overlapping |= {id(tensor), last}
        if tensor.data_ptr() + tensor.nbytes > end:
            end, last = tensor.data_ptr() + tensor.nbytes, id(tensor)
    return {id(t) for t in tensors if _is_plain(t) and names[id(t)] == 1} - overlapping


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) is nn.Parameter
        and type(tensor.data) is torch.Tensor
        and tensor.is_contiguous()
        and not tensor.is_inference()
    )


def _parameters(group: Sequence[nn.Linear]) -> list[list[torch.Tensor]]:
    """The weights of a group and, if it has any, its biases."""
    return [list(tensors) for tensors in zip(*map(_tensors, group), strict=True)]


def _tensors(layer: nn.Linear) -> list[torch.Tensor]:
    bias: torch.Tensor | None = layer.bias
    return [layer.weight] if bias is None else [layer.weight, bias]


def _stay_aligned(tensors: Sequence[torch.Tensor]) -> bool:
    return not any(end % _ALIGNMENT_BYTES for end in accumulate(tensor.nbytes for tensor in tensors[:-1]))


def _move(tensors: Sequence[torch.Tensor]) -> bool:
    """Put tensors one behind the other, unless they are; whether they were moved."""
    if follow(tensors):
        return False
    old = [tensor.data for tensor in tensors]
    try:
        whole = torch.cat(old)
    except torch.cuda.OutOfMemoryError:
        return False
    for tensor, part in zip(tensors, whole.split([len(one) for one in old]), strict=True):
        tensor.data = part
    if whole.device.type == "cuda":
        torch.cuda.synchronize(whole.device)  # before the old ones are freed, which kernels may still read
    return True
