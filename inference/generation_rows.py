"""What the generation benchmark runs in its own process: transformers' `generate` and launchgap's graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from contract import GenerationStrategy, LaunchgapError, TokenAgreementFields
from inference.agreement import Agreement, greedily
from inference.generator import GraphedGenerator


class Row(Protocol):
    """One way to generate greedily."""

    @property
    def capture_s(self) -> float | None:
        """Seconds that launchgap captured for so far; None where it captures nothing."""

    @property
    def compile_s(self) -> float | None:
        """Seconds that launchgap had compiled for so far; None where nothing is compiled for it."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""

    def tokens(self, prompt: torch.Tensor, count: int) -> list[int]:
        """`count` new tokens after a prompt of shape (1, n), which is on the host as they are."""

    def compare(self, prompt: torch.Tensor, count: int) -> Agreement | None:
        """Tokens and logits against those of `generate`, None where the logits cannot be had."""

    def close(self) -> None:
        """Free what it holds beside the model."""


def make_row(strategy: GenerationStrategy, model: PreTrainedModel, cache_length: int) -> Row:
    """Build a row that runs in this process.

    Raises:
        LaunchgapError: a model that graphs cannot hold.
    """
    if strategy in (GenerationStrategy.GRAPH, GenerationStrategy.GRAPH_FUSED):
        return _GraphRow(model, cache_length, fused=strategy == GenerationStrategy.GRAPH_FUSED)
    return _TransformersRow(model, static=strategy == GenerationStrategy.GENERATE_STATIC)


class _TransformersRow:
    """`generate` with its dynamic cache, or with a static one, which it compiles for by itself on a GPU."""

    capture_s: float | None = None
    compile_s: float | None = None

    def __init__(self, model: PreTrainedModel, *, static: bool) -> None:
        self.notes: list[str] = []
        self._model, self._cache = model, "static" if static else None

    def tokens(self, prompt: torch.Tensor, count: int) -> list[int]:
        """See `Row.tokens`."""
        ids = prompt.to(self._model.device)
        generate: Any = self._model.generate
        found = greedily(generate, ids, count, cache_implementation=self._cache)
        tokens: list[int] = found[0, prompt.shape[-1] :].tolist()
        return tokens

    def compare(self, prompt: torch.Tensor, count: int) -> Agreement | None:  # noqa: ARG002 - the protocol's
        """See `Row.compare`."""
        return None

    def close(self) -> None:
        """See `Row.close`; the compiled call stays with the model."""


class _GraphRow:
    """`GraphedGenerator` as it comes; what it would leave eager is a failure here."""

    def __init__(self, model: PreTrainedModel, cache_length: int, *, fused: bool) -> None:
        self._generator = GraphedGenerator(model, max_length=cache_length, strict=True, fused=fused)

    @property
    def capture_s(self) -> float | None:
        """Seconds of warm-up and capture of all pieces so far."""
        return sum(piece.capture_s for piece in self._generator.ledger)

    @property
    def compile_s(self) -> float | None:
        """Seconds of compilation of all pieces so far; None if none was compiled."""
        found = [piece.compile_s for piece in self._generator.ledger if piece.compile_s is not None]
        return sum(found) if found else None

    @property
    def notes(self) -> list[str]:
        """Which pieces are plain that were to be compiled, and why."""
        return [
            f"{piece.name} is not fused: {piece.not_fused}"
            for piece in self._generator.ledger
            if piece.not_fused
        ]

    def tokens(self, prompt: torch.Tensor, count: int) -> list[int]:
        """See `Row.tokens`."""
        tokens: list[int] = self._generator.generate(prompt, count)[0].tolist()
        return tokens

    def compare(self, prompt: torch.Tensor, count: int) -> Agreement | None:
        """See `Row.compare`."""
        return self._generator.compare_with_generate(prompt, count)

    def close(self) -> None:
        """See `Row.close`."""
        self._generator.close()


def require_count(tokens: Sequence[int], count: int) -> None:
    """Refuse a row that stopped early, whose time would not be comparable.

    Raises:
        LaunchgapError: too few tokens, or too many.
    """
    if len(tokens) != count:
        raise LaunchgapError(f"gave {len(tokens)} tokens where {count} were asked for, so it is not compared")


def token_agreement(
    tokens: Sequence[int], reference: Sequence[int], found: Agreement | None = None
) -> TokenAgreementFields:
    """Tokens against those of `generate`, or what a closer look with logits found of the two."""
    pairs = zip(tokens, reference, strict=True)
    index = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if found is not None and found.first_divergence is not None:
        index = found.first_divergence
    return TokenAgreementFields(
        identical=index is None,
        first_divergence=index,
        logits=_listed(found.logits if found else None),
        reference_logits=_listed(found.reference_logits if found else None),
    )


def _listed(pair: tuple[float, float] | None) -> list[float] | None:
    return None if pair is None else list(pair)
