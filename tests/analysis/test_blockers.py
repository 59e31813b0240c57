"""What a capture would not take, in traces made for it and in the H200's own."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.attribute import RangeSelector
from analysis.blocker_facts import CaptureFacts, read_capture_facts
from analysis.blocker_rules import RULES, Harm, rule_of_call
from analysis.blockers import Blockers, blocker_findings, find_blockers
from analysis.chrome_trace import read_any_trace
from contract import LaunchgapError
from tests.analysis.commands.run_command import analysis
from tests.analysis.trace_file import DATA, EXAMPLES, PROCESS, SCHEMAS, THREAD, TraceFile

FORWARD = RangeSelector("forward", "")
STREAMS = "streamId, hwId, vmId, processId, contextId, priority, flag"
PAGEABLE, PINNED, DEVICE = 0, 1, 2
TO_DEVICE, TO_HOST = 1, 2


def found(file: TraceFile, selector: RangeSelector = RangeSelector()) -> Blockers:  # noqa: B008
    path = file.save()
    return find_blockers(read_any_trace(path), selector, read_capture_facts(path))


def rows(blockers: Blockers) -> list[tuple[str, str, str, int]]:
    table = blockers.table
    columns = (table[name] for name in ("harm", "blocker", "detail", "count"))
    return list(zip(*columns, strict=True))


def two_requests(path: Path, name: str = "request", domain: str = "launchgap") -> TraceFile:
    """Two requests, at 0 and 10,000 ns, of a kernel at +100 and one at +900."""
    file = TraceFile(path / "trace.sqlite")
    file.domain(domain, 1)
    for start in (0, 10_000):
        file.range(name, start, start + 5_000)
        file.launch("first", (start + 100, start + 110), (start + 200, start + 300))
        file.launch("second", (start + 900, start + 910), (start + 920, start + 1_000))
    return file


def streams(file: TraceFile, *flags: tuple[int, int]) -> None:
    """The list of streams: (id, flag), where the flag 3 is the legacy one."""
    file.execute(f"CREATE TABLE TARGET_INFO_CUDA_STREAM ({STREAMS})")
    for stream, flag in flags:
        file.execute(f"INSERT INTO TARGET_INFO_CUDA_STREAM VALUES ({stream}, 0, 1, 4321, 1, 0, {flag})")


def test_requests_that_are_alike_have_no_blocker(tmp_path: Path) -> None:
    blockers = found(two_requests(tmp_path))
    assert blockers.requests == 2
    assert blockers.table.empty
    assert blockers.changes.empty


@pytest.mark.parametrize(
    ("call", "harm", "blocker"),
    [
        ("cudaStreamSynchronize_v3020", "breaks", "wait for the GPU"),
        ("cudaDeviceSynchronize_v3020", "breaks", "wait for the GPU"),
        ("cudaEventSynchronize_v3020", "breaks", "wait for the GPU"),
        ("cuStreamSynchronize", "breaks", "wait for the GPU"),
        ("cudaMemcpy_v3020", "breaks", "blocking copy or fill"),
        ("cuMemcpyDtoH_v2", "breaks", "blocking copy or fill"),
        ("cudaMemset_v3020", "breaks", "blocking copy or fill"),
        ("cudaStreamAddCallback_v5000", "breaks", "stream callback"),
        ("cudaLaunchHostFunc_v10000", "check", "host function"),
        ("cudaMalloc_v3020", "check", "allocation"),
        ("cudaHostAlloc_v3020", "check", "allocation"),
        ("cudaFree_v3020", "check", "free"),
        ("cuMemFree_v2", "check", "free"),
        ("cudaEventQuery_v3020", "check", "query of a stream or event"),
        ("cuModuleLoadData", "check", "loading of kernels"),
    ],
)
def test_calls_are_told_by_their_names(tmp_path: Path, call: str, harm: str, blocker: str) -> None:
    file = two_requests(tmp_path)
    file.call(call, 400, 430)
    (row,) = found(file).table.to_dict("records")
    assert (row["harm"], row["blocker"], row["count"], row["requests"]) == (harm, blocker, 1, 1)
    assert (row["per_request"], row["host_us_per_request"]) == (0.5, 0.015)
    assert (row["after"], row["after_launches"]) == ("first", 1.0)


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel_v7000",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaStreamIsCapturing",
        "cuKernelGetName",
        "cudaEventRecord",
        "cudaStreamWaitEvent",
        "cudaGraphLaunch_v10000",
        "cudaFuncGetAttributes",
        "cuMemGetInfo_v2",
    ],
)
def test_calls_that_a_capture_takes_are_no_blockers(call: str) -> None:
    assert rule_of_call(call) is None


def test_a_drivers_call_inside_that_of_the_runtime_counts_once(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.call("cudaMalloc_v3020", 400, 500)
    file.call("cuMemAlloc_v2", 410, 490)
    assert rows(found(file)) == [("check", "allocation", "cudaMalloc", 1)]


def test_calls_outside_of_requests_do_not_count(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.call("cudaDeviceSynchronize", 6_000, 7_000)
    file.call("cudaDeviceSynchronize", 4_900, 5_100)
    file.call("cudaDeviceSynchronize", 400, 500, thread=THREAD + 1)
    assert found(file).table.empty


def test_launchgaps_own_input_copy_and_final_wait_are_no_blockers(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.range("copy", 10, 90)
    file.memcpy(
        60, 70, file.call("cudaMemcpyAsync", 20, 40), copyKind=TO_DEVICE, srcKind=PAGEABLE, dstKind=DEVICE
    )
    file.range("synchronize", 4_000, 4_800)
    file.call("cudaDeviceSynchronize", 4_100, 4_700)
    assert found(file).table.empty


@pytest.mark.parametrize(
    ("start", "place"), [(50, "before the first kernel"), (2_000, "after the last kernel")]
)
def test_waits_at_the_ends_of_other_ranges_are_to_be_checked(tmp_path: Path, start: int, place: str) -> None:
    file = two_requests(tmp_path, "step", "mine")
    file.call("cudaDeviceSynchronize", start, start + 20)
    blockers = found(file, RangeSelector("step", "mine"))
    (row,) = blockers.table.to_dict("records")
    assert (row["harm"], row["place"]) == ("check", place)
    (told,) = blocker_findings(blockers.table)
    assert told.severity == "note"
    assert place in told.what


@pytest.mark.parametrize(
    ("kind", "source", "target", "wait", "harm", "blocker"),
    [
        (TO_HOST, DEVICE, PINNED, True, "breaks", "device-to-host copy that is waited for"),
        (TO_HOST, DEVICE, PINNED, False, "check", "device-to-host copy"),
        (TO_HOST, DEVICE, PAGEABLE, False, "breaks", "copy of pageable memory"),
        (TO_DEVICE, PAGEABLE, DEVICE, False, "breaks", "copy of pageable memory"),
        (TO_DEVICE, PINNED, DEVICE, False, "check", "host-to-device copy"),
        (TO_DEVICE, None, None, False, "check", "host-to-device copy"),
    ],
)
def test_copies_are_judged_by_memory_and_wait(
    tmp_path: Path, kind: int, source: int | None, target: int | None, wait: bool, harm: str, blocker: str
) -> None:
    file = two_requests(tmp_path)
    for start in (0, 10_000):
        call = file.call("cudaMemcpyAsync_v3020", start + 400, start + 420)
        file.memcpy(start + 500, start + 530, call, copyKind=kind, srcKind=source, dstKind=target)
        if wait:
            file.call("cudaStreamSynchronize", start + 430, start + 600)
    table = found(file).table
    row = table[table["blocker"] != "wait for the GPU"].to_dict("records")
    assert [(each["harm"], each["blocker"], each["count"]) for each in row] == [(harm, blocker, 2)]
    assert (row[0]["host_us_per_request"], row[0]["gpu_us_per_request"]) == (0.02, 0.03)


def test_copies_within_the_device_are_no_blockers(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    for start in (0, 10_000):
        call = file.call("cudaMemcpyAsync", start + 400, start + 420)
        file.memcpy(start + 500, start + 530, call, copyKind=8, srcKind=DEVICE, dstKind=DEVICE)
    assert found(file).table.empty


def test_a_wait_after_another_launch_is_not_for_the_copy(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    for start in (0, 10_000):
        call = file.call("cudaMemcpyAsync", start + 400, start + 420)
        file.memcpy(start + 500, start + 530, call, copyKind=TO_HOST, srcKind=DEVICE, dstKind=PINNED)
        file.call("cudaStreamSynchronize", start + 2_000, start + 2_010)
    assert ("check", "device-to-host copy", "device to host, pinned memory", 2) in rows(found(file))


def with_side_stream(path: Path, *flags: tuple[int, int]) -> Blockers:
    file = two_requests(path)
    for start in (0, 10_000):
        file.launch("aside", (start + 400, start + 410), (start + 500, start + 560), streamId=13)
    if flags:
        streams(file, *flags)
    return found(file)


def test_work_on_the_legacy_stream_beside_others_corrupts(tmp_path: Path) -> None:
    (row,) = with_side_stream(tmp_path, (7, 3), (13, 2)).table.to_dict("records")
    assert (row["harm"], row["detail"], row["count"]) == ("corrupts", "stream 7", 4)
    assert row["gpu_us_per_request"] == 0.18


@pytest.mark.parametrize("flags", [[(7, 2), (13, 2)], []])
def test_side_streams_are_to_be_checked(tmp_path: Path, flags: list[tuple[int, int]]) -> None:
    blockers = with_side_stream(tmp_path, *flags)
    assert rows(blockers) == [("check", "work on several streams", "stream 13", 2)]
    assert any("does not list its streams" in told.what for told in blockers.findings) is not bool(flags)


def test_all_work_on_the_legacy_stream_is_what_torch_does(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    streams(file, (7, 3))
    blockers = found(file)
    assert blockers.table.empty
    assert any("all kernels ran on the legacy stream" in told.what for told in blockers.findings)


def test_launches_by_other_threads_in_the_time_of_a_request_are_found(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.call("cudaLaunchKernel", 400, 420, thread=THREAD + 5)
    file.call("cudaLaunchKernel", 6_000, 6_020, thread=THREAD + 5)
    file.call("cudaLaunchKernel", 400, 420, thread=PROCESS + (1 << 24) + 7)
    thread = (THREAD + 5) & 0xFFFFFF
    assert rows(found(file)) == [("corrupts", "launches from another thread", f"thread {thread}", 1)]


def test_random_numbers_and_host_nodes_are_to_be_checked(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    for start in (0, 10_000):
        kernel = "void at::native::distribution_elementwise_grid_stride_kernel<float>(int)"
        file.launch(kernel, (start + 400, start + 410), (start + 500, start + 560))
        file.launch("on the host", (start + 600, start + 610), (start + 620, start + 630), deviceId=2**31 - 1)
    assert {(row[0], row[1], row[3]) for row in rows(found(file))} == {
        ("check", "random numbers", 2),
        ("check", "host node of a graph", 2),
    }


def test_what_ran_while_its_thread_captured_escaped(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.call("cudaStreamBeginCapture_v10000", 20_000, 20_010)
    file.call("cudaLaunchKernel", 20_100, 20_110)  # recorded, so nothing runs
    file.launch("escaped", (20_200, 20_210), (20_300, 20_400), streamId=7)
    file.call("cudaStreamEndCapture_v10000", 20_500, 20_510)
    file.launch("later", (20_600, 20_610), (20_700, 20_800))
    (row,) = found(file).table.to_dict("records")
    assert (row["harm"], row["blocker"], row["count"]) == ("corrupts", "work that ran during a capture", 1)
    assert pd.isna(row["per_request"])


def test_launches_that_differ_between_requests(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.launch("now_and_then", (400, 410), (500, 560))
    blockers = found(file)
    assert [(row[0], row[1], row[3]) for row in rows(blockers)] == [
        ("corrupts", "launches that differ between requests", 1)
    ]
    (change,) = blockers.changes.to_dict("records")
    assert (change["kernel"], change["changes"]) == ("now_and_then", "count")
    assert (change["fewest_calls"], change["most_calls"], change["us_per_request"]) == (0, 1, 0.03)


def test_shapes_that_differ_between_requests(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    for number, start in enumerate((0, 10_000)):
        file.launch("grows", (start + 400, start + 410), (start + 500, start + 560), gridX=4 + number)
    blockers = found(file)
    assert [(row[0], row[1], row[3]) for row in rows(blockers)] == [
        ("corrupts", "shapes that differ between requests", 2)
    ]
    (change,) = blockers.changes.to_dict("records")
    assert (change["changes"], change["shapes"], change["unusual_requests"]) == ("shape", 2, 1)
    assert change["example_shapes"].startswith("grid 4x0x0")


def test_the_same_kernel_in_another_order_is_no_change(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.sqlite")
    file.requests((0, 1_000), (10_000, 11_000))
    for start, grids in ((0, (1, 2)), (10_000, (2, 1))):
        for place, grid in enumerate(grids):
            begin = start + 100 * (place + 1)
            file.launch("k", (begin, begin + 10), (begin + 20, begin + 40), gridX=grid)
    assert found(file).changes.empty


def test_a_range_seen_once_cannot_tell_what_changes(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.sqlite")
    file.requests((0, 1_000))
    file.launch("k", (100, 110), (120, 140))
    assert any(told.what == "the range is there once" for told in found(file).findings)


def test_requests_of_nothing_but_replays_have_no_blocker(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.sqlite", mode="graph")
    file.requests((0, 1_000), (10_000, 11_000))
    for start in (0, 10_000):
        file.replay(start + 200, start + 300, file.call("cudaGraphLaunch_v10000", start + 100, start + 110))
    blockers = found(file)
    assert blockers.table.empty
    assert blockers.findings[0].what == "2 of 2 requests replay a graph already"


def test_ranges_that_overlap_are_told(tmp_path: Path) -> None:
    file = two_requests(tmp_path)
    file.range("request", 50, 4_000)
    blockers = found(file)
    assert [told.what for told in blockers.findings if "begin before" in told.what] == [
        "1 of 3 ranges begin before an earlier one of their thread has ended"
    ]


def test_a_range_without_launches_is_refused(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.sqlite")
    file.requests((0, 1_000))
    with pytest.raises(LaunchgapError, match="none of its 1 instances launched"):
        found(file)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_memory_kinds_are_read_from_every_schema(tmp_path: Path, schema: str) -> None:
    file = TraceFile(tmp_path / "trace.sqlite", schema)
    file.requests((0, 1_000))
    file.launch("k", (100, 110), (120, 140))
    file.memcpy(
        300, 320, file.call("cudaMemcpyAsync", 200, 210), copyKind=1, srcKind=PAGEABLE, dstKind=DEVICE
    )
    assert ("breaks", "copy of pageable memory", "host to device, pageable memory", 1) in rows(found(file))


def of_example(path: Path, selector: RangeSelector) -> Blockers:
    return find_blockers(read_any_trace(path), selector, read_capture_facts(path))


def test_gpt2_on_an_h200_asks_the_host_once_a_request() -> None:
    """transformers' question whether a prompt packs several sequences: one byte to the host, and a wait."""
    blockers = of_example(EXAMPLES["eager.node"], FORWARD)
    breaking = blockers.table[blockers.table["harm"] == Harm.BREAKS]
    assert list(zip(breaking["blocker"], breaking["detail"], breaking["per_request"], strict=True)) == [
        ("wait for the GPU", "cudaStreamSynchronize", 1.0),
        ("device-to-host copy that is waited for", "device to host, pinned memory", 1.0),
    ]
    assert set(breaking["after_launches"]) == {15.0}
    assert breaking["after"].str.contains("CompareEqFunctor<long>", regex=False).all()
    told = [finding.what for finding in blockers.findings]
    assert any("packs several sequences" in what for what in told)
    assert any("legacy stream" in what for what in told)
    assert blockers.changes.empty
    assert not (blockers.table["harm"] == Harm.CORRUPTS).any()


def test_nsys_and_torchs_profiler_find_the_same() -> None:
    chrome = of_example(DATA / "chrome" / "h200-gpt2-fp32-eager.torch.json.gz", RangeSelector())
    nsys = of_example(EXAMPLES["eager.node"], FORWARD)
    names = [set(table.loc[table["harm"] == Harm.BREAKS, "blocker"]) for table in (chrome.table, nsys.table)]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", ["graph.node", "graph.graph"])
def test_a_graphs_trace_is_told_as_such(name: str) -> None:
    blockers = of_example(EXAMPLES[name], FORWARD)
    assert blockers.findings[0].what == "20 of 20 requests replay a graph already"
    assert not blockers.table["harm"].isin([Harm.BREAKS, Harm.CORRUPTS]).any()


def test_every_rule_has_a_remedy_in_one_line() -> None:
    assert len({rule.blocker for rule in RULES}) == len(RULES)
    assert all(rule.remedy and "\n" not in rule.remedy + rule.effect for rule in RULES)


def test_a_file_without_streams_knows_no_legacy_one(tmp_path: Path) -> None:
    path = two_requests(tmp_path).save()
    facts = read_capture_facts(path)
    assert facts.legacy_streams is None
    assert not facts.is_legacy(read_any_trace(path).kernels).any()
    assert isinstance(facts, CaptureFacts)


def test_the_command_shows_blockers_with_remedies() -> None:
    ran = analysis("blockers", EXAMPLES["eager.node"], "--range", "forward")
    assert ran.code == 0
    assert "cudaStreamSynchronize" in ran.out
    assert "keep the value on the device" in ran.out


def test_the_command_names_ranges_where_launchgaps_own_is_missing() -> None:
    ran = analysis("blockers", EXAMPLES["eager.node"])
    assert ran.code == 2
    assert "--range: 'forward'" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--range", "forwrd"], "did you mean 'forward'"),
        (["--range", "forward", "--domain", "mine"], "--domain 'mine': not in the trace"),
        (["--range", "forward", "-o", "."], "is a folder"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str) -> None:
    ran = analysis("blockers", EXAMPLES["eager.node"], *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_the_command_writes_a_file_by_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "blockers.csv"
    ran = analysis("blockers", EXAMPLES["eager.node"], "--range", "forward", "-o", path)
    assert (ran.code, ran.out) == (0, "")
    assert "wait for the GPU" in path.read_text()
