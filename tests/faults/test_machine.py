"""A machine that fails: memory that is full, a GPU that is lost, a clock that is set."""

from __future__ import annotations

import ast
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from commandline import run_command
from inference import correctness
from scripts.cuda_graph_benchmark import main
from tests.in_process import ROOT, in_process

QUICK = ("--device=cpu", "--runs=2", "--warmup-s=0", "--prompt-length=8", "--max-length=16")
CLOCKS_THAT_ARE_SET = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
}
MEASURING = ("inference", "nsight", "scripts", "commandline.py")

# The words of cudaGetErrorString, as torch passes them on, with the beginning of what torch adds.
LOST = [
    "CUDA error: unknown error\nCUDA kernel errors might be asynchronously reported",
    "CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure'",
    "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be",
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "CUDA error: no CUDA-capable device is detected",
]
FULL = [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total of 1 GiB"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    MemoryError(),
]

MIB = 1024**2


@contextmanager
def little_memory(more_bytes: int) -> Iterator[None]:
    """In the block this process cannot have more than so many bytes beside what it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    ).save_pretrained(folder)
    return str(folder)


def _measured(
    model: str, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> tuple[str, list[Path]]:
    """What a user sees when an error comes up in the middle of a measurement, and what was written."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(correctness, "outputs", fail)
    done = in_process(main, f"--model={model}", *QUICK, f"--output-dir={folder}", log=True)
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    return line, list(folder.iterdir())


@pytest.mark.parametrize("said", LOST, ids=lambda said: said.splitlines()[0])
def test_a_gpu_that_is_lost(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Simulated, since a GPU cannot be made to fall off the bus."""
    line, written = _measured(model, tmp_path / "out", monkeypatch, RuntimeError(said))
    assert line.startswith(
        f"error: {said.splitlines()[0]}; the GPU or its driver failed: see nvidia-smi and "
    )
    assert written == []


@pytest.mark.parametrize("error", FULL, ids=lambda error: f"{type(error).__name__}: {error}"[:40])
def test_memory_that_is_full(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    """Simulated; what one strategy of a measurement does then is tested with the benchmark."""

    def fail() -> None:
        raise error

    assert run_command(fail) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("; use a smaller model, dtype or length, or end what else takes memory")


def test_a_defect_on_the_gpu_keeps_its_traceback() -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        run_command(fail)


def test_host_memory_that_is_full(tmp_path: Path) -> None:
    """A real limit: what is loaded already and 200 MiB, of which the first matrix of the model takes more."""
    words = ("--model=tinyllama-1.1b", "--weights=random", *QUICK, f"--output-dir={tmp_path / 'out'}")
    with little_memory(200 * MIB):
        done = in_process(main, *words, log=True)
    assert done.code == 2, done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert "can't allocate memory" in line
    assert line.endswith("; use a smaller model, dtype or length, or end what else takes memory")
    assert "Traceback" not in done.err
    assert list((tmp_path / "out").iterdir()) == []


def _clocks_of(path: Path) -> set[str]:
    """Calls of a module that read a clock which somebody can set."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {ast.unparse(call.func) for call in calls} & CLOCKS_THAT_ARE_SET


def test_nothing_is_measured_by_a_clock_that_can_be_set() -> None:
    paths = [
        path for name in MEASURING for path in [ROOT / name, *(ROOT / name).rglob("*.py")] if path.is_file()
    ]
    assert len(paths) > 50
    assert {path.name: clocks for path in paths if (clocks := _clocks_of(path))} == {}


def test_a_clock_that_jumps_is_not_seen(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated, since this host's clock is not a test's to set: each look finds it an hour earlier."""
    hours = iter(range(10**9))
    monkeypatch.setattr("time.time", lambda: 1e9 - 3600 * next(hours))
    monkeypatch.setattr("time.time_ns", lambda: (10**9 - 3600 * next(hours)) * 10**9)
    assert in_process(main, f"--model={model}", *QUICK, f"--output-dir={tmp_path}", log=True).code == 0
    record = json.loads((tmp_path / "latency.json").read_text())
    for fields in record["strategies"].values():
        assert all(0 < ms < 60_000 for ms in fields["event_ms"] + fields["wall_ms"])
