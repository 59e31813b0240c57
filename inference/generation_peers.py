"""vLLM and SGLang as peers of the generation benchmark, where they are installed.

Each runs in a process of its own, after launchgap's own rows and one after the other: both reserve most of
the GPU's memory, and an engine that dies takes its process with it. They are used as they come, but for what
makes the comparison one: the same weights, token ids in and out, greedy, no end of sequence.

Written from their documentation (`vllm.LLM`, https://docs.vllm.ai; `sglang.Engine`, https://docs.sglang.io).
Neither was at hand when this was written: the tests run it against stand-ins of the same shape, so what is
proven is this side. If an engine has changed, its row is `failed` and says why.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from contract import GenerationStrategy, LaunchgapError
from nsight.processes import run_marked

PEERS = (GenerationStrategy.VLLM, GenerationStrategy.SGLANG)

PEER_TIMEOUT_S = 1800.0
"""Longest that a peer may take with all its requests; starting alone takes minutes where it compiles."""

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class PeerJob:
    """What a peer is to do.

    Attributes:
        folder: the model as `save_pretrained` writes it.
        dtype: by torch's name.
        max_length: longest sequence, in tokens.
        memory_fraction: part of the GPU's whole memory that may be reserved.
        requests: prompts with the number of tokens to generate after each, in order.
    """

    folder: str
    dtype: str
    max_length: int
    memory_fraction: float
    requests: Sequence[tuple[list[int], int]]


@dataclass(frozen=True)
class PeerAnswer:
    """What came of it.

    Attributes:
        start_s: seconds to start the engine, weights loaded and graphs captured.
        wall_ms: milliseconds of each request, in order.
        tokens: new tokens of the first request.
    """

    start_s: float
    wall_ms: list[float]
    tokens: list[int]


class _Engine(Protocol):
    def tokens(self, prompt: list[int], count: int) -> list[int]: ...

    def close(self) -> None: ...


def why_unavailable(name: GenerationStrategy, *, simulated: bool) -> str | None:
    """Why a peer cannot be asked here, None if it can."""
    if find_spec(name) is None:
        return f"{name}: not installed; install it beside launchgap to compare with it"
    if simulated:
        return f"{name}: runs on a GPU only, and this is the simulation on the CPU"
    return None


def run_peer(name: GenerationStrategy, job: PeerJob, timeout_s: float = PEER_TIMEOUT_S) -> PeerAnswer:
    """Let a peer do the job in a process of its own, of which nothing is left running.

    Raises:
        LaunchgapError: the peer failed, died or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="launchgap-peer-") as made:
        folder = Path(made)
        given, answered = folder / "job.json", folder / "answer.json"
        given.write_text(json.dumps(asdict(job)), encoding="utf-8")
        command = [sys.executable, "-m", __name__, name, str(given), str(answered)]
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        try:
            finished = run_marked(command, folder, environ, timeout_s)
        except TimeoutError as error:
            raise LaunchgapError(f"{error} and was ended; ask for fewer runs or tokens") from error
        if not answered.exists():
            last = (finished.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise LaunchgapError(f"its process ended with exit code {finished.exit_code} ({last.strip()})")
        answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    if "error" in answer:
        raise LaunchgapError(str(answer["error"]))
    return PeerAnswer(**answer)


class _Vllm:
    """vLLM's offline engine with its own CUDA graphs and compilation."""

    def __init__(self, job: PeerJob) -> None:
        self._vllm: Any = import_module("vllm")
        self._llm: Any = self._vllm.LLM(
            model=job.folder,
            skip_tokenizer_init=True,
            dtype=job.dtype,
            max_model_len=job.max_length,
            gpu_memory_utilization=job.memory_fraction,
            enforce_eager=False,
        )

    def tokens(self, prompt: list[int], count: int) -> list[int]:
        sampling = self._vllm.SamplingParams(
            temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False
        )
        given = self._vllm.TokensPrompt(prompt_token_ids=prompt)
        return list(self._llm.generate([given], sampling, use_tqdm=False)[0].outputs[0].token_ids)

    def close(self) -> None:
        # Its own process, if it has one, ends with it.
        self._llm = None
        gc.collect()


class _Sglang:
    """SGLang's offline engine with its own CUDA graphs."""

    def __init__(self, job: PeerJob) -> None:
        sglang: Any = import_module("sglang")
        self._engine: Any = sglang.Engine(
            model_path=job.folder, skip_tokenizer_init=True, dtype=job.dtype, log_level="error"
        )

    def tokens(self, prompt: list[int], count: int) -> list[int]:
        sampling = {"temperature": 0.0, "max_new_tokens": count, "ignore_eos": True}
        return list(self._engine.generate(input_ids=prompt, sampling_params=sampling)["output_ids"])

    def close(self) -> None:
        self._engine.shutdown()


def _work(name: str, job: PeerJob) -> PeerAnswer:
    start_s = time.perf_counter()
    engine: _Engine = _Vllm(job) if name == GenerationStrategy.VLLM else _Sglang(job)
    started_s = time.perf_counter() - start_s
    try:
        wall_ms: list[float] = []
        first: list[int] = []
        for prompt, count in job.requests:
            start_s = time.perf_counter()
            tokens = engine.tokens(prompt, count)
            wall_ms.append((time.perf_counter() - start_s) * 1e3)
            if len(tokens) != count:
                raise LaunchgapError(f"gave {len(tokens)} tokens where {count} were asked for")
            first = first or tokens
    finally:
        engine.close()
    return PeerAnswer(started_s, wall_ms, first)


def main(argv: Sequence[str]) -> int:
    """Do the job of a file as one peer and write the answer to another: arguments NAME JOB ANSWER."""
    name, given, answered = argv
    try:
        answer = asdict(_work(name, PeerJob(**json.loads(Path(given).read_text(encoding="utf-8")))))
    except Exception as error:  # whatever an engine raises is the reason that its row shows
        said = (str(error).strip().splitlines() or ["no reason given"])[0]
        answer = {"error": said if isinstance(error, LaunchgapError) else f"{type(error).__name__}: {said}"}
    # Written whole or not at all: the engine's own processes may end this one at any time.
    part = Path(f"{answered}.part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(answered)
    return 0


if __name__ == "__main__":  # guarded, since both engines start processes that import this module again
    sys.exit(main(sys.argv[1:]))
