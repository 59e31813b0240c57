"""One row of the generation benchmark while it is measured, and what is recorded of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from contract import GenerationFields, GenerationStrategy, LaunchgapError, TokenAgreementFields
from inference.generation_case import GenerationSettings
from inference.generation_rows import Row

logger = logging.getLogger(__name__)


@dataclass
class Series:
    """One row while it is measured.

    Attributes:
        row: what generates; None for a peer, and for what has failed or was closed.
        first: tokens of the first request, empty until it was answered.
        samples_ms: milliseconds of each timed request, by its number of new tokens.
        failed: why it failed.
        unavailable: why it was not tried.
    """

    interleaved: bool
    row: Row | None = None
    first: list[int] = field(default_factory=list)
    first_request_s: float | None = None
    capture_s: float | None = None
    compile_s: float | None = None
    notes: list[str] = field(default_factory=list)
    samples_ms: dict[int, list[float]] = field(default_factory=dict)
    agreement: TokenAgreementFields | None = None
    failed: str | None = None
    unavailable: str | None = None

    def close(self) -> None:
        """Free what the row holds. May be called twice."""
        row, self.row = self.row, None
        if row is not None:
            row.close()


@contextmanager
def failure_recorded(name: GenerationStrategy, one: Series) -> Iterator[None]:
    """A row that fails is closed and remembers why; its samples are dropped, the others go on."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        one.failed = f"{name}: out of GPU memory; use a smaller model or dtype, or fewer tokens"
    except LaunchgapError as error:
        one.failed = f"{name}: {error}"
    except Exception as error:  # a compiler's or an engine's own, of any kind, must not take the others along
        said = (str(error).strip().splitlines() or ["no reason given"])[0]
        one.failed = f"{name}: {type(error).__name__}: {said}"
        logger.debug("%s failed", name, exc_info=True)
    if one.failed is not None:
        logger.warning("%s", one.failed)
        one.close()
        one.samples_ms.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def as_fields(one: Series, settings: GenerationSettings) -> GenerationFields:
    """What the record holds of a row."""
    return GenerationFields(
        status="failed" if one.failed else "unavailable" if one.unavailable else "ok",
        reason=one.failed or one.unavailable,
        notes=one.notes,
        interleaved=one.interleaved,
        first_request_s=one.first_request_s,
        capture_s=one.capture_s,
        compile_s=one.compile_s,
        wall_ms=one.samples_ms.get(settings.new_tokens, []),
        half_wall_ms=one.samples_ms.get(settings.half_tokens, []),
        agreement=one.agreement,
    )
