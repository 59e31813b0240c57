"""A model made ready to generate: through graphs where it can be captured, eagerly where not."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from transformers import PreTrainedModel

from contract import CaptureError
from inference.backends import make_backend
from inference.calling import ModelCall
from inference.decode_graphs import DecodeGraphs, GraphRecord, Plan
from inference.fallback import eager_tokens
from inference.generation_request import GenerationRequest, usable_buckets
from inference.guards import ModelGuard, refuse_autocast, refuse_training
from inference.sampling import Greedy, Sampling
from inference.side_by_side import lay_side_by_side

logger = logging.getLogger(__name__)


class Generation:
    """A model as it is now, its cache and its graphs.

    Attributes:
        call: the model.
        guard: tells when it has changed.
        buckets: lengths of prompts and caches, ascending.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        max_length: int | None,
        buckets: Sequence[int] | None,
        unroll: int,
        *,
        strict: bool,
        fused: bool = False,
    ) -> None:
        """Allocate the cache and try the model on it.

        Raises:
            LaunchgapError: a model or sizes that cannot be used; with `strict`, CaptureError for a model
                that would be left eager.
        """
        self.call = ModelCall(model, "last")
        refuse_training(model.modules())
        refuse_autocast(self.call.device)
        self.buckets = usable_buckets(max_length, buckets, unroll, self.call.positions)
        if fused:
            lay_side_by_side(model)
        self.guard = ModelGuard(model)
        self._strict = strict
        self._refusal: str | None = None
        self._graphs = self._opened(unroll, fused=fused)

    @property
    def ledger(self) -> tuple[GraphRecord, ...]:
        """What has been captured so far, in that order."""
        return self._graphs.ledger if self._graphs else ()

    @property
    def refusals(self) -> dict[str, str]:
        """Why the model, or a piece by its name in the ledger, is left eager."""
        model = {} if self._refusal is None else {"model": self._refusal}
        return model | (self._graphs.refusals if self._graphs else {})

    def capture_all(self, sampling: Greedy | Sampling) -> None:
        """Capture every piece that any request with this choice of tokens may need.

        Raises:
            CaptureError: with `strict`, one cannot be captured.
        """
        if self._graphs is not None:
            self._graphs.capture_all(sampling)
        if self._strict and self.refusals:
            raise CaptureError(next(iter(self.refusals.values())))
        self._require_fused()

    def plan(self, request: GenerationRequest) -> Plan | None:
        """What the request replays, captured if need be; None if it is to be served eagerly.

        Raises:
            CaptureError: with `strict`, in place of None.
        """
        if self._graphs is None:
            return None
        try:
            plan = self._graphs.plan(request)
        except CaptureError as error:
            if self._strict:
                raise
            logger.warning("served eagerly: %s", error)
            return None
        self._require_fused()
        return plan

    def tokens(self, request: GenerationRequest, plan: Plan | None, chunk: int) -> Iterator[int]:
        """The new tokens, up to one that ends the sequence, read `chunk` at a time."""
        if self._graphs is None or plan is None:
            tokens = eager_tokens(self.call, request.prompt, request.new_tokens, request.sampling)
        else:
            chunks = self._graphs.launch(plan, request, chunk)
            tokens = chain.from_iterable(self._graphs.reader.read(chunks))
        for token in tokens:
            yield token
            if token in request.ends:
                return

    def host_view(self, request: GenerationRequest, count: int) -> torch.Tensor | None:
        """The first `count` new tokens where the last request left them, (1, count); None without graphs."""
        start = int(request.prompt.size)
        return self._graphs.reader.host[None, start : start + count] if self._graphs else None

    def logits_at(
        self, request: GenerationRequest, plan: Plan | None, tokens: Sequence[int], index: int
    ) -> torch.Tensor:
        """Logits, (1, vocabulary), from which token `index` of a greedy request's tokens was chosen."""
        if self._graphs is None or plan is None:
            sequence = np.concatenate((request.prompt, np.array(tokens[:index], dtype=np.int64)))
            return self.call.eager(torch.from_numpy(sequence)[None].to(self.call.device))[:, -1]
        return self._graphs.logits_at(plan, request, index)

    def close(self) -> None:
        """Free graphs, cache and pool. May be called twice."""
        if self._graphs is not None:
            self._graphs.close()

    def _require_fused(self) -> None:
        """With `strict`, refuse a piece that is plain where it was to be compiled."""
        plain = next((record.not_fused for record in self.ledger if record.not_fused), None)
        if self._strict and plain is not None:
            raise CaptureError(plain)

    def _opened(self, unroll: int, *, fused: bool) -> DecodeGraphs | None:
        try:
            return DecodeGraphs(self.call, self.buckets, unroll, make_backend(self.call.device), fused=fused)
        except (CaptureError, torch.cuda.OutOfMemoryError) as error:
            why = error if isinstance(error, CaptureError) else "out of GPU memory; use a lower max_length"
            self._refusal = " ".join(str(why).split())
            if self._strict:
                raise CaptureError(self._refusal) from error
            logger.warning("served eagerly: %s", self._refusal)
            return None
