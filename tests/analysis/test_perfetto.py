"""Files for Perfetto: nothing of the trace is lost, every track nests, every arrow has both ends.

Perfetto's own trace_processor is a program that its Python package downloads when first used, so these tests
check its rules for JSON instead: strict JSON, whole 32-bit ids, no negative times, nesting on each track.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.attribute import RangeSelector, attribute, count_by_request
from analysis.chrome_trace import ChromeTrace, read_chrome_trace
from analysis.commands.perfetto import main
from analysis.perfetto import chrome_lines, event_count
from analysis.perfetto_tracks import lanes
from analysis.schema import HOST_DEVICE
from analysis.summaries import api_summary, kernel_summary
from analysis.trace import Trace, read_trace
from contract import LaunchgapError, TraceMode
from nsight.install import find_nsys
from tests.analysis.chrome_file import eager_and_graph
from tests.analysis.trace_file import EXAMPLES, PROCESS, THREAD, TraceFile

Event = dict[str, Any]
OTHER_PROCESS = (1 << 48) | (777 << 24)
OTHER_MACHINE = (2 << 48) | (4321 << 24)


def _document(trace: Trace) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    text = "\n".join(chrome_lines(trace))
    document = json.loads(text, parse_float=Decimal, parse_constant=refuse)
    assert isinstance(document, dict)
    return document


def _events(trace: Trace) -> list[Event]:
    events = _document(trace)["traceEvents"]
    assert isinstance(events, list)
    return events


def _again(trace: Trace, folder: Path) -> ChromeTrace:
    path = folder / "again.json"
    path.write_text("\n".join(chrome_lines(trace)))
    return read_chrome_trace(path)


def _assert_nested(events: list[Event]) -> None:
    """What Perfetto asks of the slices of each track: any two follow each other or one holds the other."""
    tracks: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        open_ends: list[Decimal] = []
        for start, end in slices:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)
        assert all(a[0] <= b[0] for a, b in pairwise(slices))


def _assert_arrows_bind(events: list[Event], arrows: int) -> None:
    starts = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    ends = Counter((e["id"], e["ph"]) for e in events if e["ph"] in "sf")
    assert len(ends) == 2 * arrows
    assert set(ends.values()) <= {1}
    assert all((e["pid"], e["tid"], e["ts"]) in starts for e in events if e["ph"] in "sf")


@pytest.mark.parametrize("name", EXAMPLES)
def test_round_trip_of_real_traces(name: str, tmp_path: Path) -> None:
    trace = read_trace(EXAMPLES[name])
    again = _again(trace, tmp_path)
    for summary in (kernel_summary, api_summary):
        assert summary(again).equals(summary(trace))
    for table in ("kernels", "memcpys", "memsets", "graph_launches"):
        ours, theirs = getattr(again, table), getattr(trace, table)
        columns = ["start_ns", "end_ns", "device", "stream", "correlation"]
        order = [rows.sort_values(columns)[columns].to_numpy() for rows in (ours, theirs)]
        assert np.array_equal(*order), table
    selector = RangeSelector("forward", "")
    counts = []
    for found in (attribute(again, selector), attribute(trace, selector)):
        tables = (found.kernels, found.launches)
        counts.append([count_by_request(rows, len(found.requests)).tolist() for rows in tables])
    assert len(counts[0][1]) == 20
    assert counts[0] == counts[1]
    assert (
        again.tracer,
        again.nsys_version,
        again.export_schema,
        again.graph_trace_mode,
        again.gpu_names,
    ) == (
        "nsys",
        trace.nsys_version,
        trace.export_schema,
        trace.graph_trace_mode,
        trace.gpu_names,
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_tracks_nest_and_arrows_bind(name: str) -> None:
    trace = read_trace(EXAMPLES[name])
    events = _events(trace)
    _assert_nested(events)
    work = sum(len(t) for t in (trace.kernels, trace.memcpys, trace.memsets, trace.graph_launches))
    _assert_arrows_bind(events, arrows=work)
    shown = [event for event in events if event["ph"] != "M"]
    assert len(shown) == event_count(trace)


def test_round_trip_of_a_trace_of_torch(tmp_path: Path) -> None:
    trace = read_chrome_trace(eager_and_graph().save(tmp_path / "torch.json"))
    again = _again(trace, tmp_path)
    assert again.tracer == "torch"
    assert again.unknown == (*trace.unknown, "diagnostics", "how graphs were made")
    assert "made for Perfetto" in again.warnings[0]
    assert kernel_summary(again).equals(kernel_summary(trace))
    counts = [count_by_request(attribute(t, RangeSelector()).kernels, 2).tolist() for t in (again, trace)]
    assert counts == [[2, 3]] * 2


def _busy(tmp_path: Path) -> Trace:
    """Two processes and another machine, two GPUs, every overlap, equal correlation ids, odd ranges."""
    file = TraceFile(tmp_path / "busy.sqlite")
    file.domain("launchgap", 1)
    file.range("request", -700, 900)
    file.range("crosses", 100, 1000)
    file.range("other domain", 0, 50, domain=0)
    file.range("open", 300, None)
    file.range("ends elsewhere", 10, 20, end_thread=THREAD + 1, event_type=60)
    first = file.call("cudaLaunchKernel_v7000", -600, -500)
    file.call("cuLaunchKernel", -590, -510, correlation=99)
    file.call("cudaLaunchKernel_v7000", -600, -400, thread=OTHER_PROCESS | 778, correlation=first)
    file.call("cudaLaunchKernel_v7000", -600, -400, thread=OTHER_MACHINE | 4321, correlation=first)
    for start, end in ((0, 100), (50, 150), (60, 90), (150, 200)):
        file.kernel("k", start, end, first, graphNodeId=5)
    file.kernel("of the other", 0, 100, first, globalPid=OTHER_PROCESS, deviceId=1)
    file.kernel("of the other machine", 0, 100, first, globalPid=OTHER_MACHINE)
    file.memcpy(40, 60, first, copyKind=8)
    file.kernel("on the host", 40, 60, first, deviceId=HOST_DEVICE, greenContextId=3)
    file.memset(45, 65, None)
    return read_trace(file.save())


def test_processes_machines_and_gpus_are_kept_apart(tmp_path: Path) -> None:
    trace = _busy(tmp_path)
    events = _events(trace)
    _assert_nested(events)
    _assert_arrows_bind(events, arrows=8)  # the fill has no launch
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(groups.values(), key=str.lower) == [
        "GPU 0 · process 4321",
        "GPU 0 · process 4321 of another machine",
        "GPU 1 · process 777",
        "graph nodes on the host · process 4321",
        "process 4321",
        "process 4321 of another machine",
        "process 777",
    ]
    kernels = Counter(groups[e["pid"]] for e in events if e.get("cat") == "kernel")
    assert sorted(kernels.values()) == [1, 1, 1, 4]
    again = _again(trace, tmp_path)
    assert again.kernels.groupby("process").size().sort_values().tolist() == [1, 1, 5]
    assert sorted(again.kernels["device"].unique()) == [0, 1, HOST_DEVICE]
    assert sorted(again.kernels["green_context"].unique()) == [-1, 3]
    assert again.device_count == trace.device_count == 2
    assert attribute(again, RangeSelector()).kernels["name"].value_counts()["k"] == 4


def test_times_before_the_start_of_the_session_are_moved(tmp_path: Path) -> None:
    trace = _busy(tmp_path)
    document = _document(trace)
    assert min(e["ts"] for e in document["traceEvents"] if "ts" in e) == 0
    assert document["launchgap"]["origin_ns"] == -700
    again = _again(trace, tmp_path)
    assert again.kernels["start_ns"].min() == trace.kernels["start_ns"].min() + 700


def test_ids_are_whole_and_fit_32_bits(tmp_path: Path) -> None:
    for event in _events(_busy(tmp_path)):
        for key in ("pid", "tid"):
            assert isinstance(event[key], int)
            assert 0 <= event[key] < 2**31


def test_ranges_come_back_as_they_were(tmp_path: Path) -> None:
    trace = _busy(tmp_path)
    again = _again(trace, tmp_path)
    told = ["name", "domain", "same_thread"]
    assert sorted(map(tuple, again.ranges[told].to_numpy().tolist())) == sorted(
        map(tuple, trace.ranges[told].to_numpy().tolist())
    )
    still_open = again.ranges[again.ranges["end_ns"].isna()]
    assert still_open["name"].tolist() == ["open"]


def test_graph_mode_and_replays_without_a_time(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 1000))
    file.replay(200, 300, file.call("cudaGraphLaunch_v10000", 100, 150))
    file.replay(0, 0, file.call("cudaGraphLaunch_v10000", 400, 450))
    path = file.save()
    again = _again(read_trace(path), tmp_path)
    assert again.graph_trace_mode is TraceMode.GRAPH
    assert again.graph_launches[["start_ns", "end_ns", "graph"]].to_numpy().tolist() == [[200, 300, 3]]


def test_hostile_names_are_json(tmp_path: Path) -> None:
    names = [
        "<script>alert(1)</script>",
        "\x1b[31mred",
        "x" * 100_000,
        "line\nbreak",
        '"quoted\\',
        "naïve 你好",
    ]
    file = TraceFile(tmp_path / "t.sqlite")
    for position, name in enumerate(names):
        file.launch(name, (10 * position, 10 * position + 1), (10 * position + 2, 10 * position + 3))
        file.range(name, 10 * position, 10 * position + 5)
    trace = read_trace(file.save())
    assert all(line.isascii() and "\n" not in line for line in chrome_lines(trace))
    again = _again(trace, tmp_path)
    assert again.kernels["name"].tolist() == names
    assert again.ranges["name"].tolist() == names


def test_an_empty_trace(tmp_path: Path) -> None:
    again = _again(read_trace(TraceFile(tmp_path / "t.sqlite").save()), tmp_path)
    assert not again.has_gpu_work
    assert len(again.api_calls) == len(again.ranges) == 0


def test_lanes_hold_what_nests() -> None:
    spans = sorted(
        [(0, 100), (10, 20), (10, 30), (50, 150), (100, 120), (100, 100), (150, 160)],
        key=lambda s: (s[0], -s[1]),
    )
    starts, ends = np.array(spans).T
    assert lanes(starts, ends).tolist() == [0, 0, 0, 1, 0, 0, 0]


def test_command_writes_plain_and_compressed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = EXAMPLES["graph.graph"]
    plain, packed = tmp_path / "new" / "t.json", tmp_path / "t.json.gz"
    for output in (plain, packed, tmp_path / "again.gz"):
        assert main([str(source), "-o", str(output)]) == 0
    assert "open it in https://ui.perfetto.dev" in capsys.readouterr().out
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert (tmp_path / "again.gz").read_bytes() == packed.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_command_refuses(tmp_path: Path) -> None:
    path = TraceFile(tmp_path / "t.sqlite").save()
    before = path.read_bytes()
    for arguments, message in (
        ([path, "-o", path], "is the trace itself; give another name"),
        ([path, "-o", tmp_path], "is a folder; give a file's name"),
        ([tmp_path / "absent.sqlite", "-o", tmp_path / "o.json"], "cannot be read"),
        ([path], "required: -o/--output; see --help"),
    ):
        with pytest.raises(LaunchgapError, match=message):
            main([str(argument) for argument in arguments])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.sqlite"]


def test_system_ids_are_kept(tmp_path: Path) -> None:
    calls = [e for e in _events(_busy(tmp_path)) if e.get("cat") == "cuda_runtime"]
    assert {e["args"]["tid"] for e in calls} == {THREAD & 0xFFFFFF, 778, 4321}
    assert PROCESS >> 24 & 0xFFFFFF in {e["pid"] for e in calls}


@pytest.mark.nsys
def test_command_reads_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nsys = find_nsys(os.environ)
    program = "import nvtx\nwith nvtx.annotate('request', domain='launchgap'): pass"
    options = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-o", "report"]
    profile = [str(nsys.path), "profile", *options, sys.executable, "-c", program]
    subprocess.run(profile, check=True, capture_output=True, timeout=120)
    assert main(["report.nsys-rep", "-o", "t.json"]) == 0
    ranges = read_chrome_trace(tmp_path / "t.json").ranges
    assert ranges[["domain", "name"]].to_numpy().tolist() == [["launchgap", "request"]]
