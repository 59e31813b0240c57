import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.launches import launch_calls
from analysis.leaks import find_leaks
from analysis.schema import HOST_DEVICE, NO_ID
from analysis.trace import DEFAULT_DOMAIN, read_trace
from contract import TraceMode
from tests.analysis.trace_file import EXAMPLES, PROCESS, THREAD, TraceFile


def test_example_traces_hold_what_they_are_known_to_hold() -> None:
    counts = {}
    for name, path in EXAMPLES.items():
        trace = read_trace(path)
        tables = (trace.kernels, trace.memcpys, trace.memsets, trace.graph_launches, trace.api_calls)
        counts[name] = tuple(len(table) for table in tables)
        assert trace.gpu_names == ("NVIDIA H200",)
        assert trace.device_count == 1
        assert (trace.nsys_version, trace.export_schema) == ("2025.3.2.0", "3.20.3")
        assert trace.graph_trace_mode == name.split(".")[1]
        assert (trace.ranges["name"] == "forward").sum() == 20
        assert trace.has_gpu_work
    assert counts == {
        "eager.node": (4640, 60, 720, 0, 9941),
        "graph.node": (6120, 20, 720, 0, 161),
        "graph.graph": (20, 20, 0, 20, 161),
    }


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=EXAMPLES)
def test_example_traces_give_nothing_away(path: Path) -> None:
    assert find_leaks(path) == []


def test_unpacked_file_reads_as_the_packed_one(tmp_path: Path) -> None:
    packed = EXAMPLES["graph.node"]
    path = tmp_path / "trace.sqlite"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    one, other = read_trace(packed), read_trace(path)
    pd.testing.assert_frame_equal(one.kernels, other.kernels)
    pd.testing.assert_frame_equal(one.ranges, other.ranges)
    assert one.graph_trace_mode is other.graph_trace_mode is TraceMode.NODE


def test_trace_without_events(tmp_path: Path) -> None:
    trace = read_trace(TraceFile(tmp_path / "t.sqlite", mode=None).save())
    assert not trace.has_gpu_work
    assert trace.device_count == 0
    assert trace.graph_trace_mode is None
    assert trace.gpu_names == ()
    for table in (
        trace.kernels,
        trace.memcpys,
        trace.memsets,
        trace.graph_launches,
        trace.api_calls,
        trace.ranges,
    ):
        assert table.empty
        assert table["start_ns"].dtype == np.int64
    assert list(trace.diagnostics.columns) == ["severity", "text"]


def test_range_text_from_the_row_and_from_the_string_table(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("by id", 0, 10, domain=0)
    file.range("by text", 20, 30, domain=0, registered=False)
    file.insert("NVTX_EVENTS", start=40, end=50, eventType=59, globalTid=THREAD, domainId=0)
    ranges = read_trace(file.save()).ranges
    assert ranges["name"].tolist() == ["by id", "by text", ""]
    assert ranges["domain"].tolist() == [DEFAULT_DOMAIN] * 3


def test_domains_are_named_per_process(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    file = TraceFile(tmp_path / "t.sqlite")
    file.domain("launchgap", 1)
    file.domain("CCCL", 1, process=other)
    file.domain("late", 1, process=other)
    for start, thread, domain in ((0, THREAD, 1), (10, other | 5, 1), (20, THREAD, 9)):
        file.range("r", start, start + 5, thread=thread, domain=domain)
    file.insert("NVTX_EVENTS", start=30, end=35, eventType=59, text="r", globalTid=THREAD, domainId=None)
    ranges = read_trace(file.save()).ranges
    assert ranges["domain"].tolist() == ["launchgap", "CCCL", "(domain 9)", DEFAULT_DOMAIN]
    assert ranges["process"].tolist() == [PROCESS, other, PROCESS, PROCESS]


def test_kinds_of_ranges(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("push and pop", -100, -50)
    file.range("start and end", 0, 10, event_type=60)
    file.range("across threads", 0, 10, event_type=60, end_thread=THREAD + 1)
    file.range("said twice", 0, 10, event_type=60, end_thread=THREAD)
    file.range("open", 20, None)
    file.range("a mark", 30, None, event_type=34)
    ranges = read_trace(file.save()).ranges.set_index("name")
    assert sorted(ranges.index) == ["across threads", "open", "push and pop", "said twice", "start and end"]
    assert (ranges["start_ns"]["push and pop"], ranges["end_ns"]["push and pop"]) == (-100, -50)
    assert ranges.index[ranges["end_ns"].isna()].tolist() == ["open"]
    assert ranges.index[~ranges["same_thread"]].tolist() == ["across threads"]


@pytest.mark.parametrize("name", ["CUDA_GRAPH_TRACE_OPTIONS:MODE", "PROCESS_3:CUDA_GRAPH_TRACE_OPTIONS:MODE"])
@pytest.mark.parametrize(("value", "mode"), [("Node", "node"), ("graph", "graph"), ("None", None)])
def test_trace_mode_by_the_files_own_word(
    tmp_path: Path, name: str, value: str, mode: TraceMode | None
) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode=None)
    file.insert("META_DATA_CAPTURE", name="CAPTURE_EVENT_TYPE", value="Cuda")
    file.insert("META_DATA_CAPTURE", name=name, value=value)
    assert read_trace(file.save()).graph_trace_mode == mode


def test_trace_mode_by_what_was_recorded(tmp_path: Path) -> None:
    node = TraceFile(tmp_path / "node.sqlite", "3.0.0")
    node.launch("k", (0, 1), (2, 3), graphNodeId=8589934620)
    trace = read_trace(node.save())
    assert trace.graph_trace_mode is TraceMode.NODE
    assert trace.kernels["graph_node"].tolist() == [8589934620]
    graph = TraceFile(tmp_path / "graph.sqlite", mode=None)
    graph.replay(0, 9, 1)
    assert read_trace(graph.save()).graph_trace_mode is TraceMode.GRAPH
    plain = TraceFile(tmp_path / "plain.sqlite", mode=None)
    plain.launch("k", (0, 1), (2, 3))
    assert read_trace(plain.save()).graph_trace_mode is None


def test_diagnostics_carry_the_label_of_their_severity(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.diagnostic(1, "all is well")
    file.diagnostic(3, "events were lost")
    found = read_trace(file.save()).diagnostics
    assert found["severity"].tolist() == ["Info", "Error"]
    assert found["text"].tolist() == ["all is well", "events were lost"]


def test_diagnostics_without_labels(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.insert("DIAGNOSTIC_EVENT", severity=3, text="events were lost")
    assert read_trace(file.save()).diagnostics["severity"].tolist() == ["3"]


def test_one_name_under_two_ids_is_one_name(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("k", (0, 1), (2, 3))
    file.insert("StringIds", id=77, value="k")
    file.launch("k", (4, 5), (6, 7), demangledName=77)
    kernels = read_trace(file.save()).kernels
    assert kernels["name"].tolist() == ["k", "k"]
    assert len(kernels["name"].cat.categories) == 1


def test_several_processes_devices_streams_and_green_contexts(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    file = TraceFile(tmp_path / "t.sqlite")
    places = [(PROCESS, 0, 7, None), (PROCESS, 1, 7, None), (PROCESS, 1, 13, 2), (other, 0, 7, 5)]
    for start, (process, device, stream, green) in enumerate(places):
        call = file.call("cuLaunchKernelEx", start, start, thread=process | 9, correlation=3)
        values = {"globalPid": process, "deviceId": device, "streamId": stream, "greenContextId": green}
        file.kernel("k", 10 + start, 11 + start, call, **values)
    trace = read_trace(file.save())
    columns = ["process", "device", "stream", "green_context"]
    expected = [(*place[:3], NO_ID if place[3] is None else place[3]) for place in places]
    assert list(trace.kernels[columns].itertuples(index=False, name=None)) == expected
    assert trace.device_count == 2
    assert trace.api_calls["process"].tolist() == [PROCESS] * 3 + [other]
    assert launch_calls(trace.api_calls)["kind"].tolist() == ["kernel"] * 4


def test_green_contexts_of_a_schema_that_knows_none(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", "3.0.0")
    file.launch("k", (0, 1), (2, 3))
    assert read_trace(file.save()).kernels["green_context"].tolist() == [NO_ID]


def test_host_nodes_are_on_no_device(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.replay(0, 9, 1, deviceId=HOST_DEVICE)
    file.replay(10, 19, 2, deviceId=3)
    trace = read_trace(file.save())
    assert trace.device_count == 1
    assert trace.graph_launches["device"].tolist() == [HOST_DEVICE, 3]


@pytest.mark.parametrize("start", [-(2**40), -1, 0, 2**50, 2**62 + 2**61])
def test_times_of_any_size(tmp_path: Path, start: int) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("r", start, start + 7)
    file.launch("k", (start, start + 3), (start + 4, start + 9))
    trace = read_trace(file.save())
    for table, first, last in ((trace.kernels, 4, 9), (trace.api_calls, 0, 3), (trace.ranges, 0, 7)):
        assert table["start_ns"].tolist() == [start + first]
        assert table["end_ns"].tolist() == [start + last]


def test_ids_of_any_size(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    ids = (0, 2**31, 2**32 + 5, 2**40, -7)
    for place, number in enumerate(ids):
        file.kernel("k", place, place + 1, number, globalPid=-(2**63) + place, graphNodeId=2**63 - 1 - place)
    kernels = read_trace(file.save()).kernels
    assert kernels["correlation"].tolist() == list(ids)
    assert kernels["process"].tolist() == [-(2**63) + place for place in range(5)]
    assert kernels["graph_node"].tolist() == [2**63 - 1 - place for place in range(5)]


def test_small_tables_only(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.launch("k", (10, 20), (30, 40))
    file.memset(50, 60, file.call("cudaMemsetAsync", 21, 22), deviceId=4)
    whole, small = read_trace(file.save()), read_trace(file.path, small_tables_only=True)
    assert small.kernels.empty
    assert small.api_calls.empty
    assert list(small.kernels.columns) == list(whole.kernels.columns)
    pd.testing.assert_frame_equal(small.memsets, whole.memsets)
    pd.testing.assert_frame_equal(small.ranges, whole.ranges)
    assert small.device_count == 1


def test_graph_nodes_of_a_real_trace() -> None:
    trace = read_trace(EXAMPLES["graph.node"])
    nodes, used = trace.graph_nodes, set(trace.kernels["graph_node"]) - {NO_ID}
    assert len(nodes) == 1060
    assert used
    assert used <= set(nodes["graph_node"])
    assert read_trace(EXAMPLES["eager.node"]).graph_nodes.empty
