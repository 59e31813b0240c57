"""`GraphedForward`: a causal LM answering prompts of any short length through CUDA graphs.

    with GraphedForward(model, lengths=(64, 128, 256)) as forward:
        logits = forward(input_ids)  # (1, vocabulary): what follows the last token

Built once: every length is captured, proved equal to eager and timed against it. A request takes the smallest
length that fits, is padded to it, and costs the host one copy and one launch. What a capture baked in is
checked on every call, while the GPU works; see `inference.guards`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from contract import CaptureError, LaunchgapError
from inference.backends import make_backend
from inference.calling import Logits, ModelCall, vocabulary_of
from inference.exclusive import Exclusive
from inference.guards import ModelGuard, refuse_autocast, refuse_training
from inference.ladder import Ladder, LadderOptions, LedgerEntry
from inference.lengths import usable_lengths
from inference.request import real_tokens
from inference.rung import Rung
from inference.side_by_side import lay_side_by_side
from inference.staging import PaddingSide

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Built:
    """A ladder, and the model as it was when the ladder was built."""

    call: ModelCall
    ladder: Ladder
    guard: ModelGuard


@dataclass(frozen=True)
class _Staged:
    """A prompt that was copied in, and the graph that it was copied for, None for eager."""

    built: _Built
    rung: Rung | None
    tokens: NDArray[np.int64]


class GraphedForward(Exclusive):
    """Logits of one prompt at a time, batch 1, from a model in inference mode.

    Not for several threads: a call while another is running is refused at once, since it would overwrite the
    other's input. One runner for each thread shares the weights and nothing else. The CUDA stream may change
    between calls.

    Attributes:
        model: the model given.
        logits: which logits are given, `last` or `all`.
        padding_side: where prompts are padded.
        ledger: what became of each length, ascending.
        recaptures: how often the model had changed and everything was captured again.

    Args:
        model: a causal LM of transformers, in eval mode, on one device.
        lengths: captured lengths in tokens; None for `DEFAULT_LENGTHS` as far as the model has positions.
        logits: `last` for those after the last token, `all` for those of every token.
        padding_side: where a prompt is padded to the captured length. Both give the same answer; right
            is faster, since a causal model then needs no mask.
        copy: False returns a view of the one static buffer, valid until the next call.
        strict: raise where a length would be left eager for another reason than speed.
        over: what to do with prompts above the largest length.
        on_change: what to do when weights, dtype, device or attention implementation have changed.
        fused: capture what Inductor compiles of the model, and the model itself where that cannot be done;
            tens of seconds for each length. Moves weights, see `inference.side_by_side`: what was captured
            of this model before, by other means than these runners, must be captured again.
        only_if_faster: leave a length eager whose graph is not faster; None for yes on a GPU, no on the
            simulation, where nothing gets faster.

    Raises:
        LaunchgapError: a model or lengths that cannot be used; with `strict`, CaptureError.
    """

    _BUSY = (
        "this runner is in the middle of another call; make one GraphedForward for each thread, or take turns"
    )
    _CLOSED = "this runner was closed; make a new GraphedForward"

    def __init__(  # noqa: PLR0913 - each is a choice of its own with a usual answer
        self,
        model: PreTrainedModel,
        lengths: Sequence[int] | None = None,
        *,
        logits: Logits = "last",
        padding_side: PaddingSide = "right",
        copy: bool = True,
        strict: bool = False,
        over: Literal["raise", "eager"] = "raise",
        on_change: Literal["recapture", "raise"] = "recapture",
        fused: bool = False,
        only_if_faster: bool | None = None,
    ) -> None:
        _check_choice("logits", logits, ("last", "all"))
        _check_choice("padding_side", padding_side, ("right", "left"))
        _check_choice("over", over, ("raise", "eager"))
        _check_choice("on_change", on_change, ("recapture", "raise"))
        self.ledger: tuple[LedgerEntry, ...] = ()
        self.recaptures = 0
        self.logits: Logits = logits
        self.padding_side: PaddingSide = padding_side
        self.model = model
        self._lengths, self._copy = lengths, copy
        self._strict, self._fused, self._only_if_faster = strict, fused, only_if_faster
        self._over, self._on_change = over, on_change
        super().__init__()
        self._built: _Built | None = None
        self._staged: _Staged | None = None
        self._build()

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of a prompt, (1, vocabulary), or with `logits="all"` (1, real tokens, vocabulary).

        The GPU may still be at work on them, as on any CUDA tensor.

        Args:
            input_ids: token ids, shape (1, n) or (n,). On the host they cost no wait.
            attention_mask: ones and zeros of the same shape; padding at either end is left out, and the
                answer is that of the real tokens alone.

        Raises:
            LaunchgapError: ids or mask that cannot be used, a prompt that is too long, a model in training
                mode or, with `on_change="raise"`, changed; a call beside another; a closed runner.
        """
        with self._alone():
            answer = self._attempt(self._built or self._build(), input_ids, attention_mask)
            if answer is None:
                self.recaptures += 1
                answer = self._attempt(self._build(), input_ids, attention_mask)
            if answer is None:
                raise LaunchgapError("the model changes during a call; leave it alone until that returns")
            return answer

    def copy_in(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> None:
        """The first half of a call: check a prompt and copy it to the device. `replay` is the other half.

        Raises:
            LaunchgapError: as a call, but for a changed model, which `replay` finds out.
        """
        with self._alone():
            built = self._built or self._build()
            tokens = self._tokens(built, input_ids, attention_mask)
            rung = built.ladder.find(tokens.size)
            if rung is not None:
                built.ladder.fill(rung, tokens)
            # Eager reads them at the replay, when the caller's own may have changed.
            self._staged = _Staged(built, rung, tokens.copy() if rung is None else tokens)

    def replay(self) -> torch.Tensor:
        """Logits of the prompt last copied in, as a call gives them. May be repeated.

        Raises:
            LaunchgapError: nothing was copied in, a call came between, or the model has changed since.
        """
        with self._alone():
            staged = self._staged
            if staged is None or staged.built is not self._built:
                raise LaunchgapError("no prompt is staged; call copy_in before replay")
            answer = self._launched(staged.built, staged.rung, staged.tokens)
            if answer is None:
                self._drop()
                raise LaunchgapError(
                    "the model has changed since it was captured; call copy_in and replay again"
                )
            return answer

    def _attempt(
        self, built: _Built, input_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Check the request and answer it; None if the model has changed and must be captured again."""
        try:
            tokens = self._tokens(built, input_ids, attention_mask)
        except LaunchgapError:  # which a model with a larger vocabulary by now would perhaps not say
            if not self._has_changed(built):
                raise
            return None
        self._staged = None
        rung = built.ladder.find(tokens.size)
        if rung is not None:
            built.ladder.fill(rung, tokens)
        return self._launched(built, rung, tokens)

    def _tokens(
        self, built: _Built, input_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> NDArray[np.int64]:
        """The real tokens of a request, shape (n,), checked.

        Raises:
            LaunchgapError: as a call.
        """
        tokens = real_tokens(input_ids, attention_mask, built.call.vocabulary)
        self._check_length(built, tokens.size)
        return tokens

    def _launched(self, built: _Built, rung: Rung | None, tokens: NDArray[np.int64]) -> torch.Tensor | None:
        """Logits, or None if the model has changed.

        A replay is launched before the model is looked at, so that both take place at once.
        """
        if rung is None:
            return None if self._has_changed(built) else built.ladder.eager(tokens)
        try:
            rung.replay()
            logits = rung.logits(tokens.size)
            answer = logits.clone() if self._copy else logits
        except CaptureError:  # the simulation sees for itself that a tensor has moved
            if not self._has_changed(built):
                raise
            return None
        return None if self._has_changed(built) else answer

    def _has_changed(self, built: _Built) -> bool:
        refuse_autocast(built.call.device)
        if not built.ladder.rungs:
            # Eager follows new weights by itself; other settings may allow a capture that failed before.
            built.guard.refuse_training()
            return built.guard.settings_changed() or vocabulary_of(self.model) != built.call.vocabulary
        change = built.guard.changed()
        if change is None:
            return False
        if self._on_change == "raise":
            raise LaunchgapError(
                f"the model has changed since it was captured ({change}); make a new GraphedForward, "
                'or use on_change="recapture"'
            )
        logger.warning("the model has changed (%s) and is captured again", change)
        return True

    def _build(self) -> _Built:
        """Capture everything, after freeing what was captured before."""
        self._drop()
        call = ModelCall(self.model, self.logits)
        refuse_training(self.model.modules())
        refuse_autocast(call.device)
        backend = make_backend(call.device)
        options = LadderOptions(
            usable_lengths(self._lengths, call.positions),
            self.padding_side,
            strict=self._strict,
            timed=not backend.simulated if self._only_if_faster is None else self._only_if_faster,
            fused=self._fused,
        )
        on_device = torch.cuda.device(call.device) if call.device.type == "cuda" else nullcontext()
        # Static storage made under a caller's inference_mode could not be written to outside of it.
        with torch.inference_mode(False), on_device:
            if self._fused:
                lay_side_by_side(self.model)
            ladder = Ladder(call, backend, options)
        self._built = _Built(call, ladder, ModelGuard(self.model))
        self.ledger = ladder.ledger
        return self._built

    def _drop(self) -> None:
        built, self._built = self._built, None
        if built is not None:
            built.ladder.close()

    def _check_length(self, built: _Built, n: int) -> None:
        if n > built.call.positions:
            raise LaunchgapError(
                f"prompt of {n} tokens: the model has {built.call.positions} positions; shorten the prompt"
            )
        longest = built.ladder.longest
        if n > longest and self._over == "raise":
            raise LaunchgapError(
                f"prompt of {n} tokens: the longest captured length is {longest}; shorten the prompt, "
                'capture a longer length, or use over="eager"'
            )


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise LaunchgapError(f"{name} {value!r}: unknown; use {' or '.join(choices)}")
