"""`--report`: NVIDIA's own reports as `analysis.nvidia` makes them, whose tests hold them against nsys."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.commands import large
from analysis.commands.reports import TITLES, list_reports
from analysis.commands.select import Selection, select
from analysis.commands.views import Request, view_trace
from analysis.nvidia import REPORTS
from analysis.trace import read_trace
from tests.analysis.commands.run_command import analysis, busy_trace
from tests.analysis.trace_file import EXAMPLES, TraceFile

NODES = EXAMPLES["graph.node"]


def test_every_report_there_is_can_be_asked_for() -> None:
    assert list(TITLES) == list(REPORTS)


def test_the_list_needs_no_trace_and_loads_nothing_heavy() -> None:
    ran = analysis("--list-reports")
    assert (ran.code, ran.out, ran.err) == (0, list_reports(), "")
    assert [line.split()[0] for line in ran.out.splitlines()] == list(REPORTS)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_is_that_of_the_library(name: str) -> None:
    view, fatal = view_trace(NODES, Request(Selection(), None, (), force=False, reports=(name,)))
    (section,) = view.sections
    assert not fatal
    assert section.name == name
    pd.testing.assert_frame_equal(section.table, REPORTS[name](read_trace(NODES)))


def test_csv_has_the_columns_of_nsys_and_every_row() -> None:
    expected = REPORTS["cuda_gpu_kern_sum"](read_trace(NODES))
    ran = analysis(NODES, "--report", "cuda_gpu_kern_sum", "--format", "csv")
    header, *rows = csv.reader(io.StringIO(ran.out))
    assert header == list(expected.columns)
    assert [int(row[1]) for row in rows] == expected["Total Time (ns)"].tolist()
    assert [row[-1] for row in rows] == expected["Name"].tolist()


def test_two_reports_into_a_file(tmp_path: Path) -> None:
    out = tmp_path / "reports.json"
    words = ("--report", "cuda_api_sum", "--report", "cuda_gpu_mem_time_sum", "--report", "cuda_api_sum")
    ran = analysis(NODES, *words, "-o", out)
    assert (ran.code, ran.out) == (0, "")
    content = json.loads(out.read_text())
    assert content["kind"] == "trace-reports"
    assert list(content["tables"]) == ["cuda_api_sum", "cuda_gpu_mem_time_sum"]
    assert content["tables"]["cuda_api_sum"][0]["Name"] == "cudaDeviceSynchronize"


@pytest.mark.parametrize("form", ["table", "md"])
def test_a_reader_sees_one_decimal_as_nsys_prints(form: str) -> None:
    ran = analysis(NODES, "--report", "cuda_gpu_mem_time_sum", "--format", form)
    # The one kind of copy: 20 of 1115.2 ns on average.
    (row,) = [line.replace("|", " ").split() for line in ran.out.splitlines() if "Device-to-Device" in line]
    assert row[:4] == ["3.0", "22,304", "20", "1,115.2"]


def test_a_report_of_a_part_of_a_trace(tmp_path: Path) -> None:
    path = busy_trace(tmp_path)
    words = ("--report", "cuda_kern_exec_sum", "--process", "4322", "--format", "json")
    content = json.loads(analysis(path, *words).out)
    assert content["trace"]["only_process"] == 4322
    expected = REPORTS["cuda_kern_exec_sum"](select(read_trace(path), Selection(process=4322)))
    (row,) = content["tables"]["cuda_kern_exec_sum"]
    assert (row["PID"], row["Kernel Name"]) == (4322, "other")
    assert row["TAvg (ns)"] == expected["TAvg (ns)"].item()


def test_ids_are_shown_so_that_they_can_be_copied(tmp_path: Path) -> None:
    told = analysis(busy_trace(tmp_path), "--report", "cuda_kern_exec_sum").out
    assert "4321" in told
    assert "4,321" not in told


def test_a_fatal_finding_keeps_reports_back_too(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "launches.sqlite")
    file.call("cudaLaunchKernel_v7000", 10, 20)
    ran = analysis(file.save(), "--report", "cuda_api_sum")
    assert ran.code == 2
    assert "cudaLaunchKernel" not in ran.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--report", "cuda_kern_sum"), "did you mean 'cuda_gpu_kern_sum'"),
        (("--report", "gpukernsum"), "did you mean 'cuda_gpu_kern_sum' or 'cuda_gpu_kern_gb_sum'"),
        (("--report", "GPU-Gaps"), "did you mean 'gpu_gaps'?"),
        (("--report", "zzz"), "there is no such report; --list-reports names all of them"),
        (("--report", ""), "there is no such report; --list-reports"),
        (("--report", "\x1b[31m" + "x" * 100_000), "--list-reports"),
        (("--report", "gpu_gaps", "--range", "step"), "a report is of a trace or a part of it"),
        (("--report", "gpu_gaps", "--table", "kernels"), "a report is a table of its own"),
    ],
)
def test_a_report_that_cannot_be_made_is_one_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    complaint = analysis(tmp_path / "never read.sqlite", *words).complaint
    assert told in complaint
    assert len(complaint) < 300


def test_of_a_huge_trace_it_is_said_that_reports_read_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "LARGE_EVENTS", 0)
    view, _ = view_trace(
        busy_trace(tmp_path), Request(Selection(), None, (), force=False, reports=("gpu_gaps",))
    )
    (note,) = [finding for finding in view.findings if "reads all 26 kernels and API calls" in finding.what]
    assert note.severity == "note"
    assert "GiB of memory" in note.effect
