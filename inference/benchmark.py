"""Latency of one forward pass, strategies interleaved round by round in one process.

Each round draws one fresh random prompt, shuffles the strategies and runs each once, so that drift of clocks,
caches and the host hits all alike and samples of a round form pairs. Eager runs twice a round: the second
series, eager against eager, shows how large a difference is noise. Every raw sample is kept. Other ways to
spend less on launches (`inference.peers`) take part in the same rounds.
"""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

from contract import CorrectnessFields, LaunchgapError, Strategy, StrategyFields
from inference import correctness
from inference.backends import Backend
from inference.case import ReadyCase
from inference.loading import float32_copy
from inference.peers import compilers_reset
from inference.prepare import prepare_case
from inference.request import RequestTimes, random_prompt, run_request
from inference.side_by_side import lay_side_by_side
from inference.strategies import ForwardStrategy

logger = logging.getLogger(__name__)

AA = "eager_again"
"""Label of the second eager series."""

MIN_WARM_UP_ROUNDS = 3

_COMPILED = frozenset({Strategy.GRAPH_FUSED, Strategy.COMPILED_DEFAULT, Strategy.COMPILED})


@dataclass(frozen=True)
class BenchmarkSettings:
    """How to measure. Times in seconds; `correctness_inputs` fresh prompts are compared."""

    strategies: Sequence[Strategy]
    runs: int = 100
    warmup_s: float = 2.0
    seed: int = 0
    correctness_inputs: int = 5


@dataclass
class _Series:
    """One strategy while it is measured."""

    strategy: ForwardStrategy | None = None
    times: list[RequestTimes] = field(default_factory=list)
    error: str | None = None
    correctness: CorrectnessFields | None = None


def measure(case: ReadyCase, settings: BenchmarkSettings) -> tuple[dict[str, StrategyFields], list[float]]:
    """Prepare, check, warm up and time every strategy.

    A strategy that cannot be compiled or captured, or runs out of GPU memory, is recorded as failed; the
    others go on.

    Returns:
        The outcome of each strategy by name, and the A/A series of eager in milliseconds.
    """
    with nullcontext() if _COMPILED.isdisjoint(settings.strategies) else compilers_reset():
        return _measure(case, settings)


def _measure(case: ReadyCase, settings: BenchmarkSettings) -> tuple[dict[str, StrategyFields], list[float]]:
    loaded, backend = case.loaded, case.backend
    generator = torch.Generator().manual_seed(settings.seed)

    def prompt() -> torch.Tensor:
        return random_prompt(case.fields["prompt_length"], loaded.fields["vocab_size"], generator)

    if Strategy.GRAPH_FUSED in settings.strategies:
        # It moves weights: before any graph is captured that would go on reading them where they were. A
        # model that cannot run fails in every strategy, which then says why.
        with suppress(LaunchgapError, RuntimeError):
            lay_side_by_side(loaded.model)
    series = _prepare_all(case, settings.strategies)
    _check_all(case, series, [prompt() for _ in range(settings.correctness_inputs)])
    if series[Strategy.EAGER].strategy is not None:
        series[AA] = _Series(prepare_case(case, Strategy.EAGER))
    _warm_up(series, settings.warmup_s, prompt, backend)
    _time_all(series, settings, prompt, backend)
    again = series.pop(AA, _Series())
    results = {name: _fields(one) for name, one in series.items() if name in settings.strategies}
    for one in series.values():
        _close(one)
    return results, [t.event_ms for t in again.times]


def _prepare_all(case: ReadyCase, strategies: Sequence[Strategy]) -> dict[str, _Series]:
    series = {}
    # Eager is the reference of every check, so it is prepared even when it is not reported.
    for name in dict.fromkeys((Strategy.EAGER, *strategies)):
        series[str(name)] = one = _Series()
        with _failure_recorded(str(name), one):
            one.strategy = prepare_case(case, name)
    return series


def _check_all(case: ReadyCase, series: dict[str, _Series], prompts: list[torch.Tensor]) -> None:
    eager, backend = series[Strategy.EAGER], case.backend
    reference = None
    with _failure_recorded(Strategy.EAGER, eager):
        assert eager.strategy is not None
        answers = correctness.outputs(eager.strategy, prompts, backend)
        reference = correctness.Reference(prompts, answers, _fp32_answers(case, answers, prompts))
    for name, one in series.items():
        if name != Strategy.EAGER and one.strategy is not None and reference is not None:
            with _failure_recorded(name, one):
                one.correctness = correctness.compare(one.strategy, reference, backend)


def _fp32_answers(
    case: ReadyCase, eager: list[torch.Tensor], prompts: list[torch.Tensor]
) -> list[torch.Tensor] | None:
    """What the same weights say in fp32, for half precision only; None where memory does not suffice."""
    if eager[0].dtype is torch.float32:
        return None
    try:
        copy = prepare_case(case, Strategy.EAGER, float32_copy(case.loaded.model))
        return correctness.outputs(copy, prompts, case.backend)
    except torch.cuda.OutOfMemoryError:
        logger.warning("no GPU memory for an fp32 reference: half precision is judged by bitwise equality")
        return None


def _warm_up(
    series: dict[str, _Series], warmup_s: float, prompt: Callable[[], torch.Tensor], backend: Backend
) -> None:
    """By time, since GPU clocks idle low; at least a few rounds however slow one is."""
    end_s = time.perf_counter() + warmup_s
    rounds = 0
    while rounds < MIN_WARM_UP_ROUNDS or time.perf_counter() < end_s:
        _one_round(series, list(series), prompt(), backend, keep=False)
        rounds += 1


def _time_all(
    series: dict[str, _Series],
    settings: BenchmarkSettings,
    prompt: Callable[[], torch.Tensor],
    backend: Backend,
) -> None:
    order = list(series)
    shuffler = random.Random(settings.seed)
    # Objects that live for good must not be walked again by collections inside the timed region.
    gc.collect()
    gc.freeze()
    try:
        for _ in tqdm(range(settings.runs), desc="measuring", unit="round", delay=2, disable=None):
            shuffler.shuffle(order)
            _one_round(series, order, prompt(), backend, keep=True)
    finally:
        gc.unfreeze()


def _one_round(
    series: dict[str, _Series], order: Sequence[str], prompt: torch.Tensor, backend: Backend, *, keep: bool
) -> None:
    for name in order:
        one = series[name]
        if one.strategy is None:
            continue
        with _failure_recorded(name, one):
            times = run_request(one.strategy, prompt, backend)
            if keep:
                one.times.append(times)


@contextmanager
def _failure_recorded(name: str, one: _Series) -> Iterator[None]:
    """A strategy that fails is closed and remembers why; its samples are dropped, the others go on."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        one.error = f"{name}: out of GPU memory; use a smaller model, dtype or --max-length"
    except LaunchgapError as error:
        one.error = f"{name}: {' '.join(str(error).split())}"
    if one.error is not None:
        logger.warning("%s", one.error)
        _close(one)
        one.times.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _close(one: _Series) -> None:
    if one.strategy is not None:
        one.strategy.close()
    one.strategy = None if one.error else one.strategy


def _fields(one: _Series) -> StrategyFields:
    strategy = one.strategy
    fields = StrategyFields(
        status="ok" if one.error is None else "failed",
        error=one.error,
        event_ms=[t.event_ms for t in one.times],
        wall_ms=[t.wall_ms for t in one.times],
        capture_s=strategy.capture_s if strategy else None,
        graph_pool_bytes=strategy.pool_bytes if strategy else None,
        attention_mask=strategy.attention_mask if strategy else None,
        correctness=one.correctness,
    )
    if strategy is not None:
        fields |= {"logits": strategy.logits, "compile_s": strategy.compile_s}
    return fields


def failures(results: dict[str, StrategyFields]) -> list[str]:
    """The one-line reasons of all failed strategies."""
    return [fields["error"] for fields in results.values() if fields["error"] is not None]


def require_some_success(results: dict[str, StrategyFields]) -> None:
    """Refuse to go on with nothing.

    Raises:
        LaunchgapError: every strategy failed.
    """
    if all(fields["status"] == "failed" for fields in results.values()):
        raise LaunchgapError("every strategy failed: " + "; ".join(failures(results)))
