from pathlib import Path

import pytest

from analysis.commands.ranges import command_for, proposals, ranges_table
from analysis.overview import work_of
from analysis.schema import PROCESS_MASK
from analysis.trace import Trace, read_trace
from tests.analysis.commands.run_command import OTHER_PROCESS, OTHER_THREAD
from tests.analysis.trace_file import THREAD, TraceFile


def launches(file: TraceFile, start: int, count: int) -> None:
    for place in range(count):
        begin = start + 10 * place
        file.launch("gemm", (begin, begin + 4), (begin + 5, begin + 9))


def proposed(trace: Trace) -> list[str]:
    return proposals(ranges_table(work_of(trace)))["name"].tolist()


def test_a_server_that_generates(tmp_path: Path) -> None:
    """Three requests of a prompt and four tokens, with layers inside, after a warm-up that repeats.

    A layer holds all that its request does, and repeats more often: the request comes first all the same.
    """
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
    assert proposed(read_trace(file.save())) == ["request", "token", "layer", "prompt", "warm-up"]


def forward(file: TraceFile, start: int, layers: tuple[str, ...]) -> None:
    """A forward of 400 ns whose launches are all in its layers, one after another."""
    file.range("forward", start, start + 400)
    for place, layer in enumerate(layers):
        begin = start + 10 + 90 * place
        file.range(layer, begin, begin + 80)
        launches(file, begin, 3)


@pytest.mark.parametrize("layers", [("layer",) * 4, ("layer0", "layer1", "layer2", "layer3")])
@pytest.mark.parametrize("around", [None, "main"])
def test_the_request_comes_before_what_is_nested_in_it(
    tmp_path: Path, layers: tuple[str, ...], around: str | None
) -> None:
    """Layers hold every launch, or a quarter each; what is around everything once is no request."""
    file = TraceFile(tmp_path / "nested.sqlite")
    file.domain("engine", 1)
    if around is not None:
        file.range(around, 0, 10_000)
    for start in (1000, 2000, 3000):
        file.range("request", start, start + 500)
        forward(file, start + 50, layers)
    assert proposed(read_trace(file.save())) == ["request", "forward", *dict.fromkeys(layers)][:5]


def test_layers_that_a_warm_up_runs_as_well_come_after_the_request(tmp_path: Path) -> None:
    """Then layers cover more launches than requests do."""
    file = TraceFile(tmp_path / "warm.sqlite")
    file.domain("engine", 1)
    file.range("warm-up", 0, 900)
    for start in range(0, 5000, 1000):
        if start:
            file.range("request", start, start + 500)
        forward(file, start + 50, ("layer",) * 4)
    table = ranges_table(work_of(read_trace(file.save())))
    assert table["name"].tolist() == ["request", "forward", "layer", "warm-up"]
    assert table["launch_share_percent"].tolist() == [80.0, 100.0, 100.0, 20.0]


def test_what_holds_few_of_the_instances_does_not_come_before_them(tmp_path: Path) -> None:
    """Four kinds of request, each with a quarter of the forwards: no kind is the outer one of them."""
    file = TraceFile(tmp_path / "kinds.sqlite")
    file.domain("engine", 1)
    for place in range(8):
        start = 1000 * place
        file.range(f"GET /{place % 4}", start, start + 500)
        forward(file, start + 50, ("layer",) * 4)
    assert proposed(read_trace(file.save()))[:2] == ["forward", "layer"]


def test_once_in_each_process_is_once(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "ranks.sqlite")
    file.domain("engine", 1)
    file.domain("engine", 1, process=OTHER_PROCESS)
    for thread in (THREAD, OTHER_THREAD):
        file.range("main", 0, 10_000, thread=thread)
        for start in (1000, 2000):
            file.range("request", start, start + 500, thread=thread)
            process = thread & PROCESS_MASK
            call = file.call("cudaLaunchKernel_v7000", start + 10, start + 20, thread=thread)
            file.kernel("gemm", start + 30, start + 90, call, globalPid=process)
    assert proposed(read_trace(file.save())) == ["request"]


def test_ranges_of_one_span_are_both_proposed(tmp_path: Path) -> None:
    """Neither lies in the other more than the other in it: then names decide."""
    file = TraceFile(tmp_path / "twins.sqlite")
    file.domain("engine", 1)
    for start in (0, 1000):
        file.range("b", start, start + 500)
        file.range("a", start, start + 500)
        launches(file, start + 20, 5)
    assert proposed(read_trace(file.save())) == ["a", "b"]


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
