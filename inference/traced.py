"""What runs under a tracer: load, warm up, capture and a few requests, each in its range."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch

from contract import SCHEMA_VERSION, WITHOUT_GRAPH, LaunchgapError, RangeName, Strategy, TraceRecord
from inference.annotate import Annotate, nvtx_range
from inference.annotate_modules import module_ranges, refuse_compiled
from inference.case import CaseOptions, ReadyCase, open_case
from inference.devices import resolve_device
from inference.environment import describe_environment
from inference.prepare import prepare_case
from inference.request import RequestTimes, random_prompt, run_request
from inference.strategies import ForwardStrategy

MIN_WARM_UP_REQUESTS = 3


class Tracer(Protocol):
    """What records a run: turned on before the model is loaded, and off after the last request."""

    def recording(self, on_gpu: bool) -> AbstractContextManager[None]:
        """Record until `finish`, or until an error leaves the `with` block."""

    def annotate(self, name: RangeName) -> AbstractContextManager[object]:
        """Open a range that the tracer records."""

    def finish(self, save: Callable[[], None]) -> None:
        """End the recording, and `save` the record."""


class NsysTracer:
    """Nsight Systems, which runs around this program and is told when to record a GPU."""

    def __init__(self) -> None:
        self._on_gpu = False

    @contextmanager
    def recording(self, on_gpu: bool) -> Iterator[None]:
        """Call cudaProfilerStart, which nsys waits for; without a GPU it records from the first moment."""
        self._on_gpu = on_gpu
        if on_gpu:
            torch.cuda.profiler.start()
        yield

    def annotate(self, name: RangeName) -> AbstractContextManager[object]:
        """An NVTX range."""
        return nvtx_range(name)

    def finish(self, save: Callable[[], None]) -> None:
        """Save first: the end of a capture range may end the process."""
        save()
        if self._on_gpu:
            torch.cuda.profiler.stop()


def run_traced(
    options: CaseOptions,
    strategy: Strategy,
    *,
    requests: int,
    warmup_s: float,
    command: Sequence[str],
    save: Callable[[TraceRecord], None],
    tracer: Tracer | None = None,
    modules: bool = False,
) -> None:
    """Run `requests` annotated requests of one strategy while `tracer` (None: nsys, if it is there) records.

    Warm-up is eager for every strategy and short (`warmup_s` seconds), since it is in the trace as well. With
    `modules` every module has an NVTX range from before the warm-up on, hence in the capture as well.

    Raises:
        LaunchgapError: bad options, or a strategy that this model or device cannot have; CaptureError when it
            cannot be captured.
    """
    if requests < 1:
        raise LaunchgapError(f"requests {requests}: must be 1 or more")
    if modules:
        refuse_compiled(strategy)
    tracer = tracer or NsysTracer()
    with tracer.recording(resolve_device(options.device).type == "cuda"):
        with tracer.annotate(RangeName.LOAD):
            case = open_case(options)
            case.backend.synchronize()
        prompts = _prompts(case, requests)
        with module_ranges(case.loaded.model) if modules else nullcontext():
            _warm_up(case, prompts[0], warmup_s, tracer.annotate)
            runner, forward_range = _prepare(case, strategy, tracer.annotate)
            times = [
                run_request(
                    runner, prompt, case.backend, forward_range=forward_range, annotate=tracer.annotate
                )
                for prompt in prompts
            ]
        tracer.finish(lambda: save(_record(case, strategy, times, command, modules)))
    runner.close()


def _prompts(case: ReadyCase, requests: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    length, vocabulary = case.fields["prompt_length"], case.loaded.fields["vocab_size"]
    return [random_prompt(length, vocabulary, generator) for _ in range(requests)]


def _warm_up(case: ReadyCase, prompt: torch.Tensor, warmup_s: float, annotate: Annotate) -> None:
    with annotate(RangeName.WARM_UP):
        eager = prepare_case(case, Strategy.EAGER)
        end_s = time.perf_counter() + warmup_s
        done = 0
        while done < MIN_WARM_UP_REQUESTS or time.perf_counter() < end_s:
            run_request(eager, prompt, case.backend)
            done += 1


def _prepare(case: ReadyCase, strategy: Strategy, annotate: Annotate) -> tuple[ForwardStrategy, RangeName]:
    """The strategy, made in the `capture` range if it has a graph, and the range of its forward passes."""
    if strategy in WITHOUT_GRAPH:
        return prepare_case(case, strategy), RangeName.FORWARD
    with annotate(RangeName.CAPTURE):
        return prepare_case(case, strategy), RangeName.REPLAY


def _record(
    case: ReadyCase, strategy: Strategy, times: Sequence[RequestTimes], command: Sequence[str], modules: bool
) -> TraceRecord:
    record = TraceRecord(
        schema_version=SCHEMA_VERSION,
        kind="trace",
        case=case.fields,
        strategy=str(strategy),
        device="cpu" if case.backend.simulated else "cuda",
        simulated=case.backend.simulated,
        requests=len(times),
        event_ms=[t.event_ms for t in times],
        wall_ms=[t.wall_ms for t in times],
        model=case.loaded.fields,
        environment=describe_environment(case.backend.device),
        command=list(command),
    )
    if modules:
        record["annotate"] = "modules"
    return record
