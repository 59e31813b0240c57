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
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from transformers import Cache

from contract import CaptureError
from inference.attention import MASKABLE, as_captured, mask_is_redundant
from inference.backends import WARM_UP_CALLS, Backend, Capture
from inference.calling import ModelCall
from inference.decode_state import DecodeState
from inference.fused import Pass, fuse
from inference.lanes import Pool
from inference.proof import prove_same
from inference.sampling import Chooser
from inference.staging import StaticInputs
from inference.static_cache import KeyValueStore, cache_shape

Mask = Literal["none", "explicit", "static"]
"""Of a graph: none at all, built within it by transformers, or kept on the device from step to step."""

RUNS_AT_CAPTURE = WARM_UP_CALLS + 1
"""How often a capture runs what it captures: steps advance that many times."""


@dataclass(frozen=True)
class CapturedPiece:
    """A captured piece.

    `compile_s` is None for a plain one; `not_fused` says why it is plain where it was to be compiled.
    """

    capture: Capture
    attention_mask: Mask
    compile_s: float | None = None
    not_fused: str | None = None


@dataclass(frozen=True)
class _Prepared:
    """A pass about to be captured, compiled or not."""

    run: Pass
    compile_s: float | None = None
    not_fused: str | None = None

    def piece(self, capture: Capture, mask: Mask) -> CapturedPiece:
        return CapturedPiece(capture, mask, self.compile_s, self.not_fused)


class Decoder:
    """A causal LM with a static cache of `slots` tokens, whose pieces can be run or captured.

    Attributes:
        store: the cache.
        state: see `DecodeState`.
        window: the model's shortest sliding window, in tokens, if any.
        takes_mask: whether the model is right with a mask that is handed in ready-made; see `decode_proof`.
    """

    def __init__(self, call: ModelCall, slots: int, backend: Backend, *, fused: bool = False) -> None:
        """Look at what the model keeps between tokens and allocate for it.

        With `fused` the pieces are captured as `inference.fused` compiles them, where it can.

        Raises:
            CaptureError: it keeps something that has no static form, or attends in a way that needs one.
            torch.cuda.OutOfMemoryError: the cache does not fit.
        """
        self._call = call
        self._fused = fused
        self._compiled: dict[tuple[int, bool], _Prepared] = {}
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
            if attention not in MASKABLE:
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

    def capture_prompt(self, inputs: StaticInputs, pool: Pool | None) -> CapturedPiece:
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

        def prompt() -> torch.Tensor:
            return self.prompt(inputs, cache)

        with as_captured(self._call.model, masked=not is_redundant):
            prepared = self._prepare(prompt, lambda: inputs.last.fill_(inputs.length - 1))
            inputs.last.zero_()
            return prepared.piece(self._capture(prepared.run, pool), mask)

    def capture_choice(self, chooser: Chooser, pool: Pool | None) -> CapturedPiece:
        """Capture the choice of a prompt's first new token."""
        return CapturedPiece(self._capture(lambda: self.choice(chooser), pool, chooser), "none")

    def capture_steps(self, slots: int, chooser: Chooser, count: int, pool: Pool | None) -> CapturedPiece:
        """Capture `count` steps over the first `slots` slots; the output is the last step's logits.

        Raises:
            CaptureError: an operation that a graph cannot hold, or more steps than the slots have room for.
        """
        if count * RUNS_AT_CAPTURE > slots:
            raise CaptureError(
                f"{count} steps in one graph: their warm-up needs {count * RUNS_AT_CAPTURE} slots and the "
                f"bucket has {slots}; unroll less"
            )
        with as_captured(self._call.model, masked=True):
            prepared = self._prepare_step(slots, chooser)

            def steps() -> torch.Tensor:
                for _ in range(count):
                    logits = prepared.run()
                return logits

            return prepared.piece(self._capture(steps, pool, chooser), self.step_mask(slots))

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
        return self._advance(self.look(cache, slots, mask), chooser)

    def look(self, cache: Cache, slots: int, mask: Mask) -> torch.Tensor:
        """Logits after the last token, shape (1, vocabulary). The position stays."""
        more: dict[str, Any] = {}
        if mask == "static":
            self.state.reveal()
            more["attention_mask"] = self.state.mask[..., :slots]
        if self._call.takes_positions:
            more["position_ids"] = self.state.position.view(1, 1)
        return _logits(self._call.model, self.state.token, cache, **more)[:, -1]

    def _advance(self, logits: torch.Tensor, chooser: Chooser) -> torch.Tensor:
        self.state.position.add_(1)
        self.state.put(chooser.choose(logits))
        return logits

    def _prepare_step(self, slots: int, chooser: Chooser) -> _Prepared:
        """One step to capture. What draws random numbers is not compiled: Dynamo refuses generators."""
        draws = bool(chooser.generators)
        key = slots, draws
        cache, mask = self.store.token_view(slots, self.state.position), self.step_mask(slots)

        def step() -> torch.Tensor:
            return self.step(cache, slots, mask, chooser)

        def look() -> torch.Tensor:
            return self.look(cache, slots, mask)

        if key not in self._compiled:
            self._compiled[key] = self._prepare(look if draws else step, lambda: self._stand_amid(slots))
        prepared = self._compiled[key]
        # Compiled once for graphs of one step and of several, and charged to the first.
        self._compiled[key] = replace(prepared, compile_s=prepared.compile_s and 0.0)
        if not draws:
            return prepared
        return replace(prepared, run=lambda: self._advance(prepared.run(), chooser))

    def _prepare(self, run: Pass, begin: Callable[[], object]) -> _Prepared:
        """The pass, or its compiled form if asked for, proved to leave the same logits and the same cache."""
        if not self._fused:
            return _Prepared(run)

        def outcome(one: Pass) -> tuple[torch.Tensor, ...]:
            begin()
            logits = one().clone()
            return logits, *(tensor.clone() for layer in self.store.layers for tensor in layer)

        try:
            with torch.inference_mode(False), torch.no_grad():
                begin()
                fused, compile_s = fuse(run, self._backend)
                prove_same(outcome(fused), outcome(run))
                self.store.clear()
        except CaptureError as error:
            return _Prepared(run, not_fused=str(error))
        return _Prepared(fused, compile_s)

    def _stand_amid(self, slots: int) -> None:
        """Behind the first half of a cache full of random keys and values, the same ones every time."""
        generator = torch.Generator(self._backend.device).manual_seed(slots)
        for layer in self.store.layers:
            for tensor in layer:
                tensor.normal_(generator=generator)
        self.state.token.zero_()
        self.state.begin(self._places[0, slots // 2 : slots // 2 + 1])

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
