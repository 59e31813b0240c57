import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.leaks import find_leaks
from analysis.trace import read_trace
from nsight.install import find_nsys
from tests.analysis.commands.run_command import ROOT, Ran, analysis, analysis_process
from tests.analysis.trace_file import EXAMPLES, TraceFile

INPUT = EXAMPLES["graph.graph"]


def run(*arguments: str | Path) -> Ran:
    return analysis("scrub", *arguments)


def test_scrubs_a_file(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.sqlite"
    done = run(INPUT, "-o", out)
    assert done.code == 0
    assert len(read_trace(out).kernels) == 20
    assert find_leaks(out) == []


def stats(path: Path, *reports: str) -> str:
    """What nsys prints of the reports, without its progress lines."""
    nsys = str(find_nsys(os.environ).path)
    report = ",".join(reports)
    command = [nsys, "stats", "--format", "csv", "--force-export=false", "--report", report, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return "\n".join(line for line in done.stdout.splitlines() if str(path) not in line)


@pytest.mark.nsys
@pytest.mark.parametrize("name", EXAMPLES)
def test_nsys_says_the_same_of_the_copy(tmp_path: Path, name: str) -> None:
    whole, clean = tmp_path / "whole.sqlite", tmp_path / "clean.sqlite"
    whole.write_bytes(gzip.decompress(EXAMPLES[name].read_bytes()))
    assert run(whole, "-o", clean).code == 0
    reports = ("gpukernsum", "cudaapisum", "gpumemtimesum", "gpumemsizesum", "nvtxsum", "kernexecsum")
    before = stats(whole, *reports)
    assert before.count(",") > 50
    assert stats(clean, *reports) == before


@pytest.mark.nsys
def test_report_of_nsys_goes_in_as_it_is(tmp_path: Path) -> None:
    program = "import nvtx\nfor _ in range(3):\n    with nvtx.annotate('step'): pass"
    report, clean = tmp_path / "t.nsys-rep", tmp_path / "clean.sqlite"
    quiet = ["--sample=none", "--cpuctxsw=none"]
    command = [str(find_nsys(os.environ).path), "profile", "-t", "nvtx", *quiet, "-o", str(report)]
    environment = os.environ | {"LAUNCHGAP_TEST_SECRET": "hunter2"}
    subprocess.run(
        [*command, sys.executable, "-c", program],
        env=environment,
        check=True,
        capture_output=True,
        timeout=120,
    )
    found = run("--check", report)
    assert found.code == 1
    assert "environment variable" in found.out
    assert "hunter2" not in found.out
    assert run(report, "-o", clean).code == 0
    assert run("--check", clean).code == 0
    assert b"hunter2" not in clean.read_bytes()
    (line,) = [line for line in stats(clean, "nvtxsum").splitlines() if line.endswith("step")]
    assert ",3," in line


def test_packs_by_name_and_repeatably(tmp_path: Path) -> None:
    cut = ("--only-requests", "--range-name", "forward", "--range-domain", "")
    for scrub, name in ((analysis, "one.sqlite.gz"), (analysis_process, "two.sqlite.gz")):
        assert scrub("scrub", INPUT, "-o", tmp_path / name, *cut).code == 0
    one, two = ((tmp_path / name).read_bytes() for name in ("one.sqlite.gz", "two.sqlite.gz"))
    assert one == two
    assert gzip.decompress(one).startswith(b"SQLite format 3")
    assert len(read_trace(tmp_path / "one.sqlite.gz").graph_launches) == 20


def test_leaking_trace_is_refused_and_no_file_left(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "in.sqlite")
    file.requests((0, 100))
    file.range("reading /home/somebody/model", 10, 20)
    line = run(file.save(), "-o", tmp_path / "out.sqlite").complaint
    assert "must not be shared" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.sqlite"]


def test_input_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "in.sqlite.gz"
    path.write_bytes(INPUT.read_bytes())
    assert "the original is not overwritten" in run(path, "-o", path).complaint
    assert path.read_bytes() == INPUT.read_bytes()


@pytest.mark.parametrize("content", [None, b"", b"no trace"])
def test_no_trace_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "in.sqlite"
    if content is not None:
        path.write_bytes(content)
    line = run(path, "-o", tmp_path / "out.sqlite").complaint
    assert str(path) in line
    assert not (tmp_path / "out.sqlite").exists()


def test_check_says_where_and_how_much_but_not_what(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "in.sqlite")
    for number in range(3):
        file.range(f"reading /home/somebody/model{number}", 10, 20, registered=False)
    file.string("TOKEN=hunter2")
    file.string("harmless")
    done = run("--check", file.save())
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines() == [
        "NVTX_EVENTS.text: path: 3 rows, such as '/ho…'",
        "StringIds.value: environment variable: 1 rows, such as 'TOKEN=…'",
    ]


def test_check_of_a_clean_file(tmp_path: Path) -> None:
    clean = tmp_path / "clean.sqlite.gz"
    assert run(INPUT, "-o", clean).code == 0
    done = run("--check", clean)
    assert done.code == 0
    assert "no environment, path, identifier, host or user name found" in done.out


def test_names_given_are_refused_and_found(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "in.sqlite")
    file.range("run of colleague", 10, 20)
    path = file.save()
    assert run("--check", path).code == 0
    assert run("--check", path, "--name", "colleague").code == 1
    assert "it would give away" in run(path, "-o", tmp_path / "out.sqlite", "--name", "colleague").complaint
    assert [path.name for path in tmp_path.iterdir()] == ["in.sqlite"]


@pytest.mark.parametrize(
    "words", [[], ["one"], ["one", "-o", "two", "--check", "three"], ["one", "--check", "two"]]
)
def test_either_two_files_or_a_check(words: list[str]) -> None:
    assert "give IN and -o FILE, or --check FILE alone" in run(*words).complaint


def test_existing_output_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "out.sqlite"
    out.write_text("before")
    (tmp_path / "bad.sqlite").write_text("no trace")
    assert "bad.sqlite" in run(tmp_path / "bad.sqlite", "-o", out).complaint
    assert out.read_text() == "before"
    assert run(INPUT, "-o", out).code == 0
    assert out.read_bytes().startswith(b"SQLite format 3")


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "no file stands in the way" in run(INPUT, "-o", tmp_path / "file" / "out.sqlite").complaint


def test_disk_that_is_full(tmp_path: Path) -> None:
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (40_000, 40_000))"
    code = (
        f"import sys; {limit}; from analysis.__main__ import main, run_command; sys.exit(run_command(main))"
    )
    command = [sys.executable, "-c", code, "scrub", str(INPUT), "-o", str(tmp_path / "out.sqlite")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert Ran(done.returncode, done.stdout, done.stderr).complaint
    assert list(tmp_path.iterdir()) == []


def test_no_request_to_cut_to_is_one_line(tmp_path: Path) -> None:
    line = run(INPUT, "-o", tmp_path / "out.sqlite", "--only-requests").complaint
    assert "no range 'request' of domain 'launchgap' to cut to" in line
