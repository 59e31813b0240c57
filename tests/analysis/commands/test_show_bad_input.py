"""One line, exit code 2, nothing half-written: what a wrong input gets."""

import csv
import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.analysis.commands.run_command import analysis, analysis_process, busy_trace
from tests.analysis.trace_file import EXAMPLES, THREAD, TraceFile

EAGER = EXAMPLES["eager.node"]
ESCAPE = "\x1b[31m\x1b]0;title\x07"


def only_ranges(folder: Path) -> Path:
    file = TraceFile(folder / "ranges.sqlite")
    file.requests((0, 10), (20, 30))
    return file.save()


def nothing_but_launches(folder: Path) -> Path:
    """What is left where another profiler held the GPU."""
    file = TraceFile(folder / "launches.sqlite")
    file.call("cudaLaunchKernel_v7000", 10, 20)
    return file.save()


def only_kernels(folder: Path) -> Path:
    file = TraceFile(folder / "kernels.sqlite")
    file.launch("gemm", (10, 20), (30, 90))
    return file.save()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no SQLite file"),
        (b"import this\n" * 100, "no SQLite file"),
        (gzip.decompress(EAGER.read_bytes())[:100_000], "cut short (100,000 of 962,560 bytes)"),
    ],
    ids=["empty", "no database", "truncated"],
)
def test_a_file_that_is_no_trace(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "bad.sqlite"
    path.write_bytes(content)
    assert why in analysis(path).complaint


def test_a_path_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    assert "No such file" in analysis(tmp_path / "none.sqlite").complaint
    assert "No such file" in analysis(tmp_path / "none.nsys-rep").complaint
    assert "directory" in analysis(tmp_path).complaint


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "bookmarks.sqlite") as connection:
        connection.execute("CREATE TABLE bookmarks (id INTEGER)")
    assert "no export of Nsight Systems" in analysis(tmp_path / "bookmarks.sqlite").complaint


def test_a_locked_trace_is_read_all_the_same(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    before = analysis(path)
    assert before.code == 0
    with sqlite3.connect(path) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert analysis(path) == before
        connection.rollback()


def test_a_read_only_trace_in_a_read_only_folder_is_read_and_left_alone(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    before = path.read_bytes()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert analysis(path).code == 0
    finally:
        tmp_path.chmod(0o755)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_no_cuda_tables_is_told_and_ranges_are_shown(tmp_path: Path) -> None:
    path = only_ranges(tmp_path)
    ran = analysis(path)
    assert ran.code == 0
    assert ran.out.index("warning: no CUDA activity recorded") < ran.out.index("request")
    assert "none of its 2 instances launched GPU work" in analysis(path, "--range", "request").complaint
    assert "2 instances of request" in analysis(path, "--range", "request", "--force").out


def test_a_fatal_finding_is_told_and_nothing_is_counted(tmp_path: Path) -> None:
    path = nothing_but_launches(tmp_path)
    ran = analysis(path)
    assert ran.code == 2
    assert "fatal: no GPU work recorded" in ran.out
    assert "Launches" not in ran.out
    assert "--force" in ran.out
    content = json.loads(analysis(path, "--format", "json").out)
    assert content["tables"] == {}
    assert any(finding["severity"] == "fatal" for finding in content["findings"])
    forced = analysis(path, "--force")
    assert forced.code == 0
    assert forced.out.index("fatal: ") < forced.out.index("cudaLaunchKernel_v7000")
    assert "fatal: no GPU work" in analysis(path, "--format", "csv").err


def test_no_nvtx(tmp_path: Path) -> None:
    path = only_kernels(tmp_path)
    ran = analysis(path, "--force")
    assert ran.code == 0
    assert "No range repeats and launches GPU work" in ran.out
    assert "no NVTX ranges at all" in analysis(path, "--range", "step", "--force").complaint


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("foward", "did you mean 'forward'?"),
        ("STEP", "did you mean 'step'?"),
        ("for", "did you mean 'forward'?"),
        ("zzz", "without --range all of them are listed"),
        ("", "without --range all of them are listed"),
    ],
)
def test_a_range_that_matches_nothing(tmp_path: Path, name: str, told: str) -> None:
    assert told in analysis(busy_trace(tmp_path), "--range", name, "--domain", "engine").complaint


def test_a_range_outside_the_part_that_is_looked_at(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    assert "none in the selected part" in analysis(path, "--range", "step", "--domain", "").complaint
    assert "none in the selected part" in analysis(path, "--range", "step", "--process", "4322").complaint
    assert "none in the selected part" in analysis(path, "--range", "load", "--between", "0", "1").complaint


def test_a_range_without_gpu_work_names_better_ones_and_can_be_forced(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    told = analysis(path, "--range", "load").complaint
    assert "none of its 1 instances launched GPU work" in told
    assert "these do: 'step', 'forward'" in told
    forced = analysis(path, "--range", "load", "--force", "--format", "json")
    (instance,) = json.loads(forced.out)["tables"]["instances"]
    assert (instance["range_us"], instance["kernels"]) == (0.1, 0)


def test_a_range_in_two_domains_wants_to_know_which(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "two.sqlite")
    file.domain("a", 1)
    for domain in (0, 1):
        file.range("step", 0, 100, domain=domain)
    file.launch("gemm", (10, 20), (30, 90))
    path = file.save()
    assert "2 domains have it; add --domain '' or --domain a" in analysis(path, "--range", "step").complaint
    assert analysis(path, "--range", "step", "--domain", "(default)").code == 0


def test_a_range_that_never_ends_on_its_thread(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "open.sqlite")
    file.domain("a", 1)
    file.range("step", 0, None)
    file.range("step", 0, 100, end_thread=THREAD + 1)
    file.launch("gemm", (10, 20), (30, 90))
    told = analysis(file.save(), "--range", "step", "--force").complaint
    assert "none of its 2 instances ended on the thread it began on" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--device", "7"), "--device 7: ran nothing here, GPU work is on 0, 1"),
        (("--device", "one"), "invalid int value"),
        (("--process", "1"), "--process 1: not in the trace, which has 4321, 4322"),
        (("--domain", "motor"), "--domain 'motor': not in the trace, which has (default), engine"),
        (("--between", "5", "3"), "--between 5 3: it ends before it starts"),
        (("--between", "-3us", "-5us"), "--between -3us -5us: it ends before it starts"),
        (("--between", "2", "2"), "it ends before it starts"),
        (("--between", "10", "20"), "the trace goes from -0.0000009 to 0.000005 s"),
        (("--between", "soon", "3"), "'soon' is no time"),
        (("--between", "1e400", "3"), "'1e400' is no time"),
        (("--between", "nan", "3"), "'nan' is no time"),
        (("--between", "1"), "expected 2 arguments"),
        (("--top", "-1"), "--top -1: is negative"),
        (("--format", "xml"), "invalid choice: 'xml'"),
        (("--table", "instances"), "--table instances: not among the tables here"),
        (("--rang", "step"), "unrecognized arguments"),
    ],
)
def test_an_option_that_makes_no_sense(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    assert told in analysis(busy_trace(tmp_path), *words).complaint


def test_no_trace_given() -> None:
    assert "TRACE" in analysis().complaint


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    (tmp_path / "file").write_text("")
    assert "where no file stands in the way" in analysis(path, "-o", tmp_path / "file" / "out.json").complaint
    assert "is a folder" in analysis(path, "-o", tmp_path).complaint
    before = path.read_bytes()
    assert "is the trace itself" in analysis(path, "-o", path).complaint
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody may write to")
def test_an_output_folder_that_is_closed(tmp_path: Path) -> None:
    # Even root may not make files in /proc.
    told = analysis(busy_trace(tmp_path), "-o", "/proc/self/fd/out.json").complaint
    assert "give a path" in told


def test_a_failed_run_keeps_the_old_output(tmp_path: Path) -> None:
    path, out = busy_trace(tmp_path), tmp_path / "out.json"
    out.write_text("old")
    assert analysis(path, "--range", "nothing like it", "-o", out).code == 2
    assert out.read_text() == "old"


def hostile(folder: Path) -> Path:
    """Names that a terminal, a browser or a parser could trip over."""
    file = TraceFile(folder / "hostile.sqlite")
    file.domain(f"dom{ESCAPE}ain", 1)
    names = [
        f"{ESCAPE}red\r\nerror: forged\x00",
        "<script>alert(1)</script>|`*_[x](http://evil)",
        "k" * 100_000,
        "\u202eesrever\u200b",
        "=cmd|' /C calc'!A0",
        "日本語カーネル",
    ]
    for place, name in enumerate(names):
        for start in (1000 * place, 1000 * place + 500):
            file.range(name, start, start + 400)
            file.launch(name, (start + 10, start + 20), (start + 30, start + 90 - place))
    file.execute("INSERT INTO StringIds VALUES (900, CAST(x'6b65726e656cff80' AS TEXT))")
    file.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 900 WHERE start = (SELECT max(start) "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL)"
    )
    return file.save()


@pytest.mark.parametrize("form", ["table", "md"])
@pytest.mark.parametrize("words", [(), ("--top", "0")])
def test_hostile_names_are_shown_safely(tmp_path: Path, form: str, words: tuple[str, ...]) -> None:
    ran = analysis(hostile(tmp_path), "--format", form, *words)
    assert ran.code == 0
    assert all(line.isprintable() for line in ran.out.splitlines())
    assert not any(line.startswith("error: forged") for line in ran.out.splitlines())
    assert max(len(line) for line in ran.out.splitlines()) < 1000
    assert ("\\x1b" if form == "table" else "\\\\x1b") in ran.out
    if form == "md":
        assert "<script" not in ran.out
        rows = [line for line in ran.out.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows if "script" in line}) <= 3


def test_hostile_names_are_whole_in_json_and_csv(tmp_path: Path) -> None:
    path = hostile(tmp_path)
    ran = analysis(path, "--format", "json")
    assert ran.out.isascii()
    names = [row["name"] for row in json.loads(ran.out)["tables"]["ranges"]]
    assert "k" * 100_000 in names
    assert f"{ESCAPE}red\r\nerror: forged\x00" in names
    assert "kernel\ufffd\ufffd" in [row["full_name"] for row in json.loads(ran.out)["tables"]["kernels"]]
    out = tmp_path / "ranges.csv"
    assert analysis(path, "--table", "ranges", "-o", out).code == 0
    csv.field_size_limit(1_000_000)
    with out.open(newline="", encoding="utf-8") as file:
        assert sorted(row["name"] for row in csv.DictReader(file)) == sorted(names)


def test_a_hostile_range_can_be_named_and_a_wrong_one_is_shown_safely(tmp_path: Path) -> None:
    path = hostile(tmp_path)
    assert analysis(path, "--range", "k" * 100_000).code == 0
    told = analysis(path, "--range", f"{ESCAPE}red\r\nerror: forgot").complaint
    assert len(told) < 1000
    assert analysis(path, "--range", "日本語カーネル").code == 0


def test_a_file_name_that_is_no_utf8(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/stra\xffnge.sqlite.gz"))
    strange.write_bytes(gzip.compress(path.read_bytes()))
    for form in ("table", "md", "csv", "json"):
        assert analysis(strange, "--format", form).code == 0
    # What the shell hands over is no text either.
    assert analysis_process(strange) == analysis(strange)


def test_two_processes_with_equal_correlation_ids(tmp_path: Path) -> None:
    ran = analysis(busy_trace(tmp_path), "--format", "json", "--table", "devices")
    assert [row["kernels"] for row in json.loads(ran.out)["tables"]["devices"]] == [12, 1]
