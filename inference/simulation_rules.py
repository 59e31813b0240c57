"""What a CUDA graph cannot hold, and which line of the user's code asked for it.

The rules follow from two facts of stream capture: nothing runs on the device until the capture is over, so
no value can come back to the host; and shapes, addresses and kernel arguments are baked in. Operations are
judged by their schema and tags, as the dispatcher describes them, not by a list of names. Sources: "CUDA
Graphs", "Constraints", in the PyTorch documentation; `data_dependent_output` and `dynamic_output_shape` in
ATen's `tags.yaml`.

Known limits, where the CPU cannot tell what CUDA would do. These pass here and fail in a real capture:
`x.to("cpu")` and `torch.tensor(0.0).to(device)`, which are no copies between devices here, and operations
whose CUDA kernels synchronise inside, such as `torch.linalg.inv`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from contract import CaptureError
from inference.blame import is_users, place_of

_HOST_READ = (
    "gives a tensor's value to the host, which a graph cannot do while it is captured; keep it on the device "
    "(torch.where, a mask) or read it before the capture"
)
_DYNAMIC_SHAPE = (
    "has a result whose shape depends on values, but a graph's shapes are fixed; use a mask, torch.where or "
    "a variant with a fixed size"
)
_HOST_DATA = (
    "copies fresh host data to the device, which a capture forbids; make the tensor before the capture, or "
    "use torch.full, which runs on the device"
)
_RAW_STORAGE = (
    "works on a raw storage, past the operations that a graph records; copy the tensor with clone() or "
    "copy_() instead"
)

_READS: Mapping[Callable[..., Any], str] = {
    # These reach the data without an operation that the dispatcher would show, or with their modes off.
    torch.Tensor.tolist: "Tensor.tolist",
    torch.Tensor.numpy: "Tensor.numpy",
    torch.Tensor.__array__: "Tensor.__array__",
    torch.Tensor.cpu: "Tensor.cpu",
    torch.Tensor.__repr__: "Tensor.__repr__",
    torch.Tensor.__format__: "Tensor.__format__",
}
_LITERALS: Mapping[Callable[..., Any], str] = {
    torch.tensor: "torch.tensor",
    torch.as_tensor: "torch.as_tensor",
    torch.asarray: "torch.asarray",
    torch.Tensor.new_tensor: "Tensor.new_tensor",
}


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code. Prints as `folder/file.py:LINE "source text"`."""

    path: str
    line: int

    def __str__(self) -> str:
        return place_of(self.path, self.line)


def user_site() -> Site:
    """The innermost line that is neither torch's, nor Python's library's, nor this package's.

    Usually a line of the model, in transformers or in the user's own module; `inference.blame` has the rule.
    Code without a file, such as `python -c`, is named by the outermost frame.
    """
    frame = sys._getframe(1)
    while not is_users(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def operation_name(operation: OpOverload[..., Any]) -> str:
    """The operation's name without its overload, as torch writes it: `aten.addmm`."""
    return str(operation._schema.name).replace("::", ".")


def check_operation(operation: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Judge an operation that the dispatcher is about to run.

    Raises:
        CaptureError: a graph cannot hold it; names the operation and the line of user code.
    """
    if torch.Tag.data_dependent_output in operation.tags:
        raise refusal(operation_name(operation), _HOST_READ)
    if _shape_depends_on_values(operation, args, kwargs):
        raise refusal(operation_name(operation), _DYNAMIC_SHAPE)
    # A literal without dimensions stays on the host and is baked into the kernel that uses it, in CUDA too.
    if operation is torch.ops.aten.lift_fresh.default and args[0].dim() > 0 and args[0].numel() > 0:
        raise refusal(operation_name(operation), _HOST_DATA)
    if any(isinstance(argument, torch.UntypedStorage) for argument in args):
        raise refusal(operation_name(operation), _RAW_STORAGE)


def check_function(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Judge a call of torch's Python interface, for what the dispatcher does not see.

    Raises:
        CaptureError: a host read such as `tolist`, or a Python literal that is put on a named device.
    """
    if function in _READS:
        raise refusal(_READS[function], _HOST_READ)
    if function not in _LITERALS:
        return
    is_method = function is torch.Tensor.new_tensor
    data = args[1] if is_method and len(args) > 1 else args[0] if args else None
    # Without a device a literal is a host tensor; new_tensor puts it where its own tensor is.
    if not isinstance(data, Tensor) and (is_method or kwargs.get("device") is not None):
        raise refusal(_LITERALS[function], _HOST_DATA)


def refusal(operation: str, why_and_remedy: str, site: Site | None = None) -> CaptureError:
    """The error for an operation, at the given line or at the one that is running now."""
    return CaptureError(f"{operation} at {site or user_site()}: {why_and_remedy}")


def _shape_depends_on_values(
    operation: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    indices = _argument(operation, "indices", args, kwargs)
    if not isinstance(indices, (list, tuple)):
        is_dynamic = torch.Tag.dynamic_output_shape in operation.tags
        return is_dynamic and _argument(operation, "output_size", args, kwargs) is None
    # Indexing carries the tag for every index, but only a mask makes a shape; index_put_ lacks the tag.
    tensors = [index for index in indices if isinstance(index, Tensor)]
    masks = [index for index in tensors if index.dtype in (torch.bool, torch.uint8)]
    return bool(masks) and not (len(tensors) == 1 and _is_masked_fill(operation, args, kwargs))


def _is_masked_fill(operation: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ATen turns `x[mask] = number` into `masked_fill_`, which looks at no value on the host."""
    value = _argument(operation, "values", args, kwargs)
    accumulates = _argument(operation, "accumulate", args, kwargs)
    return isinstance(value, Tensor) and value.numel() == 1 and not accumulates


def _argument(
    operation: OpOverload[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> object:
    for position, argument in enumerate(operation._schema.arguments):
        if argument.name == name:
            return args[position] if position < len(args) else kwargs.get(name)
    return None
