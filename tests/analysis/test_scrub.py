import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from analysis.attribute import RangeSelector, attribute
from analysis.leaks import find_leaks
from analysis.scrub import scrub, scrub_to
from analysis.summaries import api_summary, kernel_summary
from analysis.tables import CountedTrace, TraceLabel, requests_table
from analysis.trace import Trace, read_trace
from contract import LaunchgapError, TraceMode
from tests.analysis.trace_file import EXAMPLES, PROCESS, SCHEMAS, THREAD, TraceFile

FORWARD = RangeSelector("forward", "")
SECRETS = (
    "TOKEN=hunter2",
    "secret-host",
    "somebody",
    "/home/somebody",
    "GPU-3f1c2b4a-0000-1111-2222-0123456789ab",
)


def leaky(path: Path, schema: str = "3.20.3") -> TraceFile:
    """A trace as nsys writes it: with the environment, names, paths and identifiers in many places."""
    file = TraceFile(path, schema)
    about = "EXPORT_META_DATA" if schema == "3.0.0" else "META_DATA_EXPORT"
    for name, value in (
        *(("EXPORT_HOST", "secret-host"), ("EXPORT_USER", "somebody")),
        *(
            ("EXPORT_PARAM_INPUT_FILE", "/home/somebody/a.nsys-rep"),
            ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ),
    ):
        file.insert(about, name=name, value=value)
    file.insert("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="secret-host")
    file.insert(
        "TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="TOKEN=hunter2\x00HOME=/home/somebody"
    )
    file.insert("PROCESSES", globalPid=PROCESS, pid=4321, name="/home/somebody/bin/python")
    file.insert("TARGET_INFO_GPU", id=0, name="NVIDIA H200", uuid=SECRETS[-1], ctrlDevPath="/dev/nvidia0")
    file.string("TOKEN=hunter2 HOME=/home/somebody")
    if "META_DATA_CAPTURE" in SCHEMAS[schema]:
        file.insert("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT", value="TOKEN=hunter2")
        file.insert("META_DATA_CAPTURE", name="PROCESS_0:COLLECT_CUDA_TRACE", value="true")
    if "DIAGNOSTIC_EVENT" in SCHEMAS[schema]:
        file.diagnostic(1, "started /home/somebody/bin/python")
        file.diagnostic(3, "lost /home/somebody/x")
    file.domain("launchgap", 1)
    file.range("load", 0, 50)
    file.range("warm-up", 60, 95)
    file.launch("warm-up kernel", (61, 62), (63, 150))
    file.range("request", 100, 200)
    file.range("copy", 101, 120)
    file.launch("first", (110, 112), (190, 230))
    file.range("request", 300, 400, registered=False)
    file.launch("second", (310, 312), (410, 450))
    file.range("afterwards", 500, 600)
    file.launch("third", (510, 512), (520, 530))
    return file


def opened(content: bytes, folder: Path, name: str = "clean.sqlite") -> Trace:
    path = folder / name
    path.write_bytes(content)
    return read_trace(path)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_nothing_secret_is_left(tmp_path: Path, schema: str) -> None:
    path = leaky(tmp_path / "t.sqlite", schema).save()
    assert find_leaks(path, ["secret-host", "somebody"])
    content = scrub(path)
    for secret in SECRETS:
        assert secret.encode() not in content
    clean = tmp_path / "clean.sqlite"
    clean.write_bytes(content)
    assert find_leaks(clean, ["secret-host", "somebody"]) == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_counting_needs_is_left(tmp_path: Path, schema: str) -> None:
    path = leaky(tmp_path / "t.sqlite", schema).save()
    before, after = read_trace(path), opened(scrub(path), tmp_path)
    pd.testing.assert_frame_equal(before.kernels, after.kernels)
    pd.testing.assert_frame_equal(before.api_calls, after.api_calls)
    pd.testing.assert_frame_equal(before.ranges, after.ranges)
    assert (after.export_schema, after.nsys_version) == (schema, before.nsys_version)
    assert after.graph_trace_mode is before.graph_trace_mode
    assert after.gpu_names == ("NVIDIA H200",)


def test_errors_of_nsys_stay_without_their_text(tmp_path: Path) -> None:
    found = opened(scrub(leaky(tmp_path / "t.sqlite").save()), tmp_path).diagnostics
    assert found.to_numpy().tolist() == [["Error", ""]]


def test_lost_records_stay_told_without_what_stands_around(tmp_path: Path) -> None:
    file = leaky(tmp_path / "t.sqlite")
    file.diagnostic(
        2, "python in /home/somebody: CUPTI dropped 7 records. Some CUPTI events might be missing."
    )
    file.diagnostic(2, "Not all CUDA events might have been collected.")
    found = opened(scrub(file.save()), tmp_path).diagnostics
    assert found.to_numpy().tolist() == [
        ["Error", ""],
        ["Warning", "CUPTI dropped 7 records."],
        ["Warning", "Not all CUDA events might have been collected."],
    ]


def test_into_a_file_of_the_same_content(tmp_path: Path) -> None:
    path = leaky(tmp_path / "t.sqlite").save()
    for only_requests in (False, True):
        target = tmp_path / f"clean {only_requests}.sqlite"
        scrub_to(path, target, only_requests=only_requests)
        in_memory = opened(scrub(path, only_requests=only_requests), tmp_path)
        for name in ("kernels", "memcpys", "api_calls", "ranges"):
            pd.testing.assert_frame_equal(getattr(read_trace(target), name), getattr(in_memory, name))
        assert find_leaks(target, ["secret-host", "somebody"]) == []


def test_diagnostics_without_labels_are_dropped(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.insert("DIAGNOSTIC_EVENT", severity=3, text="lost /home/somebody/x")
    assert opened(scrub(file.save()), tmp_path).diagnostics.empty


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("only_requests", [False, True])
def test_example_traces_keep_their_numbers(tmp_path: Path, path: Path, only_requests: bool) -> None:
    before = read_trace(path)
    after = opened(scrub(path, only_requests=only_requests, selector=FORWARD), tmp_path)
    pd.testing.assert_frame_equal(kernel_summary(before, by_shape=True), kernel_summary(after, by_shape=True))
    if not only_requests:
        pd.testing.assert_frame_equal(api_summary(before), api_summary(after))
    label = TraceLabel("x", before.graph_trace_mode or TraceMode.NODE)
    one, other = (
        requests_table([CountedTrace(label, attribute(trace, FORWARD), has_gpu=True)])
        for trace in (before, after)
    )
    pd.testing.assert_frame_equal(one, other)


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    path = leaky(tmp_path / "t.sqlite").save()
    assert scrub(path) == scrub(path)
    assert scrub(path, only_requests=True) == scrub(path, only_requests=True)
    clean = tmp_path / "clean.sqlite"
    clean.write_bytes(scrub(path))
    assert scrub(clean) == clean.read_bytes()


def test_input_is_left_alone(tmp_path: Path) -> None:
    path = leaky(tmp_path / "t.sqlite").save()
    before = path.read_bytes()
    scrub(path)
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["t.sqlite"]


def test_only_requests(tmp_path: Path) -> None:
    trace = opened(scrub(leaky(tmp_path / "t.sqlite").save(), only_requests=True), tmp_path)
    assert trace.kernels["name"].tolist() == ["first", "second"]
    assert trace.api_calls["start_ns"].tolist() == [110, 310]
    assert trace.ranges["name"].tolist() == ["load", "warm-up", "request", "copy", "request"]
    assert set(trace.ranges["domain"]) == {"launchgap"}
    found = attribute(trace, RangeSelector())
    assert found.unlaunched == 0
    assert found.kernels["request"].tolist() == [0, 1]


def test_only_requests_keeps_what_no_call_explains(tmp_path: Path) -> None:
    file = leaky(tmp_path / "t.sqlite")
    file.kernel("lost its call, inside", 250, 260, 999)
    file.kernel("lost its call, outside", 700, 710, 999)
    other = file.call("cudaLaunchKernel", 320, 330, thread=THREAD + (1 << 24), correlation=1)
    file.kernel("of another process", 335, 340, other, globalPid=PROCESS + (1 << 24))
    trace = opened(scrub(file.save(), only_requests=True), tmp_path)
    assert set(trace.kernels["name"]) == {"first", "second", "lost its call, inside", "of another process"}


def test_only_requests_without_cuda(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", "3.0.0")
    file.requests((0, 100))
    file.range("later", 200, 300)
    trace = opened(scrub(file.save(), only_requests=True), tmp_path)
    assert trace.ranges["name"].tolist() == ["request"]


def test_only_requests_without_requests(tmp_path: Path) -> None:
    path = leaky(tmp_path / "t.sqlite").save()
    with pytest.raises(LaunchgapError, match=r"no range 'forward' of domain '' to cut to"):
        scrub(path, only_requests=True, selector=FORWARD)


def test_strings_are_cut_down_to_those_in_use(tmp_path: Path) -> None:
    opened(scrub(leaky(tmp_path / "t.sqlite").save(), only_requests=True), tmp_path)
    with sqlite3.connect(tmp_path / "clean.sqlite") as connection:
        texts = {row[0] for row in connection.execute("SELECT value FROM StringIds")}
    connection.close()
    assert texts == {"cudaLaunchKernel_v7000", "first", "second", "load", "warm-up", "request", "copy"}


def test_secret_in_a_kept_place_is_refused(tmp_path: Path) -> None:
    file = leaky(tmp_path / "t.sqlite")
    file.range("reading /home/somebody/model", 150, 160)
    path = file.save()
    with pytest.raises(LaunchgapError, match=r"1 texts that must not be shared .* StringIds\.value: path"):
        scrub(path)


def test_recorded_host_name_in_a_kept_place_is_refused(tmp_path: Path) -> None:
    file = leaky(tmp_path / "t.sqlite")
    file.range("on secret-host", 150, 160, registered=False)
    path = file.save()
    with pytest.raises(LaunchgapError, match=r"NVTX_EVENTS\.text: name of the host or user"):
        scrub(path)


def test_unused_table_and_columns_are_not_kept(tmp_path: Path) -> None:
    path = leaky(tmp_path / "t.sqlite").save()
    opened(scrub(path), tmp_path)
    with sqlite3.connect(tmp_path / "clean.sqlite") as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        columns = {row[1] for row in connection.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
    connection.close()
    assert not tables & {"PROCESSES", "TARGET_INFO_SYSTEM_ENV"}
    assert "mangledName" not in columns


def test_damaged_pages(tmp_path: Path) -> None:
    file = leaky(tmp_path / "t.sqlite")
    for start in range(1000, 5000, 4):
        file.launch("k", (start, start + 1), (start + 2, start + 3))
    path = file.save()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    with pytest.raises(LaunchgapError, match="damaged"):
        scrub(path)
