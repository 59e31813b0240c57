"""From a strategy's name to the strategy, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from transformers import PreTrainedModel

from contract import STEP_STRATEGIES, LaunchgapError, Phase, Strategy
from inference.backends import Backend
from inference.case import ReadyCase
from inference.decode_step import DecodeStep
from inference.peers import Compiled, GraphedCallable, fresh_compiler, refuse_simulation
from inference.runner_strategies import RunnerForward, bucketed_lengths
from inference.strategies import EagerForward, ForwardStrategy, GraphForward, UnmaskedForward

_NEEDS_CUDA = frozenset({Strategy.COMPILED_DEFAULT, Strategy.COMPILED, Strategy.GRAPHED_CALLABLE})


@dataclass(frozen=True)
class _Wanted:
    """What a strategy is built for. Lengths in tokens: the prompt's, and the longest one to be ready for."""

    model: PreTrainedModel
    backend: Backend
    prompt_length: int
    max_length: int


_BUILD: dict[Strategy, Callable[[_Wanted], ForwardStrategy]] = {
    Strategy.EAGER: lambda w: EagerForward(w.model, w.backend),
    Strategy.GRAPH: lambda w: GraphForward(w.model, w.prompt_length, w.backend, padded=False),
    Strategy.GRAPH_PADDED: lambda w: GraphForward(w.model, w.max_length, w.backend, padded=True),
    Strategy.EAGER_UNMASKED: lambda w: UnmaskedForward(w.model, w.prompt_length, w.backend, logits="all"),
    Strategy.EAGER_LAST: lambda w: UnmaskedForward(w.model, w.prompt_length, w.backend, logits="last"),
    Strategy.GRAPH_LAST: lambda w: RunnerForward(w.model, (w.prompt_length,)),
    Strategy.GRAPH_BUCKETED: lambda w: RunnerForward(w.model, bucketed_lengths(w.max_length)),
    Strategy.GRAPH_FUSED: lambda w: RunnerForward(w.model, (w.prompt_length,), fused=True),
    Strategy.COMPILED_DEFAULT: lambda w: Compiled(w.model, w.prompt_length, w.backend, "default"),
    Strategy.COMPILED: lambda w: Compiled(w.model, w.prompt_length, w.backend, "reduce-overhead"),
    Strategy.GRAPHED_CALLABLE: lambda w: GraphedCallable(w.model, w.prompt_length, w.backend),
}


_BUILD_STEP: dict[Strategy, Callable[[_Wanted], ForwardStrategy]] = {
    Strategy.EAGER: lambda w: _step(w, graph=False),
    Strategy.GRAPH: lambda w: _step(w, graph=True),
    Strategy.GRAPH_FUSED: lambda w: _step(w, graph=True, fused=True),
}


def prepare(
    strategy: Strategy,
    model: PreTrainedModel,
    backend: Backend,
    *,
    prompt_length: int,
    max_length: int,
    phase: Phase = Phase.PREFILL,
) -> ForwardStrategy:
    """Build a strategy for prompts of `prompt_length` tokens, compiling and capturing where it does so.

    In the phase `decode` for a step on that token, over a cache of `max_length` slots.

    Raises:
        CaptureError: an operation that a graph cannot hold.
        LaunchgapError: a strategy that this model or this device cannot have.
        torch.cuda.OutOfMemoryError: no memory for the capture.
    """
    if strategy in _NEEDS_CUDA:
        refuse_simulation(backend)
    build = (_BUILD_STEP if phase is Phase.DECODE else _BUILD).get(strategy)
    if build is None:
        raise LaunchgapError(f"{strategy}: no way to run a decode step; use {', '.join(STEP_STRATEGIES)}")
    return build(_Wanted(model, backend, prompt_length, max_length))


def prepare_case(
    case: ReadyCase, strategy: Strategy, model: PreTrainedModel | None = None
) -> ForwardStrategy:
    """The strategy of a case, for its own model or for another in its place; raises what `prepare` does."""
    return prepare(
        strategy,
        case.loaded.model if model is None else model,
        case.backend,
        prompt_length=case.fields["prompt_length"],
        max_length=case.fields["max_length"],
        phase=case.phase,
    )


def _step(wanted: _Wanted, *, graph: bool, fused: bool = False) -> ForwardStrategy:
    with fresh_compiler() if fused else nullcontext():
        return DecodeStep(
            wanted.model,
            wanted.prompt_length,
            wanted.max_length,
            wanted.backend,
            graph=graph,
            fused=fused,
        )
