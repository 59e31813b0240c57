"""What runs under Nsight Systems: load, warm up, capture and a few requests, each in its NVTX range."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from contract import SCHEMA_VERSION, LaunchgapError, RangeName, Strategy, TraceRecord
from inference.annotate import nvtx_range
from inference.case import CaseOptions, ReadyCase, open_case
from inference.devices import resolve_device
from inference.environment import describe_environment
from inference.request import RequestTimes, random_prompt, run_request
from inference.strategies import EagerForward, ForwardStrategy, prepare

MIN_WARM_UP_REQUESTS = 3


def run_traced(
    options: CaseOptions,
    strategy: Strategy,
    *,
    requests: int,
    warmup_s: float,
    command: Sequence[str],
    save: Callable[[TraceRecord], None],
) -> None:
    """Run `requests` annotated requests of one strategy between cudaProfilerStart and cudaProfilerStop.

    The record is saved before the profiler stops, because the end of a capture range may end the process.
    Warm-up is eager for every strategy and short (`warmup_s` seconds), since it is in the trace as well.

    Raises:
        LaunchgapError: bad options; CaptureError when the strategy cannot be captured.
    """
    if requests < 1:
        raise LaunchgapError(f"requests {requests}: must be 1 or more")
    on_gpu = resolve_device(options.device).type == "cuda"
    if on_gpu:
        torch.cuda.profiler.start()
    with nvtx_range(RangeName.LOAD):
        case = open_case(options)
        case.backend.synchronize()
    prompts = _prompts(case, requests)
    _warm_up(case, prompts[0], warmup_s)
    runner, forward_range = _prepare(case, strategy)
    times = [
        run_request(runner, prompt, case.backend, forward_range=forward_range, annotate=nvtx_range)
        for prompt in prompts
    ]
    save(_record(case, strategy, times, command))
    if on_gpu:
        torch.cuda.profiler.stop()
    runner.close()


def _prompts(case: ReadyCase, requests: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    length, vocabulary = case.fields["prompt_length"], case.loaded.fields["vocab_size"]
    return [random_prompt(length, vocabulary, generator) for _ in range(requests)]


def _warm_up(case: ReadyCase, prompt: torch.Tensor, warmup_s: float) -> None:
    eager = EagerForward(case.loaded.model, case.backend)
    with nvtx_range(RangeName.WARM_UP):
        end_s = time.perf_counter() + warmup_s
        done = 0
        while done < MIN_WARM_UP_REQUESTS or time.perf_counter() < end_s:
            run_request(eager, prompt, case.backend)
            done += 1


def _prepare(case: ReadyCase, strategy: Strategy) -> tuple[ForwardStrategy, RangeName]:
    lengths = {"prompt_length": case.fields["prompt_length"], "max_length": case.fields["max_length"]}
    if strategy is Strategy.EAGER:
        return prepare(strategy, case.loaded.model, case.backend, **lengths), RangeName.FORWARD
    with nvtx_range(RangeName.CAPTURE):
        return prepare(strategy, case.loaded.model, case.backend, **lengths), RangeName.REPLAY


def _record(
    case: ReadyCase, strategy: Strategy, times: Sequence[RequestTimes], command: Sequence[str]
) -> TraceRecord:
    return TraceRecord(
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
