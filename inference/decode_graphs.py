"""The captured pieces of a generator: made when first needed, kept, listed; refused where they cannot be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

import torch

from contract import CaptureError
from inference.backends import Backend, Capture, Graph
from inference.blame import root_cause
from inference.calling import ModelCall
from inference.decode import CapturedPiece, Decoder, Mask
from inference.decode_proof import prove_decoder
from inference.generation_request import GenerationRequest
from inference.sampling import Chooser, Greedy, GreedyChooser, Sampling, make_chooser
from inference.staging import StaticInputs, StreamOrder
from inference.streaming import TokenReader


@dataclass(frozen=True)
class GraphRecord:
    """One captured piece.

    Attributes:
        name: such as `prompt 64`, `choice greedy` or `step 128 greedy x4`: piece, tokens that prompt or cache
            have room for, how tokens are chosen, steps in the graph.
        capture_s: seconds of warm-up, capture and first replay.
        pool_bytes: what the capture added to the pool that all pieces share.
        attention_mask: `none`, `explicit` (built in the graph) or `static` (kept on the device).
        compile_s: seconds that Inductor took, 0 where an earlier piece's was used; None for a plain graph.
        not_fused: why a piece is plain that was to be compiled.
    """

    name: str
    capture_s: float
    pool_bytes: int
    attention_mask: Mask
    compile_s: float | None = None
    not_fused: str | None = None


@dataclass(frozen=True)
class Plan:
    """The pieces that one request needs, all captured, and the static inputs of its prompt."""

    inputs: StaticInputs
    prompt: Graph
    choice: Graph
    step: Capture | None
    steps: Capture | None


@dataclass
class _Piece:
    """A captured piece and whose choice of tokens it holds, if any."""

    capture: Capture
    chooser: Chooser | None
    record: GraphRecord = field(repr=False)


class DecodeGraphs:
    """The pieces of one model over one static cache.

    Attributes:
        refusals: why a piece could not be captured, by its name.
        reader: brings tokens to the host.
    """

    def __init__(
        self,
        call: ModelCall,
        buckets: Sequence[int],
        unroll: int,
        backend: Backend,
        *,
        fused: bool = False,
    ) -> None:
        """Allocate the cache for the largest bucket and try the model on it.

        Raises:
            CaptureError: the model is not right over a static cache.
            torch.cuda.OutOfMemoryError: the cache does not fit.
        """
        self.refusals: dict[str, str] = {}
        self._buckets, self._unroll, self._backend = tuple(buckets), unroll, backend
        with torch.inference_mode(False):
            self.decoder = Decoder(call, self._buckets[-1], backend, fused=fused)
            prove_decoder(self.decoder, call, self._buckets[0], backend)
            self.reader = TokenReader(self.decoder.state.tokens, backend)
        self._vocabulary = self.decoder.state.logits.shape[-1]
        self._pool = backend.new_pool()
        self._order = StreamOrder(backend.device)
        self._inputs: dict[int, StaticInputs] = {}
        self._pieces: dict[str, _Piece] = {}
        self._greedy = GreedyChooser()
        self._sampler: Chooser | None = None

    @property
    def ledger(self) -> tuple[GraphRecord, ...]:
        """What was captured, in that order."""
        return tuple(piece.record for piece in self._pieces.values())

    def plan(self, request: GenerationRequest) -> Plan:
        """Find or capture the pieces of a request.

        Raises:
            CaptureError: one cannot be captured; it was entered in `refusals` and will not be tried again.
        """
        chooser = self._chooser(request.sampling)
        length, bucket = self._bucket(int(request.prompt.size)), self._bucket(request.slots)
        steps = request.new_tokens - 1
        return Plan(
            inputs=self._static_inputs(length),
            prompt=self._prompt(length).graph,
            choice=self._choice(chooser).graph,
            step=self._steps(bucket, chooser, 1) if steps % self._unroll else None,
            steps=self._steps(bucket, chooser, self._unroll) if steps >= self._unroll else None,
        )

    def capture_all(self, sampling: Greedy | Sampling) -> None:
        """Capture all that requests with this choice may need; what fails is entered in `refusals`."""
        counts = sorted({1, self._unroll})
        for bucket in reversed(self._buckets):
            with suppress(CaptureError):
                self._prompt(bucket)
            for count in counts:
                # Asked for anew each time: a capture that fails takes the chooser with it.
                with suppress(CaptureError):
                    self._steps(bucket, self._chooser(sampling), count)
        with suppress(CaptureError):
            self._choice(self._chooser(sampling))

    def launch(self, plan: Plan, request: GenerationRequest, chunk: int) -> Iterator[slice]:
        """Launch the request; each item is the range of the token buffer launched since the last.

        Ranges hold at least `chunk` tokens each, but for the last one.
        """
        self._begin(plan, request)
        start, last = int(request.prompt.size), request.slots
        end = start + 1
        while True:
            while end < last and end - start < chunk:
                capture, count = self._next_steps(plan, last - end)
                capture.graph.replay()
                end += count
            yield slice(start, end)
            if end == last:
                return
            start = end
            self._order.enter()

    def logits_at(self, plan: Plan, request: GenerationRequest, index: int) -> torch.Tensor:
        """A copy of the logits that token `index` of the request is chosen from, shape (1, vocabulary)."""
        step = self._steps(self._bucket(request.slots), self._chooser(request.sampling), 1)
        self._begin(plan, request)
        for _ in range(index):
            step.graph.replay()
        # A step's logits lie in the pool of all graphs, where they are safe until another one is replayed.
        return (step.output if index else self.decoder.state.logits).clone()

    def close(self) -> None:
        """Free graphs, cache and pool. May be called twice."""
        if self._pieces:
            self._backend.synchronize()
        for piece in self._pieces.values():
            piece.capture.graph.reset()
        self._pieces.clear()
        self._inputs.clear()
        if not self._backend.simulated:
            torch.cuda.empty_cache()

    def _begin(self, plan: Plan, request: GenerationRequest) -> None:
        """Launch the prompt and the choice of its first token."""
        # Set after all captures, since their warm-up draws random numbers too.
        self._chooser(request.sampling).set(request.sampling)
        plan.inputs.fill(request.prompt, self._order.enter())
        plan.prompt.replay()
        plan.choice.replay()

    def _chooser(self, sampling: Greedy | Sampling) -> Chooser:
        if isinstance(sampling, Greedy):
            return self._greedy
        if self._sampler is None:
            with torch.inference_mode(False):
                self._sampler = make_chooser(sampling, self._vocabulary, self._backend.device)
        return self._sampler

    def _next_steps(self, plan: Plan, wanted: int) -> tuple[Capture, int]:
        if plan.steps is not None and wanted >= self._unroll:
            return plan.steps, self._unroll
        assert plan.step is not None
        return plan.step, 1

    def _bucket(self, slots: int) -> int:
        return next(bucket for bucket in self._buckets if bucket >= slots)

    def _static_inputs(self, length: int) -> StaticInputs:
        if length not in self._inputs:
            with torch.inference_mode(False):
                self._inputs[length] = StaticInputs(length, self._backend.device, "right", masked=False)
        return self._inputs[length]

    def _prompt(self, length: int) -> Capture:
        inputs = self._static_inputs(length)

        def capture() -> CapturedPiece:
            return self.decoder.capture_prompt(inputs, self._pool)

        return self._piece(f"prompt {length}", capture)

    def _choice(self, chooser: Chooser) -> Capture:
        def capture() -> CapturedPiece:
            return self.decoder.capture_choice(chooser, self._pool)

        return self._piece(f"choice {chooser.name}", capture, chooser)

    def _steps(self, slots: int, chooser: Chooser, count: int) -> Capture:
        def capture() -> CapturedPiece:
            return self.decoder.capture_steps(slots, chooser, count, self._pool)

        name = f"step {slots} {chooser.name}" + (f" x{count}" if count > 1 else "")
        return self._piece(name, capture, chooser)

    def _piece(
        self, name: str, capture: Callable[[], CapturedPiece], chooser: Chooser | None = None
    ) -> Capture:
        if name in self.refusals:
            raise CaptureError(self.refusals[name])
        if name not in self._pieces:
            start_s = time.perf_counter()
            made = self._tried(name, capture, chooser)
            capture_s = time.perf_counter() - start_s - (made.compile_s or 0.0)
            record = GraphRecord(
                name,
                capture_s,
                made.capture.pool_bytes,
                made.attention_mask,
                made.compile_s,
                made.not_fused,
            )
            self._pieces[name] = _Piece(made.capture, chooser, record)
        return self._pieces[name].capture

    def _tried(
        self, name: str, capture: Callable[[], CapturedPiece], chooser: Chooser | None
    ) -> CapturedPiece:
        device = self._backend.device
        try:
            with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                return capture()
        except BaseException as error:
            # A capture that broke may hold on to its pool and its generators for good.
            self._pool = self._backend.new_pool()
            self._forget_sampler(chooser)
            if isinstance(error, CaptureError) and not isinstance(root_cause(error), Exception):
                raise root_cause(error) from None  # an interruption, which a broken capture hides
            if not isinstance(error, (CaptureError, torch.cuda.OutOfMemoryError)):
                raise
            why = str(error) if isinstance(error, CaptureError) else "out of GPU memory; use shorter buckets"
            self.refusals[name] = " ".join(f"{name}: {why}".split())
            raise CaptureError(self.refusals[name]) from error

    def _forget_sampler(self, chooser: Chooser | None) -> None:
        if chooser is None or chooser is not self._sampler:
            return
        for name, piece in list(self._pieces.items()):
            if piece.chooser is chooser:
                self._pieces.pop(name).capture.graph.reset()
        self._sampler = None
