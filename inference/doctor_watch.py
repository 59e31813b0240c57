"""Watches one eager call: which operations ran on which line, and which of them a capture would not take.

On CUDA torch's own sync debug mode tells of every wait. On the CPU the simulation's rules do, which judge an
operation by its schema. Both run the call to its end, so that all places are found and not only the first.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from contract import CaptureError
from inference.simulation import _answer_as_capturing
from inference.simulation_rules import check_function, check_operation, operation_name, user_site

_SYNC_WARNING = "called a synchronizing CUDA operation"
WAITS = "waits for the GPU"
_GENERATOR = (
    "draws from a generator that no graph knows; register it with CUDAGraph.register_generator_state before "
    "the capture, or use torch's default one"
)
LEGACY_STREAM = (
    "runs on the legacy stream, which is not the one that captures, so it is in no replay; launch on "
    "torch.cuda.current_stream()"
)
UNKNOWN_OPERATION = "an operation"


class Stop(NamedTuple):
    """One operation at one line that a capture would not take, and what is wrong with it."""

    operation: str
    place: str
    why: str


class Step(NamedTuple):
    """One operation that ran: name, the line that asked for it, its tensors' shapes, its plain numbers."""

    operation: str
    place: str
    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[float, ...]


@dataclass
class Watched:
    """What one call did.

    Attributes:
        stops: what a capture would not take, counted.
        steps: all operations in order.
        made: tensors that it made; the living ones are what it left behind.
        carried: operations that read what an earlier call had left behind.
    """

    stops: Counter[Stop] = field(default_factory=Counter)
    steps: list[Step] = field(default_factory=list)
    made: list[weakref.ref[Tensor]] = field(default_factory=list)
    carried: list[Step] = field(default_factory=list)


def watch(
    call: Callable[[], object],
    device: torch.device,
    *,
    as_capturing: bool,
    earlier: Watched | None = None,
) -> Watched:
    """Run a call eagerly, to its end; `earlier` is another call, whose tensors this one should not read.

    With `as_capturing` libraries that ask are told that the stream captures, so that they skip what they skip
    then. On CUDA the call runs on a side stream, as a capture does.
    """
    watched = Watched()
    # Held, so that no new tensor can be taken for one of them.
    left = [tensor for made in earlier.made if (tensor := made()) is not None] if earlier else []
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if as_capturing:
            stack.enter_context(_answer_as_capturing())
        if device.type == "cuda":
            mode = stack.enter_context(_on_side_stream(device, watched, left))
        else:
            mode = _Operations(watched, left, judged=True)
            stack.enter_context(_Functions(watched, mode))
            stack.enter_context(mode)
        call()
    return watched


@contextmanager
def _on_side_stream(device: torch.device, watched: Watched, left: Sequence[Tensor]) -> Iterator[_Operations]:
    """A side stream under sync debug mode; both as they were afterwards."""
    side = torch.cuda.Stream(device)
    legacy = torch.cuda.default_stream(device)
    mode = _Operations(watched, left, judged=False, legacy=legacy)
    side.wait_stream(torch.cuda.current_stream(device))
    before = torch.cuda.get_sync_debug_mode()
    with torch.cuda.stream(side), _sync_warnings(watched, mode):
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with mode:
                yield mode
        finally:
            torch.cuda.set_sync_debug_mode(before)
    torch.cuda.synchronize(device)


@contextmanager
def _sync_warnings(watched: Watched, mode: _Operations) -> Iterator[None]:
    """Take torch's warnings of waits, with the line that runs when each is given."""
    others: list[tuple[Any, ...]] = []

    def take(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,  # noqa: ARG001 - given by position or name
        line: str | None = None,  # noqa: ARG001
    ) -> None:
        if _SYNC_WARNING in str(message):
            # It is given when torch returns to Python, just after the operation, if it was one of those seen.
            place = str(user_site())
            operation = mode.last.operation if mode.last and mode.last.place == place else UNKNOWN_OPERATION
            watched.stops[Stop(operation, place, WAITS)] += 1
        else:
            others.append((message, category, filename, lineno))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = take
        yield
    for message, category, filename, lineno in others:
        if "Synchronization debug mode" not in str(message):
            warnings.warn_explicit(message, category, filename, lineno)


class _Operations(TorchDispatchMode):
    """Notes every operation; with `judged` also what the simulation's rules say against it."""

    def __init__(
        self,
        watched: Watched,
        left: Sequence[Tensor],
        *,
        judged: bool,
        legacy: torch.cuda.Stream | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watched = watched
        self._left = {id(tensor) for tensor in left}
        self._judged = judged
        self._legacy = legacy
        self._made: set[int] = set()
        self.last: Step | None = None
        self.quiet = False

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        name, place = operation_name(func), str(user_site())
        inputs = pytree.tree_leaves((args, kwargs))
        numbers = tuple(float(leaf) for leaf in inputs if isinstance(leaf, bool | int | float))
        self.last = Step(name, place, (), numbers)
        if not self.quiet:
            self._judge(func, args, kwargs, name, place)
        result = func(*args, **kwargs)
        tensors = [leaf for leaf in inputs if isinstance(leaf, Tensor)]
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        shapes = tuple(tuple(tensor.shape) for tensor in (*tensors, *results))
        self.last = self.last._replace(shapes=shapes)
        self._watched.steps.append(self.last)
        if any(id(tensor) in self._left for tensor in tensors):
            self._watched.carried.append(self.last)
        self._note_made(tensors, results)
        return result

    def _note_made(self, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Note results in storages of this call: not views of, or results written into, what was there."""
        outside = {_storage(tensor) for tensor in inputs} - self._made
        for tensor in results:
            if _storage(tensor) not in outside:
                self._made.add(_storage(tensor))
                self._watched.made.append(weakref.ref(tensor))

    def _judge(
        self, func: OpOverload[..., Any], args: Sequence[Any], kwargs: dict[str, Any], name: str, place: str
    ) -> None:
        if self._judged:
            try:
                check_operation(func, args, kwargs)
            except CaptureError as error:
                note(self._watched, error)
        generators = [leaf for leaf in (*args, *kwargs.values()) if isinstance(leaf, torch.Generator)]
        if any(not _is_default(generator) for generator in generators):
            self._watched.stops[Stop(name, place, _GENERATOR)] += 1
        if self._legacy is not None and torch.cuda.current_stream(self._legacy.device) == self._legacy:
            self._watched.stops[Stop(name, place, LEGACY_STREAM)] += 1


class _Functions(TorchFunctionMode):
    """Notes Python calls that read host data, or bring it, past the dispatcher."""

    def __init__(self, watched: Watched, operations: _Operations) -> None:
        super().__init__()
        self._watched = watched
        self._operations = operations

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        try:
            check_function(func, args, kwargs or {})
        except CaptureError as error:
            note(self._watched, error)
            # What it is made of would be told a second time.
            self._operations.quiet = True
            try:
                return func(*args, **(kwargs or {}))
            finally:
                self._operations.quiet = False
        return func(*args, **(kwargs or {}))


def note(watched: Watched, error: CaptureError) -> None:
    """Count a refusal of the simulation's rules, raised on the line that runs now."""
    name, _, rest = str(error).partition(" at ")
    place = str(user_site())
    why = rest.removeprefix(f"{place}: ")
    watched.stops[Stop(name, place, why)] += 1


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_default(generator: torch.Generator) -> bool:
    """The dispatcher hands out new Python objects for a generator, so the one behind them is compared."""
    defaults = (
        torch.cuda.default_generators if generator.device.type == "cuda" else (torch.default_generator,)
    )
    return any(_handle(generator) == _handle(default) for default in defaults)


def _handle(generator: torch.Generator) -> int:
    return int(generator._cdata)  # type: ignore[attr-defined]  # torch's stubs leave it out
