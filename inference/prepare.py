"""From a strategy's name to the strategy, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transformers import PreTrainedModel

from contract import Strategy
from inference.backends import Backend
from inference.peers import Compiled, GraphedCallable, refuse_simulation
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


def prepare(
    strategy: Strategy, model: PreTrainedModel, backend: Backend, *, prompt_length: int, max_length: int
) -> ForwardStrategy:
    """Build a strategy for prompts of `prompt_length` tokens, compiling and capturing where it does so.

    Raises:
        CaptureError: an operation that a graph cannot hold.
        LaunchgapError: a strategy that this model or this device cannot have.
        torch.cuda.OutOfMemoryError: no memory for the capture.
    """
    if strategy in _NEEDS_CUDA:
        refuse_simulation(backend)
    return _BUILD[strategy](_Wanted(model, backend, prompt_length, max_length))
