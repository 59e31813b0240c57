from pathlib import Path

import pytest

from analysis.commands.ranges import command_for, proposals, ranges_table
from analysis.overview import work_of
from analysis.trace import Trace, read_trace
from tests.analysis.trace_file import THREAD, TraceFile


def launches(file: TraceFile, start: int, count: int) -> None:
    for place in range(count):
        begin = start + 10 * place
        file.launch("gemm", (begin, begin + 4), (begin + 5, begin + 9))


def proposed(trace: Trace) -> list[str]:
    return proposals(ranges_table(work_of(trace)))["name"].tolist()


def test_a_server_that_generates(tmp_path: Path) -> None:
    """Three requests of a prompt and four tokens, with layers inside, after a warm-up that repeats."""
    file = TraceFile(tmp_path / "server.sqlite")
    file.domain("engine", 1)
    for start in (0, 200):
        file.range("warm-up", start, start + 100)
        launches(file, start, 2)
    for request in range(1000, 4000, 1000):
        file.range("request", request, request + 900)
        for step in range(request, request + 500, 100):
            file.range("prompt" if step == request else "token", step, step + 100)
            for layer in (step, step + 50):
                file.range("layer", layer, layer + 45)
                launches(file, layer, 4)
    # 120 of 124 launches are in requests, all of them in layers too; tokens hold 96, prompts 24.
    assert proposed(read_trace(file.save())) == ["layer", "request", "token", "prompt", "warm-up"]


def test_of_ranges_that_hold_the_same_the_outer_one_comes_first(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "nested.sqlite")
    file.domain("engine", 1)
    for start in (0, 1000):
        file.range("inner", start + 10, start + 400)
        file.range("outer", start, start + 500)
        launches(file, start + 20, 5)
    assert proposed(read_trace(file.save())) == ["outer", "inner"]


def test_not_proposed(tmp_path: Path) -> None:
    """What happens once, launches nothing, rarely launches, or does so on another thread."""
    file = TraceFile(tmp_path / "others.sqlite")
    file.domain("engine", 1)
    file.range("once", 0, 10_000)
    for start in (0, 1000, 2000):
        file.range("idle", start + 600, start + 700)
        file.range("rarely", start, start + 500)
        file.range("elsewhere", start, start + 500, thread=THREAD + 1)
    launches(file, 100, 5)
    table = ranges_table(work_of(read_trace(file.save())))
    assert proposals(table).empty
    assert table["rank"].isna().all()
    counted = dict(zip(table["name"], table["launches"], strict=True))
    assert counted == {"once": 5, "rarely": 5, "idle": 0, "elsewhere": 0}


def test_a_range_within_itself_counts_each_launch_once(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "recursive.sqlite")
    file.domain("engine", 1)
    file.range("call", 0, 500)
    file.range("call", 10, 400)
    launches(file, 20, 5)
    (row,) = ranges_table(work_of(read_trace(file.save()))).to_dict("records")
    assert (row["instances"], row["launches"], row["operations"]) == (2, 5, 5)
    assert row["launch_share_percent"] == 100.0


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31m", "x" * 1000])
def test_no_command_is_made_of_a_name_that_a_shell_line_cannot_hold(name: str) -> None:
    assert command_for("a.sqlite", name, "") == ""


def test_a_command_is_quoted() -> None:
    assert command_for("it's.sqlite", "a b; rm -rf $HOME", "") == (
        "python -m analysis 'it'\"'\"'s.sqlite' --range 'a b; rm -rf $HOME' --domain ''"
    )
