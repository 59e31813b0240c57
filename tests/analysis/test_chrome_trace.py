"""Traces of torch.profiler: the same tables as of an nsys trace, exact times; the unknown is not zero."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from analysis.attribute import RangeSelector, attribute, count_by_request, hidden_requests
from analysis.chrome_trace import ALWAYS_UNKNOWN, read_chrome_trace
from analysis.schema import DIAGNOSTIC_ERROR_LABEL
from analysis.trace import read_trace
from contract import LaunchgapError, TraceMode
from tests.analysis.chrome_file import BASE_US, PID, TID, ChromeFile, eager_and_graph, us
from tests.analysis.trace_file import EXAMPLES

TABLES = ("kernels", "memcpys", "memsets", "graph_launches", "api_calls", "ranges", "graph_nodes")
BASE_NS = BASE_US * 1000


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return eager_and_graph().save(tmp_path / "t.json.gz")


def test_columns_and_types_are_those_of_an_nsys_trace(sample: Path) -> None:
    ours, theirs = read_chrome_trace(sample), read_trace(EXAMPLES["eager.node"])
    for name in TABLES:
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert set(other.columns) <= set(mine.columns), name
        for column in other.columns:
            # Integers may be of any width.
            kinds = [str(frame[column].dtype.kind) for frame in (mine, other)]
            assert kinds[0] == kinds[1], (name, column)


def test_times_are_exact_to_the_nanosecond(sample: Path) -> None:
    kernels = read_chrome_trace(sample).kernels
    gemm = kernels[kernels["name"] == "void gemm<float>(float*)"].iloc[0]
    assert float(us(2_501)) * 1000 != BASE_NS + 2_501  # a float would not do
    assert (gemm["start_ns"] - BASE_NS, gemm["end_ns"] - BASE_NS) == (2_501, 3_508)
    shape = [gemm[f"{kind}_{axis}"] for kind in ("grid", "block") for axis in "xyz"]
    assert shape == [2, 3, 4, 128, 1, 1]
    assert (gemm["device"], gemm["stream"]) == (0, 7)


def test_launches_graph_replays_and_ranges_are_attributed(sample: Path) -> None:
    found = attribute(read_chrome_trace(sample), RangeSelector())
    assert count_by_request(found.kernels, 2).tolist() == [2, 3]
    assert count_by_request(found.memcpys, 2).tolist() == [1, 0]
    assert count_by_request(found.memsets, 2).tolist() == [0, 1]
    assert count_by_request(found.launches, 2).tolist() == [3, 1]
    assert found.launches["kind"].value_counts().to_dict() == {"kernel": 2, "memcpy": 1, "graph": 1}
    assert found.launches["answered"].all()
    assert found.unlaunched == 0
    assert hidden_requests(found).size == 0


def test_copies_and_sets(sample: Path) -> None:
    trace = read_chrome_trace(sample)
    assert trace.memcpys[["bytes", "copy_kind"]].to_numpy().tolist() == [[400, 1]]
    assert trace.memsets["bytes"].tolist() == [16]


def test_what_the_tracer_cannot_know_is_unknown(sample: Path, tmp_path: Path) -> None:
    trace = read_chrome_trace(sample)
    assert (trace.tracer, trace.nsys_version, trace.export_schema) == ("torch", None, None)
    assert trace.graph_trace_mode is TraceMode.NODE
    assert len(trace.warnings) == 1
    assert all(part in trace.warnings[0] for part in ("recorded by torch.profiler", *trace.unknown))
    assert trace.unknown[:-1] == ALWAYS_UNKNOWN
    assert trace.unknown[-1] == "which node of a graph a kernel is"
    assert (trace.kernels["graph_node"] == -1).all()
    newer = eager_and_graph()
    newer.kernel("node", 14_000, 14_100, 5, **{"graph id": 3, "graph node id": 12_884_901_889})
    told = read_chrome_trace(newer.save(tmp_path / "newer.json"))
    assert told.unknown == ALWAYS_UNKNOWN
    assert told.kernels["graph_node"].max() == 12_884_901_889


def test_gpus_and_what_the_profiler_logged(tmp_path: Path) -> None:
    file = ChromeFile(WARNING=["Exceeded max GPU buffer count"], ERROR=["CUPTI failed"])
    file.launch("a", (0, 10), (20, 30), device=1)
    file.launch("a", (40, 50), (60, 70))
    trace = read_chrome_trace(file.save(tmp_path / "t.json"))
    assert trace.gpu_names == ("NVIDIA H200",)
    assert trace.device_count == 2
    assert trace.kernels["device"].tolist() == [1, 0]
    severities = dict(zip(trace.diagnostics["text"], trace.diagnostics["severity"], strict=True))
    assert severities == {"CUPTI failed": DIAGNOSTIC_ERROR_LABEL, "Exceeded max GPU buffer count": "Warning"}


def test_foreign_ranges_are_in_the_default_domain(tmp_path: Path) -> None:
    file = ChromeFile()
    file.range("ProfilerStep#3", 0, 100)
    file.range("request", 10, 90)
    file.range("never ended", 20, 100, finished=False)
    ranges = read_chrome_trace(file.save(tmp_path / "t.json")).ranges
    assert dict(zip(ranges["name"], ranges["domain"], strict=True)) == {
        "ProfilerStep#3": "",
        "request": "launchgap",
        "never ended": "",
    }
    assert ranges["end_ns"].isna().tolist() == [False, False, True]
    assert (ranges["thread"] == PID << 24 | TID).all()


def test_no_gpu_work_is_no_mode(tmp_path: Path) -> None:
    file = ChromeFile(deviceProperties=[])
    file.range("request", 0, 100)
    trace = read_chrome_trace(file.save(tmp_path / "t.json"))
    assert not trace.has_gpu_work
    assert trace.graph_trace_mode is None
    assert trace.gpu_names == ()


def test_categories_before_torch_1_12(tmp_path: Path) -> None:
    file = ChromeFile()
    correlation = file.call("cudaLaunchKernel", 0, 10, cat="Runtime")
    file.work("Kernel", "k", 20, 30, correlation)
    file.work("Memcpy", "Memcpy DtoH (Device -> Pageable)", 40, 50, correlation, bytes=8)
    file.work("Memset", "Memset (Device)", 60, 70, correlation, bytes=8)
    trace = read_chrome_trace(file.save(tmp_path / "t.json"))
    assert [len(table) for table in (trace.kernels, trace.memcpys, trace.memsets, trace.api_calls)] == [1] * 4
    assert trace.memcpys["copy_kind"].tolist() == [2]


def test_a_real_profile_of_the_cpu(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(3):
            with record_function("request"), record_function("forward"):
                torch.ones(3) + 1
    path = tmp_path / "t.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_chrome_trace(path)
    assert trace.ranges["name"].value_counts().to_dict() == {"request": 3, "forward": 3}
    inner, outer = (trace.ranges[trace.ranges["name"] == name] for name in ("forward", "request"))
    assert (inner["start_ns"].to_numpy() >= outer["start_ns"].to_numpy()).all()
    assert (inner["end_ns"].to_numpy() <= outer["end_ns"].to_numpy()).all()
    assert (outer["thread"] == outer["process"] | threading.get_native_id()).all()
    assert not trace.has_gpu_work
    assert len(trace.api_calls) == 0


def test_several_processes_in_one_file(tmp_path: Path) -> None:
    file = ChromeFile()
    file.call("cudaLaunchKernel", 0, 10)
    second = file.call("cudaLaunchKernel", 0, 10, pid=PID + 1, tid=PID + 1)
    file.kernel("of the second", 20, 30, second)
    trace = read_chrome_trace(file.save(tmp_path / "t.json"))
    assert trace.kernels["process"].tolist() == [PID + 1 << 24]
    file.add("cuda_runtime", "cudaLaunchKernel", 40, 50, args={"correlation": second})
    with pytest.raises(LaunchgapError, match="merged of 2 processes with equal correlation ids"):
        read_chrome_trace(file.save(tmp_path / "t.json"))


def test_hostile_names_arrive_whole(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "\x1b[31mred", "x" * 100_000, "nul\0", "naïve 你好", '"quoted"']
    file = ChromeFile()
    for name in names:
        file.launch(name, (0, 10), (20, 30))
    assert read_chrome_trace(file.save(tmp_path / "t.json")).kernels["name"].tolist() == names
    raw = file.text().encode().replace(b"\\u001b", b"\x1b").replace(b'"quoted', b'"\xff\xfe quoted')
    raw = raw.replace(b'\\"\xff', b"\xff").replace(b'quoted\\"', b"quoted")
    (tmp_path / "raw.json").write_bytes(raw)
    assert len(read_chrome_trace(tmp_path / "raw.json").kernels) == len(names)


def test_numbers_that_json_forbids_are_read_around(tmp_path: Path) -> None:
    text = (
        eager_and_graph().text().replace('"memory bandwidth (GB/s)": 0.2', '"memory bandwidth (GB/s)": NaN')
    )
    (tmp_path / "t.json").write_text(text)
    assert len(read_chrome_trace(tmp_path / "t.json").memcpys) == 1


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"user_annotation","name":"a","ts":1,"dur":2,"pid":1,"tid":1}'
    (tmp_path / "t.json").write_text(f"[{event}]")
    ranges = read_chrome_trace(tmp_path / "t.json").ranges
    assert ranges[["start_ns", "end_ns"]].to_numpy().tolist() == [[1000, 3000]]


def _kernel(**change: object) -> str:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2.0} | change
    return '{"traceEvents": [' + json.dumps(event) + "]}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("hello", "no complete JSON"),
        ('{"traceEvents": [{"ph": "X"', "no complete JSON"),
        ("{}", "no Chrome trace"),
        ("3", "no Chrome trace"),
        ('{"traceEvents": 3}', "no Chrome trace"),
        ("[" * 100_000, "nested too deeply"),
        (_kernel(ts=None), "event 'k' has .* for ts"),
        (_kernel(ts="soon"), "event 'k' has 'soon' for ts"),
        (_kernel(ts=True), "event 'k' has 'True' for ts"),
        (_kernel(dur=None), "event 'k' has 'None' for dur"),
        (_kernel(dur=-1), "event 'k' has '-1' for dur"),
        (_kernel(ts=1e300), "for ts"),
        (_kernel(args={"correlation": "x"}), "event 'k' has 'x' for correlation"),
        (_kernel(args={"stream": 2.5}), "event 'k' has '2.5' for stream"),
        (_kernel(args={"device": 2**70}), "for device"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(LaunchgapError, match=message) as caught:
        read_chrome_trace(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_and_truncated_files(tmp_path: Path, sample: Path) -> None:
    with pytest.raises(LaunchgapError, match=r"absent\.json: cannot be read \(No such file"):
        read_chrome_trace(tmp_path / "absent.json")
    sample.write_bytes(sample.read_bytes()[:-20])
    with pytest.raises(LaunchgapError, match="no complete gzip file"):
        read_chrome_trace(sample)
    sample.write_bytes(gzip.compress(eager_and_graph().text().encode()[:-300]))
    with pytest.raises(LaunchgapError, match="no complete JSON"):
        read_chrome_trace(sample)
