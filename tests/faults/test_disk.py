"""A disk that is full at each write: one line, no half of a file, and once there is room the same as ever."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from commandline import run_command
from nsight.capture import capture
from nsight.install import Nsys
from nsight.trace import Traced
from scripts import analyse_traces, build_report, cuda_graph_benchmark, preflight
from tests.analysis.report_samples import latency_record, write_record
from tests.analysis.trace_file import EXAMPLES
from tests.faults.disks import FULL, made, room_for_all_before, small_disk
from tests.faults.normalised import normalised
from tests.in_process import in_process

Command = Callable[[Path], tuple[str, ...]]
"""Arguments of a stage's program that make it write into a folder."""


def _full_at_each_write(main: Callable[..., int | None], command: Command, tmp_path: Path) -> int:
    """Run a program on ever larger disks, each without room for one more of its files; how many."""
    whole = tmp_path / "whole"
    assert in_process(main, *command(whole), log=True).code == 0
    wanted = normalised(whole)
    disks = room_for_all_before(made(whole))
    for number, (free, limit) in enumerate(disks):
        folder = tmp_path / f"disk {number}"
        with small_disk(folder, free, limit):
            done = in_process(main, *command(folder), log=True)
            assert done.code == 2
            assert sum(line.startswith("error: ") for line in done.err.splitlines()) == 1
            assert any(text in done.err.splitlines()[-1] for text in FULL)
            assert len(made(folder)) < len(wanted)
            assert normalised(folder).items() <= wanted.items()  # whole, and no temporary file stayed
    again = tmp_path / "again"
    assert in_process(main, *command(again), log=True).code == 0
    assert normalised(again) == wanted
    return len(disks)


def test_preflight(tmp_path: Path) -> None:
    def command(folder: Path) -> tuple[str, ...]:
        output = folder / "results/preflight.json"
        return "--device=cpu", "--profiler=off", f"--trace-dir={tmp_path}", f"--output={output}"

    assert _full_at_each_write(preflight.main, command, tmp_path) == 1


def test_measure(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    ).save_pretrained(model)
    quick = ("--device=cpu", "--runs=1", "--warmup-s=0", "--prompt-length=8", "--max-length=16")

    def command(folder: Path) -> tuple[str, ...]:
        return f"--model={model}", *quick, "--strategies", "eager", f"--output-dir={folder}"

    assert _full_at_each_write(cuda_graph_benchmark.main, command, tmp_path) == 2


def test_analyse(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    shutil.copy(EXAMPLES["graph.graph"], traces / "graph.graph.sqlite.gz")

    def command(folder: Path) -> tuple[str, ...]:
        chosen = ("--range-name=forward", "--range-domain=")
        return "--case=c", f"--trace-dir={traces}", *chosen, f"--output-dir={folder}"

    assert _full_at_each_write(analyse_traces.main, command, tmp_path) > 10


def test_report(tmp_path: Path) -> None:
    write_record(tmp_path, latency_record())

    def command(folder: Path) -> tuple[str, ...]:
        return f"--latency-dir={tmp_path / 'latency'}", f"--tables-dir={tmp_path}", f"--output-dir={folder}"

    assert _full_at_each_write(build_report.main, command, tmp_path) == 5


@pytest.mark.nsys
@pytest.mark.parametrize("free_kib", [4, 300])
def test_capture(real_nsys: Nsys, traced: Callable[..., Traced], tmp_path: Path, free_kib: int) -> None:
    folder = tmp_path / "disk"

    def run(output: Path) -> int:
        return run_command(lambda: len(capture(real_nsys, traced("ok"), output, os.environ)) * 0)

    with small_disk(folder, free_kib * 1024, free_kib * 1024):
        assert run(folder / "graph.node") == 2
        assert [path for path in made(folder) if path.suffix != ".lock"] == []
    assert run(tmp_path / "room/graph.node") == 0
