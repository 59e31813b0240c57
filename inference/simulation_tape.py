"""The recording behind a simulated graph: operations with frozen arguments, and the addresses they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from inference.simulation_rules import Site, operation_name, refusal, user_site

_MOVED = (
    "was recorded with a tensor whose {what} changed since, but a graph keeps the addresses and shapes of "
    "its capture; write new values into the tensor with copy_(), or capture again"
)
_RESHAPED = (
    "gives {new} where the capture gave {old}, but a graph's shapes are fixed; feed inputs of the captured "
    "shape, or capture again"
)
_RESIZED = (
    "moves a tensor to another address, but a graph keeps the addresses of its capture; make the tensor in "
    "its final size before the capture"
)
_NO_STORAGE = "has a tensor without a plain storage ({layout}), which cannot be recorded; use dense tensors"


@dataclass(frozen=True, slots=True)
class Write:
    """Where a replay puts one fresh result. `index` counts the leaves of what the operation returns."""

    index: int
    target: Tensor
    shape: torch.Size
    stride: tuple[int, ...]

    def put(self, leaves: Sequence[Any]) -> bool:
        """Copy the result into the storage of the recording; False if it has another shape or dtype."""
        fresh = leaves[self.index] if self.index < len(leaves) else None
        if not isinstance(fresh, Tensor) or fresh.shape != self.shape or fresh.dtype != self.target.dtype:
            return False
        if self.target.shape != self.shape:
            if fresh.stride() != self.stride:
                return False
            fresh = _without_overlap(fresh)
        self.target.copy_(fresh)
        return True


@dataclass(frozen=True, slots=True)
class Operation:
    """One recorded operation.

    Its tensors are aliases made at the recording, so that later changes of a tensor's metadata (`t_()`,
    `.data = ...`) cannot reach them: like a kernel's arguments they are baked in.
    """

    function: OpOverload[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    writes: tuple[Write, ...]
    had_grad: bool
    site: Site

    @property
    def name(self) -> str:
        """The operation's name, such as `aten.addmm`."""
        return operation_name(self.function)

    def run(self) -> None:
        """Run once more, into the storages of the recording.

        Raises:
            CaptureError: a result has another shape or dtype than at the capture.
        """
        result = self.function(*self.args, **self.kwargs)
        if not self.writes:
            return
        leaves = (result,) if isinstance(result, Tensor) else pytree.tree_leaves(result)
        for write in self.writes:
            if not write.put(leaves):
                new = _described(leaves[write.index]) if write.index < len(leaves) else "nothing"
                old = _layout(write.target.dtype, write.shape, write.stride)
                raise refusal(self.name, _RESHAPED.format(new=new, old=old), self.site)


@dataclass(slots=True)
class Watched:
    """A tensor of the recording and the address it must keep; its shape too, if it came from outside."""

    tensor: Tensor
    address: int
    is_outside: bool
    name: str
    site: Site
    shape: torch.Size | None = None

    def check(self) -> None:
        """Raise CaptureError if the tensor lies elsewhere, or has another shape, than at the capture."""
        if self.tensor.data_ptr() != self.address:
            raise refusal(self.name, _MOVED.format(what="address"), self.site)
        if self.shape is not None and self.tensor.shape != self.shape:
            raise refusal(self.name, _MOVED.format(what="shape"), self.site)


class Tape:
    """Records operations one by one, then replays them. Keeps every tensor that it saw alive."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._watched: dict[int, Watched] = {}
        self._created: dict[int, torch.UntypedStorage] = {}

    @property
    def pool_bytes(self) -> int:
        """Bytes of all storages that the recorded operations made, each counted once."""
        return sum(storage.nbytes() for storage in self._created.values())

    def execute(
        self, function: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        """Run an operation and record what a replay needs of it.

        A result in a storage that no argument has is fresh: a replay copies it there. One that shares an
        argument's storage is a view, right by itself, or an in-place result, made by running again.

        Raises:
            CaptureError: it moved a tensor that already had an address, or has a tensor without a storage.
        """
        site, name = user_site(), operation_name(function)
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        addresses = [_address(tensor, name, site) for tensor in inputs]
        sources = {_storage(tensor)._cdata for tensor in inputs}
        result = function(*args, **kwargs)
        for tensor, address in zip(inputs, addresses, strict=True):
            if address not in (0, tensor.data_ptr()):
                raise refusal(name, _RESIZED, site)
            self._watch(tensor, name, site, is_outside=True)
        leaves = pytree.tree_leaves(result)
        writes = tuple(self._writes(leaves, sources, name, site))
        if _has_kernel(function, leaves, writes):
            frozen_args, frozen_kwargs = pytree.tree_map_only(Tensor, _frozen, (args, kwargs))
            had_grad = torch.is_grad_enabled()
            self.operations.append(Operation(function, frozen_args, frozen_kwargs, writes, had_grad, site))
        return result

    def _writes(self, leaves: Sequence[Any], sources: set[int], name: str, site: Site) -> Iterator[Write]:
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                continue
            _address(leaf, name, site)
            storage = _storage(leaf)
            if storage._cdata not in sources:
                self._created[storage._cdata] = storage
                yield Write(index, _without_overlap(_frozen(leaf)), leaf.shape, leaf.stride())
            self._watch(leaf, name, site, is_outside=False)

    def _watch(self, tensor: Tensor, name: str, site: Site, *, is_outside: bool) -> None:
        watched = self._watched.get(id(tensor))
        if watched is None:
            self._watched[id(tensor)] = Watched(tensor, tensor.data_ptr(), is_outside, name, site)
        elif watched.address == 0:
            # out=torch.empty(0) gets its memory from the first operation that fills it.
            watched.address = tensor.data_ptr()

    def finish(self) -> None:
        """End the recording: fix the shapes of the tensors that came from outside.

        Raises:
            CaptureError: a tensor moved during the recording by no operation (`.data = ...`).
        """
        for watched in self._watched.values():
            watched.check()
            if watched.is_outside:
                watched.shape = watched.tensor.shape

    def replay(self) -> None:
        """Run every operation again, in order. Nothing is run if a tensor has moved.

        Raises:
            CaptureError: an address or a shape is no longer that of the recording.
        """
        for watched in self._watched.values():
            watched.check()
        # What was recorded lies below autograd and autocast; a replay must not pass through them again. Some
        # kernels ask for the grad mode all the same, and return more when it is on.
        with torch.inference_mode(), torch._C._DisableAutocast():
            for operation in self.operations:
                torch._C._set_grad_enabled(operation.had_grad)
                operation.run()


def _has_kernel(function: OpOverload[..., Any], leaves: Sequence[Any], writes: Sequence[Write]) -> bool:
    """Whether a replay must run the operation: not for views, metadata and memory, which no kernel makes."""
    if torch.Tag.inplace_view in function.tags:
        return False
    if "empty" in str(function._schema.name).rpartition("::")[2].split("_"):
        return False  # only memory; filling it anew would lose what later operations keep there
    is_check = all(leaf is None for leaf in leaves)  # returns nothing, as _assert_async does
    return bool(writes) or is_check or function._schema.is_mutable


def _frozen(tensor: Tensor) -> Tensor:
    """An alias with metadata of its own."""
    return tensor.detach()


def _without_overlap(tensor: Tensor) -> Tensor:
    """The tensor with expanded dimensions narrowed to one element: copy_ writes no element twice."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def _address(tensor: Tensor, name: str, site: Site) -> int:
    """Address of the first element, 0 for a tensor without elements; CaptureError without a storage."""
    try:
        return tensor.data_ptr()
    except (RuntimeError, NotImplementedError) as error:
        layout = f"{type(tensor).__name__}, {tensor.layout}"
        raise refusal(name, _NO_STORAGE.format(layout=layout), site) from error


def _described(result: object) -> str:
    if not isinstance(result, Tensor):
        return type(result).__name__
    return _layout(result.dtype, result.shape, result.stride())


def _layout(dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}" + (f" with strides {stride}" if 0 in stride else "")
