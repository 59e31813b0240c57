"""Generation in three captured pieces: the prompt, the choice of a token from its logits, and a token's step.

    prompt   token ids, padded -> keys and values in the cache, logits of the last real token, position
    choice   logits -> token, written to the token buffer
    step     token -> forward at the position, position + 1, choice, write

All that passes between them, and from one step to the next, stays on the device at fixed addresses outside
the graphs' memory pool: the token, its position, the mask, the cache. The host gives the prompt, no more. A
prompt is padded on the right: its real tokens never see the padding, and the slots that the padding leaves in
the cache lie in the future of every token until the one that belongs there overwrites them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import torch
from transformers import Cache

from contract import CaptureError
from inference.attention import mask_is_redundant, unmasked
from inference.backends import WARM_UP_CALLS, Backend, Capture, Pool
from inference.calling import ModelCall
from inference.sampling import Chooser
from inference.staging import StaticInputs
from inference.static_cache import KeyValueStore, cache_shape

Mask = Literal["none", "explicit", "static"]
"""Of a graph: none at all, built within it by transformers, or kept on the device from step to step."""

RUNS_AT_CAPTURE = WARM_UP_CALLS + 1
"""How often a capture runs what it captures: steps advance that many times."""


class DecodeState:
    """What one piece leaves for the next, on the device.

    Attributes:
        position: slot of the cache that the next step fills, shape (1,).
        token: the token last chosen, shape (1, 1).
        tokens: all tokens chosen, by position, shape (slots + 1,).
        logits: those of the prompt's last token, shape (1, vocabulary).
        mask: 0 where a step may look and -inf elsewhere, shape (1, 1, 1, slots).
    """

    def __init__(self, slots: int, logits: torch.Tensor, dtype: torch.dtype) -> None:
        """Allocate for logits like those given, shape (1, vocabulary), and attention in that dtype."""
        device = logits.device
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.token = torch.zeros((1, 1), dtype=torch.int64, device=device)
        self.tokens = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self.logits = torch.zeros_like(logits)
        self.mask = torch.zeros((1, 1, 1, slots), dtype=dtype, device=device)
        self._slots = torch.arange(slots, device=device)

    def begin(self, last: torch.Tensor) -> None:
        """Stand behind a prompt whose last token is at `last`, shape (1,)."""
        self.position.copy_(last + 1)
        self.mask.fill_(-math.inf).masked_fill_(self._slots <= last, 0.0)

    def reveal(self) -> None:
        """Let steps look at the slot at the position."""
        self.mask.index_fill_(-1, self.position, 0.0)

    def put(self, token: torch.Tensor) -> None:
        """Write a chosen token, shape (1,), to the position."""
        self.token.copy_(token.view(1, 1))
        self.tokens.index_copy_(0, self.position, token)

    def rewind(self) -> None:
        """Go back to position 0, so that a capture's own steps stay inside the cache."""
        self.position.zero_()
        self.token.zero_()


class Decoder:
    """A causal LM with a static cache of `slots` tokens, whose pieces can be run or captured.

    Attributes:
        store: the cache.
        state: see `DecodeState`.
        window: the model's shortest sliding window, in tokens, if any.
        takes_mask: whether the model is right with a mask that is handed in ready-made; see `decode_proof`.
    """

    def __init__(
        self, call: ModelCall, slots: int, backend: Backend, step: Callable[..., Any] | None = None
    ) -> None:
        """Look at what the model keeps between tokens and allocate for it.

        `step` runs steps in place of the model, called as the model is.

        Raises:
            CaptureError: it keeps something that has no static form, or attends in a way that needs one.
            torch.cuda.OutOfMemoryError: the cache does not fit.
        """
        self._call = call
        self._step = call.model if step is None else step
        self._backend = backend
        self._cuts_logits = "logits_to_keep" in inspect.signature(call.model.forward).parameters
        name, attention = type(call.model).__name__, call.model.config._attn_implementation
        token = torch.zeros((1, 1), dtype=torch.int64, device=backend.device)
        with torch.inference_mode(False), torch.no_grad():
            outputs = call.model(input_ids=token, use_cache=True)
            if outputs.logits.shape[-1] > call.vocabulary:
                raise CaptureError(
                    f"model {name}: may choose token {call.vocabulary} and above, which it cannot read back"
                )
            shape = cache_shape(name, getattr(outputs, "past_key_values", None))
            if attention != "sdpa":
                raise CaptureError(
                    f"model {name}: attention {attention!r} has no mask that a graph can hold; "
                    "load it with attn_implementation='sdpa'"
                )
            self.window = shape.window
            self.store = KeyValueStore(shape, slots, backend.device)
            self.state = DecodeState(slots, outputs.logits[:, -1], shape.dtype)
            self._places = torch.arange(slots, device=backend.device).unsqueeze(0)
        self.takes_mask = False

    def step_mask(self, slots: int) -> Mask:
        """Where the mask of steps over so many slots comes from."""
        return "static" if self.takes_mask and self.fits_all_layers(slots) else "explicit"

    def fits_all_layers(self, slots: int) -> bool:
        """Whether one mask is right for all layers: no sliding window is shorter than so many slots."""
        return self.window is None or self.window >= slots

    def capture_prompt(self, inputs: StaticInputs, pool: Pool | None) -> tuple[Capture, Mask]:
        """Capture the prompt piece at the length of its inputs.

        Raises:
            CaptureError: an operation that a graph cannot hold.
        """
        inputs.last.zero_()
        # The trial draws tokens; a caller's own random numbers shall not depend on it.
        with torch.random.fork_rng([self._backend.device] if self._backend.device.type == "cuda" else []):
            is_redundant = mask_is_redundant(self._call.model, inputs.ids)
        mask: Mask = "none" if is_redundant else "explicit"
        cache = self.store.prompt_view()
        with unmasked(self._call.model) if mask == "none" else nullcontext():
            return self._capture(lambda: self.prompt(inputs, cache), pool), mask

    def capture_choice(self, chooser: Chooser, pool: Pool | None) -> Capture:
        """Capture the choice of a prompt's first new token."""
        return self._capture(lambda: self.choice(chooser), pool, chooser)

    def capture_steps(self, slots: int, chooser: Chooser, count: int, pool: Pool | None) -> Capture:
        """Capture `count` steps over the first `slots` slots; the output is the last step's logits.

        Raises:
            CaptureError: an operation that a graph cannot hold, or more steps than the slots have room for.
        """
        if count * RUNS_AT_CAPTURE > slots:
            raise CaptureError(
                f"{count} steps in one graph: their warm-up needs {count * RUNS_AT_CAPTURE} slots and the "
                f"bucket has {slots}; unroll less"
            )
        cache, mask = self.store.token_view(slots, self.state.position), self.step_mask(slots)

        def steps() -> torch.Tensor:
            for _ in range(count):
                logits = self.step(cache, slots, mask, chooser)
            return logits

        return self._capture(steps, pool, chooser)

    def prompt(self, inputs: StaticInputs, cache: Cache) -> torch.Tensor:
        """The prompt piece, run now. Nothing of an earlier request, not even a NaN, stays in the cache."""
        self.store.clear()
        more: dict[str, Any] = {"logits_to_keep": inputs.last} if self._cuts_logits else {}
        if self._call.takes_positions:
            more["position_ids"] = self._places[:, : inputs.length]
        logits = _logits(self._call.model, inputs.ids, cache, **more)
        if not self._cuts_logits:
            logits = logits.index_select(1, inputs.last)
        self.state.begin(inputs.last)
        return self.state.logits.copy_(logits[:, 0])

    def choice(self, chooser: Chooser) -> torch.Tensor:
        """The choice piece, run now: the token."""
        self.state.put(chooser.choose(self.state.logits))
        return self.state.token

    def step(self, cache: Cache, slots: int, mask: Mask, chooser: Chooser) -> torch.Tensor:
        """One step, run now: the logits that its token was chosen from, shape (1, vocabulary)."""
        logits = self.look(cache, slots, mask)
        self.state.position.add_(1)
        self.state.put(chooser.choose(logits))
        return logits

    def look(self, cache: Cache, slots: int, mask: Mask) -> torch.Tensor:
        """Logits after the last token, shape (1, vocabulary). The position stays."""
        more: dict[str, Any] = {}
        if mask == "static":
            self.state.reveal()
            more["attention_mask"] = self.state.mask[..., :slots]
        if self._call.takes_positions:
            more["position_ids"] = self.state.position.view(1, 1)
        return _logits(self._step, self.state.token, cache, **more)[:, -1]

    def _capture(
        self, piece: Callable[[], torch.Tensor], pool: Pool | None, chooser: Chooser | None = None
    ) -> Capture:
        self.state.rewind()
        with torch.inference_mode(False), torch.no_grad():
            return self._backend.capture(piece, pool, chooser.generators if chooser else ())


def _logits(model: Callable[..., Any], ids: torch.Tensor, cache: Cache, **more: object) -> torch.Tensor:
    logits = model(input_ids=ids, past_key_values=cache, use_cache=True, **more).logits
    assert isinstance(logits, torch.Tensor)
    return logits
