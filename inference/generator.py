"""`GraphedGenerator`: a causal LM generating tokens through CUDA graphs, one launch a token or fewer.

    with GraphedGenerator(model, max_length=512) as generator:
        tokens = generator.generate(input_ids, max_new_tokens=64, eos_token_id=tokenizer.eos_token_id)
        for token in generator.stream(input_ids, max_new_tokens=64, sampling=Sampling(top_p=0.9, seed=1)):
            ...

Built once; what a request needs is captured when it is first needed, or up front by `capture`. The prompt,
the cache and the attention over it are sized to the request by a ladder of buckets. `inference.decode` says
what is captured, `inference.guards` what is checked on every request.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Collection, Generator, Iterator, Sequence
from types import TracebackType
from typing import Literal

import torch
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference.agreement import Agreement, compare
from inference.decode_graphs import GraphRecord
from inference.exclusive import Exclusive
from inference.generation import Generation
from inference.generation_request import GenerationRequest, check_request, whole_number
from inference.guards import refuse_autocast
from inference.sampling import Greedy, Sampling

logger = logging.getLogger(__name__)

_CHUNK = 8
"""Tokens read at a time where an end of sequence is looked for; the device runs on for two chunks at most."""


class GraphedGenerator(Exclusive):
    """Tokens for one prompt at a time, batch 1, from a model in inference mode.

    A model that a graph cannot hold is run eagerly, by the same rules; `refusals` says why. Not for several
    threads: a call while another is running, or while a stream is half read, is refused at once.

    Attributes:
        recaptures: how often the model had changed and was captured again.
    """

    _BUSY = (
        "this generator is in the middle of another request; let it end or close its stream, "
        "or make one GraphedGenerator for each thread"
    )
    _CLOSED = "this generator was closed; make a new GraphedGenerator"

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_length: int | None = None,
        buckets: Sequence[int] | None = None,
        unroll: int = 1,
        copy: bool = True,
        strict: bool = False,
        on_change: Literal["recapture", "raise"] = "recapture",
        fused: bool = False,
    ) -> None:
        """Allocate the cache and try the model on it; nothing is captured yet.

        Args:
            model: a causal LM of transformers, in eval mode, on one device.
            max_length: most tokens of a prompt and its continuation together, the size of the cache; None for
                1024, or the model's positions if those are fewer.
            buckets: lengths that prompts are padded to and caches are cut to, up to `max_length`, which is
                always one; None for `DEFAULT_BUCKETS`.
            unroll: steps in one graph, as far as a request has so many left: fewer launches, and up to that
                many tokens computed for nothing behind an end of sequence.
            copy: False lets `generate` return a view of the one host buffer, valid until the next request.
            strict: raise where a model or a piece would be left eager.
            on_change: what to do when weights, dtype, device or attention implementation have changed.
            fused: capture prompts and steps as Inductor compiles them, and as they are where it cannot; tens
                of seconds for each piece. Moves weights: see `GraphedForward`.

        Raises:
            LaunchgapError: a model or sizes that cannot be used; with `strict`, CaptureError.
        """
        if on_change not in ("recapture", "raise"):
            raise LaunchgapError(f"on_change {on_change!r}: unknown; use recapture or raise")
        self.recaptures = 0
        self._model, self._max_length, self._buckets, self._unroll = model, max_length, buckets, unroll
        self._copy, self._strict, self._on_change, self._fused = copy, strict, on_change, fused
        super().__init__()
        self._open_stream: weakref.ref[Generator[int, None, None]] | None = None
        self._built: Generation | None = None
        self._build()

    @property
    def ledger(self) -> tuple[GraphRecord, ...]:
        """What has been captured so far, in that order."""
        return self._built.ledger if self._built else ()

    @property
    def refusals(self) -> dict[str, str]:
        """Why the model, or a piece by its name in the ledger, is left eager. Empty if nothing is."""
        return self._built.refusals if self._built else {}

    def capture(self, sampling: Greedy | Sampling | None = None) -> None:
        """Capture every bucket now, for greedy choice or for sampling of any settings.

        Raises:
            LaunchgapError: as `generate`.
        """
        with self._alone():
            self._current().capture_all(sampling or Greedy())

    def generate(
        self,
        input_ids: torch.Tensor,
        max_new_tokens: int,
        *,
        attention_mask: torch.Tensor | None = None,
        sampling: Greedy | Sampling | None = None,
        eos_token_id: int | Collection[int] | None = None,
    ) -> torch.Tensor:
        """New tokens after a prompt, shape (1, m), int64, on the host.

        Args:
            input_ids: token ids, shape (1, n) or (n,). On the host they cost no wait.
            max_new_tokens: m, unless the sequence ends before.
            attention_mask: ones and zeros of the same shape; padding at either end is left out.
            sampling: how tokens are chosen; None for `Greedy()`.
            eos_token_id: token or tokens that end the sequence, of which the first is the last one returned;
                None to go on to `max_new_tokens`. A model's own settings are not looked up.

        Raises:
            LaunchgapError: ids that cannot be used, more tokens than the cache holds, a model in training
                mode or, with `on_change="raise"`, changed; a call beside another; a closed generator.
        """
        with self._alone():
            built = self._current()
            request = self._checked(built, input_ids, attention_mask, max_new_tokens, sampling, eos_token_id)
            plan = built.plan(request)
            tokens = list(built.tokens(request, plan, _CHUNK if request.ends else request.new_tokens))
            view = None if plan is None or self._copy else built.host_view(request, len(tokens))
            return torch.tensor([tokens], dtype=torch.int64) if view is None else view

    def stream(
        self,
        input_ids: torch.Tensor,
        max_new_tokens: int,
        *,
        attention_mask: torch.Tensor | None = None,
        sampling: Greedy | Sampling | None = None,
        eos_token_id: int | Collection[int] | None = None,
        chunk: int = 1,
    ) -> Iterator[int]:
        """The tokens of `generate`, each as soon as it can be read; the next ones are under way by then.

        The generator serves nobody else until the iterator is exhausted, closed or forgotten.

        Args:
            input_ids: see `generate`, as the others.
            max_new_tokens: most tokens.
            attention_mask: what of the ids is padding.
            sampling: how tokens are chosen.
            eos_token_id: what ends the sequence.
            chunk: tokens read at a time: 1 for the lowest delay, more for the highest rate.

        Raises:
            LaunchgapError: see `generate`; what concerns the request is raised at once.
        """
        whole_number("chunk", chunk)
        with self._alone():
            built = self._current()
            request = self._checked(built, input_ids, attention_mask, max_new_tokens, sampling, eos_token_id)
        stream = self._streamed(built, request, chunk)
        self._open_stream = weakref.ref(stream)
        return stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a stream that is half read, which would hide what ended the block, then close."""
        stream = self._open_stream() if self._open_stream else None
        if stream is not None and inspect.getgeneratorstate(stream) == inspect.GEN_SUSPENDED:
            stream.close()
        super().__exit__(kind, error, trace)

    def compare_with_generate(self, input_ids: torch.Tensor, max_new_tokens: int) -> Agreement:
        """Compare greedy tokens with those of `model.generate`.

        Raises:
            LaunchgapError: see `generate`.
        """
        with self._alone():
            built = self._current()
            request = self._checked(built, input_ids, None, max_new_tokens, None, None)
            plan = built.plan(request)
            tokens = list(built.tokens(request, plan, request.new_tokens))
            return compare(
                built.call, request, tokens, lambda index: built.logits_at(request, plan, tokens, index)
            )

    def _streamed(
        self, built: Generation, request: GenerationRequest, chunk: int
    ) -> Generator[int, None, None]:
        with self._alone():
            if self._current() is not built:
                raise LaunchgapError("the model has changed since stream() was called; call it again")
            yield from built.tokens(request, built.plan(request), chunk)

    def _checked(
        self,
        built: Generation,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        new_tokens: int,
        sampling: Greedy | Sampling | None,
        ends: int | Collection[int] | None,
    ) -> GenerationRequest:
        return check_request(
            input_ids,
            attention_mask,
            new_tokens,
            sampling,
            ends,
            vocabulary=built.call.vocabulary,
            slots=built.buckets[-1],
        )

    def _current(self) -> Generation:
        """What was built, built again if the model has changed since."""
        built = self._built
        if built is None:
            return self._build()
        refuse_autocast(built.call.device)
        change = built.guard.changed()
        if change is None:
            return built
        if self._on_change == "raise":
            raise LaunchgapError(
                f"the model has changed since it was captured ({change}); make a new GraphedGenerator, "
                'or use on_change="recapture"'
            )
        logger.warning("the model has changed (%s) and is captured again", change)
        self.recaptures += 1
        del built  # it keeps the old weights
        return self._build()

    def _build(self) -> Generation:
        self._drop()
        self._built = Generation(
            self._model,
            self._max_length,
            self._buckets,
            self._unroll,
            strict=self._strict,
            fused=self._fused,
        )
        return self._built

    def _drop(self) -> None:
        built, self._built = self._built, None
        if built is not None:
            built.close()
