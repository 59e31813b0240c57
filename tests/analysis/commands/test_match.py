"""`python -m analysis match`: what is the same, what escaped, what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from analysis.__main__ import main
from commandline import run_command
from tests.analysis.commands.run_command import ROOT, Ran, analysis
from tests.analysis.trace_file import EXAMPLES, TraceFile

REFERENCE = ROOT / "profiles" / "reference"
CASE = REFERENCE / "gpt2-float32-p50-m1024"
EAGER, GRAPH = CASE / "eager.node.sqlite.gz", CASE / "graph.node.sqlite.gz"
BERT = REFERENCE / "bert-tiny-float32-p50-m512"
SMALL_EAGER, SMALL_GRAPH = BERT / "eager.node.sqlite.gz", BERT / "graph.node.sqlite.gz"
RED, ESCAPE = "\x1b[1;31m", "\x1b[31m\x1b]0;title\x07"
SPANS = ((0, 900), (1000, 1900))


def match(*words: str | Path) -> Ran:
    return analysis("match", *words)


def told(*words: str | Path, code: int = 0) -> dict[str, Any]:
    ran = match(*words, "--format", "json")
    assert (ran.code, ran.err) == (code, "")
    content = json.loads(ran.out)
    assert isinstance(content, dict)
    return content


def trace(
    path: Path,
    *kernels: str,
    graph: bool = False,
    beside: tuple[str, ...] = (),
    spans: tuple[tuple[int, int], ...] = SPANS,
    name: str | None = None,
) -> Path:
    """Requests that run these kernels of 10 ns, one by one or as nodes of a replay, and others before it."""
    file = TraceFile(path)
    if name is None:
        file.requests(*spans)
    for at, end in spans:
        if name is not None:
            file.range(name, at, end, domain=0)
        for number, kernel in enumerate(beside):
            file.launch(kernel, (at + 10 + 5 * number, at + 12 + 5 * number), (at + 60, at + 70))
        replay = file.call("cudaGraphLaunch_v10000", at + 100, at + 105) if graph else None
        for number, kernel in enumerate(kernels):
            start = at + 200 + 20 * number
            call = replay or file.call("cudaLaunchKernel_v7000", start - 30, start - 29)
            file.kernel(kernel, start, start + 10, call, graphNodeId=number + 1 if graph else None)
    return file.save()


@pytest.mark.parametrize("strategy", ["graph", "graph_padded"])
@pytest.mark.parametrize("case", sorted(path.name for path in REFERENCE.iterdir() if path.is_dir()))
def test_reference_cases_do_eagers_work(case: str, strategy: str) -> None:
    folder = REFERENCE / case
    content = told(folder / "eager.node.sqlite.gz", folder / f"{strategy}.node.sqlite.gz")
    verdict = content["trace"]["verdict"]
    if (strategy, case.partition("-")[0]) == ("graph", "bert"):
        assert verdict.startswith("the graph runs eager's kernels and no others")
    else:
        assert verdict.startswith("the graph differs from eager for known reasons alone")
    tables = content["tables"]
    rows = [*tables["same"], *tables["differences"]]
    missing = [row for row in tables["differences"] if row["match"] == "missing"]
    assert all(row["reason"] for row in missing if row["kind"] != "memset")
    for side in ("eager", "graph"):
        kernels = [row[f"{side}_us"] for row in rows if row["kind"] == "kernel"]
        assert sum(row[f"{side}_us"] for row in tables["totals"]) == pytest.approx(sum(kernels), abs=0.1)


def test_work_that_escapes_a_foreign_graph_is_exit_code_1() -> None:
    content = told(EXAMPLES["eager.node"], EXAMPLES["graph.node"], "--range", "forward", code=1)
    assert content["trace"]["verdict"] == "1 operation per request (1.4 us) escaped the replay"
    first = content["tables"]["escaped"][0]
    assert (first["expected"], first["when"], first["calls_per_request"]) == ("", "before", 1)


@pytest.mark.parametrize(
    ("graph", "beside", "verdict"),
    [
        (("a", "b"), (), None),
        (("a",), (), "1 operation per request (0.0 us) missing for no known reason"),
        (("a", "c"), (), "1 operation per request (0.0 us) missing for no known reason"),
        (("a",), ("b",), "1 operation per request (0.0 us) escaped the replay"),
        (
            ("a",),
            ("c",),
            "1 operation per request (0.0 us) missing for no known reason; 1 operation per request (0.0 us) "
            "escaped the replay",
        ),
    ],
    ids=["same", "missing", "replaced", "beside", "both"],
)
def test_exit_code_and_verdict(
    graph: tuple[str, ...], beside: tuple[str, ...], verdict: str | None, tmp_path: Path
) -> None:
    eager = trace(tmp_path / "e.sqlite", "a", "b")
    after = trace(tmp_path / "g.sqlite", *graph, graph=True, beside=beside)
    content = told(eager, after, code=0 if verdict is None else 1)
    if verdict is not None:
        assert content["trace"]["verdict"] == verdict


def test_requests_without_a_replay_are_an_alarm(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "g.sqlite")
    file.requests(*SPANS)
    replay = file.call("cudaGraphLaunch_v10000", 100, 105)
    file.kernel("a", 200, 210, replay, graphNodeId=1)
    file.launch("a", (1100, 1105), (1200, 1210))
    content = told(trace(tmp_path / "e.sqlite", "a"), file.save(), code=1)
    assert content["trace"]["verdict"].endswith("ran in requests without a replay")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("table", "Not the same in the graph"),
        ("md", "## Beside the replay"),
        ("csv", "\ntotals,missing,8.0,"),
    ],
)
def test_every_format(form: str, words: str) -> None:
    ran = match(EAGER, GRAPH, "--format", form)
    assert ran.code == 0
    assert words in ran.out
    assert RED not in ran.out


def test_a_file_as_output_has_the_alarm_on_stderr(tmp_path: Path) -> None:
    eager = trace(tmp_path / "e.sqlite", "a", "b")
    graph, out = trace(tmp_path / "g.sqlite", "a", graph=True), tmp_path / "new" / "m.json"
    ran = match(eager, graph, "-o", out)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("fatal: 1 kernel of each eager request")
    assert json.loads(out.read_text())["tables"]["differences"][0]["full_name"] == "b"


def on_a_terminal(*words: str | Path, **environ: str) -> str:
    """What a terminal receives. The process is forked off this one, which has loaded what it needs."""
    child, terminal = pty.fork()
    if child == 0:
        _match_and_end(words, environ)
    parts = []
    with contextlib.suppress(OSError):  # Linux says so when the other end is closed
        while part := os.read(terminal, 65_536):
            parts.append(part)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (0, 1)
    return b"".join(parts).decode()


def _match_and_end(words: Sequence[str | Path], environ: dict[str, str]) -> NoReturn:
    """In the child: its stdout is the terminal, its stderr nothing, and no test goes on in it."""
    code = -1
    try:
        os.environ.pop("NO_COLOR", None)
        os.environ.update({"TERM": "xterm"} | environ)
        with open(1, "w", encoding="utf-8") as sys.stdout, Path(os.devnull).open("w") as sys.stderr:
            code = run_command(lambda: main(["match", *map(str, words)]))
    finally:
        os._exit(code)


def test_alarms_are_red_on_a_terminal_and_nothing_else(tmp_path: Path) -> None:
    eager = trace(tmp_path / "e.sqlite", "a", "b")
    graph = trace(tmp_path / "g.sqlite", "a", graph=True)
    lines = on_a_terminal(eager, graph).splitlines()
    red = [line for line in lines if RED in line]
    assert [line.removeprefix(RED).split()[0] for line in red] == ["verdict", "fatal:"]
    assert all(line.startswith(RED) and line.endswith("\x1b[0m") for line in red)
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(eager, graph, **environ)
    assert "\x1b" not in on_a_terminal(SMALL_EAGER, SMALL_GRAPH)


def test_ranges_may_have_other_names_in_the_graphs_trace(tmp_path: Path) -> None:
    eager = trace(tmp_path / "e.sqlite", "a", name="forward")
    graph = trace(tmp_path / "g.sqlite", "a", graph=True, name="replay")
    facts = told(eager, graph, "--range", "forward", "--graph-range", "replay")["trace"]
    assert (facts["range"], facts["graph_range"]) == ("forward", "replay")
    assert "did you mean" in match(eager, graph, "--range", "forwrad").complaint
    complaint = match(eager, graph).complaint
    assert (
        "e.sqlite: has no requests of launchgap; name the range of one with --range: 'forward'" in complaint
    )


@pytest.mark.parametrize("mode", ["node", "graph"])
def test_a_graph_trace_given_as_eager(mode: str) -> None:
    complaint = match(BERT / f"graph.{mode}.sqlite.gz", SMALL_GRAPH).complaint
    assert (
        "its requests replay graphs, so it is no baseline; give the trace of the eager run first" in complaint
    )


def test_an_eager_trace_given_as_graph() -> None:
    assert "its requests replay no graph" in match(SMALL_EAGER, SMALL_EAGER).complaint


def test_a_graph_recorded_whole() -> None:
    assert "use --cuda-graph-trace=node" in match(SMALL_EAGER, BERT / "graph.graph.sqlite.gz").complaint


def test_traces_of_different_models(tmp_path: Path) -> None:
    complaint = match(EAGER, BERT / "graph.node.sqlite.gz").complaint
    assert "eager.node.sqlite.gz is of gpt2; give two traces of one model" in complaint
    eager = trace(tmp_path / "e.sqlite", "a", "b")
    graph = trace(tmp_path / "g.sqlite", "c", graph=True)
    assert "no kernel in common with e.sqlite" in match(eager, graph).complaint


def test_a_compiler_may_leave_no_kernel_as_it_was(tmp_path: Path) -> None:
    eager = trace(tmp_path / "e.sqlite", "a", "b")
    graph = trace(tmp_path / "g.sqlite", "triton_poi_fused_add_0", graph=True)
    assert {row["reason"] for row in told(eager, graph)["tables"]["differences"]} == {
        "a compiler put the work of several kernels into one"
    }


def test_other_cases_of_one_model_are_a_warning() -> None:
    other = REFERENCE / "gpt2-bfloat16-p50-m1024" / "graph.node.sqlite.gz"
    content = json.loads(match(EAGER, other, "--format", "json").out)
    assert any(
        finding["what"].endswith("graph.node.sqlite.gz of gpt2-bfloat16-p50-m1024")
        for finding in content["findings"]
    )


@pytest.mark.parametrize("side", ["e", "g"])
@pytest.mark.parametrize(
    ("spans", "words"),
    [
        (((0, 900),), "is there once"),
        (((0, 1900), (1000, 1900)), "1 of 2 begin before an earlier one of their thread has ended"),
    ],
    ids=["once", "overlapping"],
)
def test_ranges_that_cannot_be_compared(
    side: str, spans: tuple[tuple[int, int], ...], words: str, tmp_path: Path
) -> None:
    shapes = {"e": SPANS, "g": SPANS} | {side: spans}
    eager = trace(tmp_path / "e.sqlite", "a", spans=shapes["e"])
    graph = trace(tmp_path / "g.sqlite", "a", graph=True, spans=shapes["g"])
    complaint = match(eager, graph).complaint
    assert words in complaint
    assert f"{side}.sqlite: range 'request'" in complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--top", "-1"), "is negative"),
        (("-o", "{tmp}"), "is a folder"),
        (("-o", "{tmp}/t.sqlite.gz"), "is one of the inputs"),
        (("--domain", "nowhere"), "not in the trace"),
        (("--format", "xml"), "invalid choice"),
    ],
)
def test_wrong_options_write_nothing(words: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    copy = tmp_path / "t.sqlite.gz"
    shutil.copy(SMALL_EAGER, copy)
    assert complaint in match(copy, SMALL_GRAPH, *(word.format(tmp=tmp_path) for word in words)).complaint
    assert [path.name for path in tmp_path.iterdir()] == [copy.name]


def test_a_file_that_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "bad.sqlite"
    path.write_bytes(b"import this\n" * 100)
    assert "bad.sqlite: no SQLite file" in match(SMALL_EAGER, path).complaint


def test_hostile_names_are_shown_safely(tmp_path: Path) -> None:
    eager = trace(tmp_path / "e.sqlite", "a", ESCAPE, name=ESCAPE)
    graph = trace(tmp_path / "g.sqlite", "a", graph=True, name=ESCAPE)
    for form in ("table", "md", "json"):
        ran = match(eager, graph, "--range", ESCAPE, "--format", form)
        assert ran.code == 1
        assert "\x1b" not in ran.out
        assert "x1b" in ran.out or "u001b" in ran.out
