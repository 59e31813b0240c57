"""Greedy generation at batch 1: transformers, launchgap's graphs and two serving engines in one run.

Each round has fresh random prompts, and every row that runs in this process answers them in random order,
once with `new_tokens` tokens and once with half as many. What a token costs is the difference of the two over
the difference of their tokens: prompt, launch and return cancel, for every row alike. The peers of
`inference.generation_peers` answer the same prompts afterwards, one after the other, since they reserve the
GPU's memory. Before it is timed a row answers three requests: the first, for which everything is built,
captured and compiled, is timed by itself.
"""

from __future__ import annotations

import gc
import logging
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from tqdm import tqdm

from contract import SCHEMA_VERSION, GenerationRecord, GenerationStrategy, LaunchgapError
from inference.case import ReadyCase
from inference.environment import describe_environment, read_clocks
from inference.floor import floor_ms, read_bandwidth_bytes_per_s, weight_bytes_read
from inference.generation_case import GenerationSettings, Plan, Request, draw_plan
from inference.generation_peers import PEERS, PeerAnswer, PeerJob, run_peer, why_unavailable
from inference.generation_rows import Row, make_row, require_count, token_agreement
from inference.generation_series import Series, as_fields, failure_recorded
from inference.side_by_side import lay_side_by_side

logger = logging.getLogger(__name__)

_PEER_MEMORY_SHARE = 0.85
"""How much of the GPU's free memory a peer may reserve."""

_AllSeries = dict[GenerationStrategy, Series]


def measure_generation(
    case: ReadyCase, settings: GenerationSettings, command: Sequence[str]
) -> GenerationRecord:
    """Measure every strategy and describe what it was measured on.

    One that fails is recorded with the reason, whatever it was, and the others go on.
    """
    device, model = case.backend.device, case.loaded.model
    environment: dict[str, Any] = describe_environment(device)
    environment["clocks_before"] = read_clocks(device)
    plan = draw_plan(settings, case.fields["prompt_length"], case.loaded.fields["vocab_size"])
    series = _measure_here(case, settings, plan)
    bandwidth, weight_bytes = read_bandwidth_bytes_per_s(device), weight_bytes_read(model)
    environment["clocks_after"] = read_clocks(device)
    series |= _measure_peers(case, settings, plan, series[GenerationStrategy.GENERATE].first)
    return GenerationRecord(
        schema_version=SCHEMA_VERSION,
        kind="generation",
        case=case.fields,
        device="cpu" if case.backend.simulated else "cuda",
        simulated=case.backend.simulated,
        settings={
            "strategies": [str(name) for name in settings.strategies],
            "new_tokens": settings.new_tokens,
            "half_tokens": settings.half_tokens,
            "runs": settings.runs,
            "seed": settings.seed,
        },
        model=case.loaded.fields,
        strategies={str(name): as_fields(series[name], settings) for name in settings.strategies},
        weight_bytes_read=weight_bytes,
        read_bandwidth_bytes_per_s=bandwidth,
        floor_ms_per_token=floor_ms(weight_bytes, bandwidth),
        environment=environment,
        command=list(command),
    )


def failures(record: GenerationRecord, named: bool) -> list[str]:
    """The one-line reasons of all that failed, and of what is unavailable if it was asked for by name."""
    bad = ("failed", "unavailable") if named else ("failed",)
    return [one["reason"] or name for name, one in record["strategies"].items() if one["status"] in bad]


def require_some_success(record: GenerationRecord) -> None:
    """Refuse to go on with nothing.

    Raises:
        LaunchgapError: no strategy was measured.
    """
    if all(one["status"] != "ok" for one in record["strategies"].values()):
        raise LaunchgapError("nothing could be measured: " + "; ".join(failures(record, named=True)))


def _measure_here(case: ReadyCase, settings: GenerationSettings, plan: Plan) -> _AllSeries:
    """Measure what runs in this process, interleaved."""
    # `generate` says what the tokens ought to be, so it answers the first prompt even where it is not timed.
    names = dict.fromkeys((GenerationStrategy.GENERATE, *settings.strategies))
    series = {name: Series(interleaved=True) for name in names if name not in PEERS}
    reference = series[GenerationStrategy.GENERATE]
    _wake(case, plan, moves_weights=GenerationStrategy.GRAPH_FUSED in names)
    try:
        for name, one in tqdm(series.items(), desc="preparing", unit="row", delay=2, disable=None):
            with failure_recorded(name, one):
                _start(name, one, case, plan)
                if one is not reference and reference.first:
                    _compare(one, plan.first, reference.first)
        _time_all({name: one for name, one in series.items() if name in settings.strategies}, settings, plan)
    finally:
        for one in series.values():
            one.close()
    return series


@torch.no_grad()
def _wake(case: ReadyCase, plan: Plan, *, moves_weights: bool) -> None:
    """Run the model once: what a process pays for its first kernels is no row's cost."""
    with suppress(RuntimeError):  # a model that cannot run fails in every row, which then says why
        case.loaded.model(plan.first.prompt.to(case.backend.device))
        if moves_weights:  # before the first capture: a row that is captured again is not timed like one
            lay_side_by_side(case.loaded.model)
        case.backend.synchronize()


def _start(name: GenerationStrategy, one: Series, case: ReadyCase, plan: Plan) -> None:
    """Build a row, and let it answer what is not timed."""
    start_s = time.perf_counter()
    one.row = make_row(name, case.loaded.model, case.fields["max_length"])
    first = _answered(one.row, plan.first)
    one.first_request_s = time.perf_counter() - start_s
    # Before the others, since a shorter one may need pieces of its own.
    one.first, one.capture_s, one.compile_s = first, one.row.capture_s, one.row.compile_s
    for request in plan.warm_up[1:]:
        _answered(one.row, request)
    one.notes = one.row.notes


def _answered(row: Row, request: Request) -> list[int]:
    tokens = row.tokens(request.prompt, request.new_tokens)
    require_count(tokens, request.new_tokens)
    return tokens


def _compare(one: Series, request: Request, reference: Sequence[int]) -> None:
    one.agreement = token_agreement(one.first, reference)
    if not one.agreement["identical"] and one.row is not None:
        found = one.row.compare(request.prompt, request.new_tokens)
        one.agreement = token_agreement(one.first, reference, found)


def _time_all(series: _AllSeries, settings: GenerationSettings, plan: Plan) -> None:
    shuffler = random.Random(settings.seed)
    # Objects that live for good must not be walked again by collections inside the timed region.
    gc.collect()
    gc.freeze()
    try:
        for requests in tqdm(plan.rounds, desc="generating", unit="round", delay=2, disable=None):
            turns = [(name, request) for name in series for request in requests]
            shuffler.shuffle(turns)
            for name, request in turns:
                with failure_recorded(name, series[name]):
                    _time(series[name], request)
    finally:
        gc.unfreeze()


def _time(one: Series, request: Request) -> None:
    if one.row is None:
        return
    start_s = time.perf_counter()
    _answered(one.row, request)
    wall_ms = (time.perf_counter() - start_s) * 1e3
    one.samples_ms.setdefault(request.new_tokens, []).append(wall_ms)


def _measure_peers(
    case: ReadyCase, settings: GenerationSettings, plan: Plan, reference: list[int]
) -> _AllSeries:
    """Measure the peers that were asked for and can run here, on a copy of the model's weights."""
    series = {name: Series(interleaved=False) for name in settings.strategies if name in PEERS}
    for name, one in series.items():
        one.unavailable = why_unavailable(name, simulated=case.backend.simulated)
    ready = {name: one for name, one in series.items() if one.unavailable is None}
    with tempfile.TemporaryDirectory(prefix="launchgap-model-") as folder:
        for name, one in ready.items():
            logger.info("%s starts in a process of its own, which may take minutes", name)
            with failure_recorded(name, one):
                # Once for each peer: what one of them might do to the folder is not the next one's business.
                case.loaded.model.save_pretrained(folder)
                _take(one, run_peer(name, _job(case, plan, folder)), plan, reference)
    return series


def _job(case: ReadyCase, plan: Plan, folder: str) -> PeerJob:
    requests = [*plan.warm_up, *(request for requests in plan.rounds for request in requests)]
    return PeerJob(
        folder=folder,
        dtype=case.fields["dtype"],
        max_length=case.fields["max_length"],
        memory_fraction=_memory_fraction(case.backend.device),
        requests=[(request.prompt[0].tolist(), request.new_tokens) for request in requests],
    )


def _memory_fraction(device: torch.device) -> float:
    """Part of the GPU's whole memory that a peer may reserve beside this process, which keeps the model."""
    if device.type != "cuda":
        return _PEER_MEMORY_SHARE
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return _PEER_MEMORY_SHARE * free_bytes / total_bytes


def _take(one: Series, answer: PeerAnswer, plan: Plan, reference: Sequence[int]) -> None:
    one.first_request_s = answer.start_s + answer.wall_ms[0] / 1e3
    timed = [request for requests in plan.rounds for request in requests]
    for request, wall_ms in zip(timed, answer.wall_ms[len(plan.warm_up) :], strict=True):
        one.samples_ms.setdefault(request.new_tokens, []).append(wall_ms)
    if reference:
        one.agreement = token_agreement(answer.tokens, reference)
