"""What stands in the way of a stream capture: how each is recognised by its CUDA call, and its remedy.

Sources: "CUDA Graphs" in the CUDA programming guide (prohibited and unhandled operations, cross-stream
dependencies), `cudaStreamBeginCapture` and `cudaThreadExchangeStreamCaptureMode` in the runtime API, and
"CUDA Graphs", "Constraints", in the PyTorch documentation.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from analysis.host_ledger import host_part
from analysis.host_parts import HostPart
from analysis.launches import LaunchKind, api_name, launch_kind


class Harm(StrEnum):
    """What a blocker does, worst first.

    `breaks`: the capture ends in an error. `corrupts`: it succeeds, and replays do something else than eager.
    `check`: right in some programs and wrong in others, which a trace does not tell.
    """

    BREAKS = "breaks"
    CORRUPTS = "corrupts"
    CHECK = "check"


class Rule(NamedTuple):
    """One kind of blocker: what it does, what it is, why, and the remedy in one line."""

    harm: Harm
    blocker: str
    effect: str
    remedy: str


WAIT = Rule(
    Harm.BREAKS,
    "wait for the GPU",
    "nothing runs while a capture records, so waiting for it is an error",
    "keep the value on the device (torch.where, a mask), or wait after the replay",
)
BLOCKING = Rule(
    Harm.BREAKS,
    "blocking copy or fill",
    "it runs on the legacy stream and waits, both of which a capture forbids",
    "use the asynchronous call on the current stream with pinned memory, or copy before the replay",
)
CALLBACK = Rule(
    Harm.BREAKS,
    "stream callback",
    "a capture refuses cudaStreamAddCallback",
    "use cudaLaunchHostFunc, or call back after the replay",
)
HOST_FUNCTION = Rule(
    Harm.CHECK,
    "host function",
    "it becomes a node that runs at every replay with the arguments of the capture",
    "see that what it points to outlives the graph, or call it after the replay",
)
HOST_NODE = Rule(
    Harm.CHECK,
    "host node of a graph",
    "the GPU waits for the host in the middle of a replay",
    "move the host's part out of what is captured",
)
QUERY = Rule(
    Harm.CHECK,
    "query of a stream or event",
    "asking a capturing stream, or an event recorded in it, ends the capture",
    "ask after the replay; torch's own queries switch the capture mode and do no harm",
)
ALLOCATION = Rule(
    Harm.CHECK,
    "allocation",
    "torch's allocator takes memory from the graph's pool meanwhile, any other library's call breaks",
    "warm up with the captured shapes, and allocate before the capture",
)
FREE = Rule(
    Harm.CHECK,
    "free",
    "freeing waits for the device and is forbidden during a capture",
    "warm up, keep what is captured alive, and freeze Python's garbage collection in the capture",
)
LOADING = Rule(
    Harm.CHECK,
    "loading of kernels",
    "code that is loaded during a capture may allocate and wait",
    "run the captured shapes once or more before the capture",
)
READ_BACK = Rule(
    Harm.BREAKS,
    "device-to-host copy that is waited for",
    "the host gets no value while a capture records (.item(), .cpu(), a Python branch on a tensor)",
    "keep the value on the device (torch.where, a mask), or read it before the capture",
)
DOWNLOAD = Rule(
    Harm.CHECK,
    "device-to-host copy",
    "every replay writes to the host address of the capture, and only then is the value there",
    "copy into pinned memory that outlives the graph, or copy after the replay",
)
PAGEABLE = Rule(
    Harm.BREAKS,
    "copy of pageable memory",
    "a capture takes pinned host memory only",
    "make the tensor on the device (torch.full, torch.arange), or copy it before the replay",
)
UPLOAD = Rule(
    Harm.CHECK,
    "host-to-device copy",
    "every replay reads the host address of the capture again",
    "copy into a static device tensor before the replay, or keep the pinned memory",
)
LEGACY = Rule(
    Harm.CORRUPTS,
    "work on the legacy stream beside other streams",
    "it ignores the current stream, so it escapes the graph and never runs at a replay",
    "launch on torch.cuda.current_stream() (c10::cuda::getCurrentCUDAStream in C++)",
)
STREAMS = Rule(
    Harm.CHECK,
    "work on several streams",
    "a side stream that is not joined again ends the capture, one that is not forked escapes it",
    "fork and join side streams with wait_stream or events inside what is captured",
)
THREADS = Rule(
    Harm.CORRUPTS,
    "launches from another thread",
    "a thread has a current stream of its own, so its work escapes the graph",
    "launch everything from the thread that captures, or give that thread the stream",
)
ESCAPED = Rule(
    Harm.CORRUPTS,
    "work that ran during a capture",
    "it was launched on another stream by the thread that captured: it ran once and is in no replay",
    "launch on torch.cuda.current_stream(), or move it out of the capture",
)
RANDOM = Rule(
    Harm.CHECK,
    "random numbers",
    "a generator that the graph does not know breaks the capture; torch's default one is known",
    "register others with CUDAGraph.register_generator_state before the capture",
)
COUNTS = Rule(
    Harm.CORRUPTS,
    "launches that differ between requests",
    "a graph replays the launches of the request that was captured, whatever the next one needs",
    "capture one graph for each case (lengths in buckets), or replace the Python branch by torch.where",
)
SHAPES = Rule(
    Harm.CORRUPTS,
    "shapes that differ between requests",
    "grids, sizes and addresses are those of the request that was captured",
    "pad to a fixed length or capture one graph for each length, and give a growing cache its final size",
)

RULES = (
    *(WAIT, BLOCKING, READ_BACK, PAGEABLE, CALLBACK, LEGACY, THREADS, ESCAPED, COUNTS, SHAPES),
    *(DOWNLOAD, UPLOAD, ALLOCATION, FREE, LOADING, QUERY, HOST_FUNCTION, HOST_NODE, STREAMS, RANDOM),
)
"""All of them, in the order in which they are listed."""

_CALLS = (
    (re.compile(r"cu(?:da)?StreamAddCallback"), CALLBACK),
    (re.compile(r"cu(?:da)?LaunchHostFunc\w*"), HOST_FUNCTION),
    (re.compile(r"cu(?:da)?(?:Stream|Event)Query"), QUERY),
    (re.compile(r"cu(?:Module|Library)Load\w*|cudaLibraryLoad\w*"), LOADING),
)
_FREE = re.compile(r"cuda(?:Free|HostUnregister)\w*|cuMem(?:Free|Unmap|Release|HostUnregister)\w*")
_RANDOM = re.compile(r"philox|curand|distribution_elementwise|distribution_nullary|random_from_to|dropout")


def rule_of_call(recorded: str) -> Rule | None:
    """What a call is by its name alone; None for one that a capture takes, or that its copy tells more of."""
    name = api_name(recorded)
    for pattern, rule in _CALLS:
        if pattern.fullmatch(name):
            return rule
    if launch_kind(recorded) in (LaunchKind.MEMCPY, LaunchKind.MEMSET):
        return None if "Async" in name else BLOCKING
    part = host_part(recorded)
    if part is HostPart.SYNCHRONISING:
        return WAIT
    if part is not HostPart.ALLOCATIONS:
        return None
    return FREE if _FREE.fullmatch(name) else ALLOCATION


def draws_random_numbers(kernel: str) -> bool:
    """Whether a kernel's name is that of one of torch's or cuRAND's generators of random numbers."""
    return _RANDOM.search(kernel.lower()) is not None
