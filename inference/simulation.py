"""A stand-in for a CUDA graph on machines without one: records a forward pass, then replays it in place.

    graph = RecordedGraph()
    with torch.inference_mode(), record(graph):
        out = model(static_ids).logits  # runs, and is recorded operation by operation
    static_ids.copy_(new_ids)
    graph.replay()  # runs the same operations into the same storages
    result = out.clone()  # `out` is the one result buffer: the next replay overwrites it

It mirrors `torch.cuda.CUDAGraph` and `torch.cuda.graph`. The same mistakes stay silent: inputs rebound
instead of copied into, outputs read too late, Python numbers baked in. What a capture forbids is refused, see
`simulation_rules`. It goes further where CUDA would corrupt silently: a tensor whose address or shape changed
since the capture is refused at the replay. Nothing gets faster: the CPU runs every operation again.

Random operations draw from their generator at every replay, as with a generator registered to a CUDA graph.

`torch.no_grad` and `torch.inference_mode` both work and record the same operations. Use `inference_mode`,
like the eager baseline, unless code outside the capture must write in place into something made inside it (a
cache, a counter): tensors made under `inference_mode` refuse that, so take `no_grad` then.

Not simulated: streams, memory pools shared by graphs, captures in two threads at once, and the fast path of
`torch.nn.MultiheadAttention`, which torch leaves while its functions are observed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from contract import CaptureError
from inference.simulation_rules import check_function, check_operation
from inference.simulation_tape import Tape

_BUSY = threading.Lock()
"""Held during a capture: torch has one answer to patch, so the process has one capture at a time."""

_THREAD = threading.local()
"""`is_recording`: whether this thread captures. Others run beside it unseen, as on another stream."""

_QUESTION = "is_current_stream_capturing"
_ASKED = (torch.cuda, torch.cuda.graphs)


class _State(Enum):
    EMPTY = "empty"
    RECORDING = "recording"
    READY = "ready"
    FAILED = "failed"


class RecordedGraph:
    """The operations of one forward pass, to be replayed into the storages they were recorded with.

    Keeps every intermediate result alive, so it costs more memory than the pass itself; `reset` frees it.
    """

    def __init__(self) -> None:
        self._tape = Tape()
        self._state = _State.EMPTY
        self._failure = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the recorded operations, in order, such as `aten.addmm`: a CUDA graph's kernels.

        Views and bare allocations launch nothing and are left out.
        """
        return tuple(operation.name for operation in self._tape.operations)

    @property
    def pool_bytes(self) -> int:
        """Bytes of all storages made during the recording: the memory that the graph keeps to itself."""
        return self._tape.pool_bytes

    def replay(self) -> None:
        """Run the recorded operations again: inputs are read, and results written, where they were.

        Raises:
            CaptureError: nothing was captured, the capture failed or is running, a tensor of the recording
                has moved or changed shape, or a result has another shape or dtype than at the capture.
        """
        if _is_recording():
            raise CaptureError("replay: a capture is running and cannot hold one; replay after it has ended")
        if self._state is _State.FAILED:
            raise CaptureError(
                f"replay: the capture of this graph failed ({self._failure}); reset() it and capture again"
            )
        if self._state is not _State.READY:
            raise CaptureError("replay: this graph holds no capture; capture into it with record() first")
        self._tape.replay()

    def reset(self) -> None:
        """Free the recording; the graph can then be captured into again.

        Raises:
            CaptureError: the graph is just being captured into.
        """
        if self._state is _State.RECORDING:
            raise CaptureError("reset: this graph is being captured into; reset it after the capture")
        self._tape = Tape()
        self._state = _State.EMPTY

    def _begin(self) -> Tape:
        if self._state is not _State.EMPTY:
            raise CaptureError("record: this graph owns a capture already; make a new graph or reset() it")
        self._state = _State.RECORDING
        return self._tape

    def _end(self) -> None:
        self._tape.finish()
        self._state = _State.READY

    def _fail(self, error: BaseException) -> None:
        self._tape = Tape()
        self._state = _State.FAILED
        self._failure = " ".join(str(error).split()) or type(error).__name__


@contextmanager
def record(graph: RecordedGraph) -> Iterator[None]:
    """Run the block and record its tensor operations into an empty graph, as `torch.cuda.graph` does.

    Within the block `torch.cuda.is_current_stream_capturing()` answers True in this thread, because libraries
    ask it and then skip host reads of their own. After an exception the graph is unusable until `reset`.

    Raises:
        CaptureError: an operation that a graph cannot hold, named with its line of user code and raised even
            if the block swallowed it; a graph that is not empty; a capture beside another.
    """
    if not _BUSY.acquire(blocking=False):
        raise CaptureError("record: another capture is running in this process; let it end first")
    try:
        tape = graph._begin()
        refusals: list[CaptureError] = []
        try:
            with _answer_as_capturing(), _RefuseFunctions(refusals), _RecordOperations(refusals, tape):
                yield
            if refusals:
                raise refusals[0]
            graph._end()
        except BaseException as error:
            graph._fail(refusals[0] if refusals else error)
            # A read refused inside torch's argument parser may surface as a TypeError that names nothing.
            if refusals and error is not refusals[0] and isinstance(error, Exception):
                raise refusals[0] from error
            raise
    finally:
        _BUSY.release()


def _is_recording() -> bool:
    return bool(getattr(_THREAD, "is_recording", False))


@contextmanager
def _answer_as_capturing() -> Iterator[None]:
    """Let torch say that this thread captures. Other threads get torch's own answer."""
    genuine = torch.cuda.graphs.is_current_stream_capturing

    def is_current_stream_capturing() -> bool:
        return _is_recording() or genuine()

    _THREAD.is_recording = True
    try:
        for module in _ASKED:
            setattr(module, _QUESTION, is_current_stream_capturing)
        yield
    finally:
        for module in _ASKED:
            setattr(module, _QUESTION, genuine)
        _THREAD.is_recording = False


class _RecordOperations(TorchDispatchMode):
    """Sends every operation that reaches the dispatcher to the tape; keeps what it refused."""

    def __init__(self, refusals: list[CaptureError], tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refusals = refusals
        self._tape = tape

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        try:
            check_operation(func, args, kwargs or {})
            if _is_composite(func):
                # Only inference_mode lets these through whole; in parts, their reads and views are visible.
                # `func.decompose` would prefer torch's Python rewrites, which eager does not run.
                with self:
                    return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **(kwargs or {}))
            return self._tape.execute(func, args, kwargs or {})
        except CaptureError as error:
            self._refusals.append(error)
            raise


class _RefuseFunctions(TorchFunctionMode):
    """Refuses Python calls that read host data, or bring it, past the dispatcher; keeps what it refused."""

    def __init__(self, refusals: list[CaptureError]) -> None:
        super().__init__()
        self._refusals = refusals

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
            self._refusals.append(error)
            raise
        return func(*args, **(kwargs or {}))


def _is_composite(operation: OpOverload[..., Any]) -> bool:
    """Whether the operation has no kernel of its own for the CPU, but is made of others."""
    has_kernel = operation.has_kernel_for_dispatch_key
    return has_kernel(DispatchKey.CompositeImplicitAutograd) and not has_kernel(DispatchKey.CPU)
