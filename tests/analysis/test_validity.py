from pathlib import Path

import pytest

from analysis.attribute import RangeSelector, attribute
from analysis.trace import read_trace
from analysis.validity import Expectation, Validity, check
from contract import TraceMode
from tests.analysis.trace_file import EXAMPLES, THREAD, TraceFile


def judged(
    file: TraceFile,
    *,
    mode: str = "node",
    requests: int | None = 1,
    simulated: bool = False,
    selector: RangeSelector | None = None,
) -> Validity:
    trace = read_trace(file.save())
    chosen = selector or RangeSelector()
    validity = check(
        trace, attribute(trace, chosen), Expectation(TraceMode(mode), requests, simulated, chosen)
    )
    for sentence in (*validity.findings, *([validity.error] if validity.error else [])):
        assert "\n" not in sentence
        assert ";" in sentence
    return validity


def the_finding(validity: Validity) -> str:
    assert validity.error is None
    (finding,) = validity.findings
    return finding


def the_error(validity: Validity) -> str:
    assert validity.error is not None
    return validity.error


def traced(path: Path, *, mode: str | None = "node", schema: str = "3.20.3") -> TraceFile:
    """One request with one kernel."""
    file = TraceFile(path / "t.sqlite", schema, mode)
    file.requests((0, 100))
    file.launch("k", (10, 20), (30, 40))
    return file


def test_sound_trace_has_nothing_to_say(tmp_path: Path) -> None:
    assert judged(traced(tmp_path)) == Validity(None, ())


@pytest.mark.parametrize(
    ("name", "mode"), [("eager.node", "node"), ("graph.node", "node"), ("graph.graph", "graph")]
)
def test_example_traces_are_sound(name: str, mode: str) -> None:
    trace = read_trace(EXAMPLES[name])
    selector = RangeSelector("forward", "")
    expected = Expectation(TraceMode(mode), 20, simulated=False, selector=selector)
    assert check(trace, attribute(trace, selector), expected) == Validity(None, ())


def test_cuda_was_not_traced(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    assert "no CUDA activity recorded" in the_error(judged(file))


def test_calls_without_kernels_name_the_likely_causes(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    for start in (10, 30):
        file.call("cudaLaunchKernel_v7000", start, start + 5)
    file.diagnostic(3, "CUPTI could\nnot be initialised")
    validity = judged(file)
    error = the_error(validity)
    assert "no kernels recorded, though 2 CUDA calls were" in error
    assert "another profiler" in error
    assert "CUPTI could not be initialised" in validity.findings[0]


def test_kernels_without_our_ranges_name_the_nvtx_pin(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.launch("k", (10, 20), (30, 40))
    error = the_error(judged(file))
    assert "1 kernels but no launchgap ranges" in error
    assert "nvtx 0.2.12 and newer record nothing under nsys older than 2025" in error
    assert "recorded by 2025.3.2.0" in error
    assert "pip install 'nvtx<0.2.12'" in error


def test_ranges_but_no_request(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.domain("launchgap", 1)
    file.range("load", 0, 5)
    file.range("request", 6, None)
    file.launch("k", (10, 20), (30, 40))
    error = the_error(judged(file))
    assert "no complete range 'request' among its ranges (load, request)" in error


def test_foreign_range_that_is_not_there(tmp_path: Path) -> None:
    error = the_error(judged(traced(tmp_path), selector=RangeSelector("forward", "")))
    assert "no range 'forward' in the default domain" in error


def test_launches_from_another_thread(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100))
    file.kernel("k", 30, 40, file.call("cudaLaunchKernel", 10, 20, thread=THREAD + 1))
    error = the_error(judged(file))
    assert "none of the 1 requests launched anything, though the GPU ran 1 kernels" in error


def test_recorded_in_another_mode_than_filed(tmp_path: Path) -> None:
    error = the_error(judged(traced(tmp_path), mode="graph"))
    assert "recorded in node mode, but filed as graph mode" in error
    assert "--trace-mode graph" in error


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (20, "1 of 20 requests are in the trace"),
        (0, "1 request ranges, but the record tells of 0"),
        (None, "no record beside the trace"),
    ],
)
def test_number_of_requests(tmp_path: Path, expected: int | None, words: str) -> None:
    assert words in the_finding(judged(traced(tmp_path), requests=expected))


def test_replays_without_gpu_work(tmp_path: Path) -> None:
    file = traced(tmp_path, mode="graph")
    file.call("cudaGraphLaunch_v10000", 50, 60)
    file.replay(70, 80, file.call("cudaGraphLaunch_v10000", 61, 65))
    finding = the_finding(judged(file, mode="graph"))
    assert "1 of 2 graph launches show no GPU work" in finding


def test_old_nsys_in_graph_mode(tmp_path: Path) -> None:
    file = traced(tmp_path, mode=None, schema="3.0.0")
    file.call("cudaGraphLaunch_v10000", 50, 60)
    first, second = judged(file, mode="graph").findings
    assert "does not say how it recorded graphs" in first
    assert "1 of 1 graph launches show no GPU work" in second


def test_dropped_records(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.call("cudaMemcpyAsync_v3020", 50, 60)
    assert (
        "1 of 2 launches show no GPU operation: GPU counts and times may be too low: records"
        in the_finding(judged(file))
    )


LOST = "GPU counts and times may be too low"
FILLS, COPIES, KERNELS = "cudaMemsetAsync_v3020", "cudaMemcpyAsync_v3020", "cudaLaunchKernel_v7000"


@pytest.mark.parametrize(
    ("silent", "call", "words"),
    [
        (
            (1, 1, 1),
            FILLS,
            "3 of 6 launches show no GPU operation, the same fills of a request: most likely",
        ),
        ((0, 1, 1), FILLS, f"3 of 6 launches show no GPU operation: {LOST}"),
        ((1, 1), FILLS, f"2 of 4 launches show no GPU operation: {LOST}"),
        ((1, 1, None), FILLS, f"2 of 6 launches show no GPU operation: {LOST}"),
        ((1, 1, 1), COPIES, f"3 of 6 launches show no GPU operation: {LOST}"),
        ((1, 1, 1), KERNELS, f"3 of 6 launches show no GPU operation: {LOST}"),
    ],
)
def test_fills_of_no_bytes(tmp_path: Path, silent: tuple[int | None, ...], call: str, words: str) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    starts = [200 * index for index in range(len(silent))]
    file.requests(*((start, start + 100) for start in starts))
    # The later call of the first request comes first in the file, as calls of two threads may.
    for start, place in zip(starts, silent, strict=True):
        for index in (0, 1) if start else (1, 0):
            at = start + 10 + 40 * index
            number = file.call(call, at, at + 10)
            if index != place:
                file.memset(at + 20, at + 30, number)
    (found,) = (one for one in judged(file, requests=len(silent)).findings if "show no GPU operation" in one)
    assert words in found


def test_where_no_fill_shows_anything_their_records_are_missing(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300), (400, 500))
    for start in (0, 200, 400):
        file.call(FILLS, start + 1, start + 5)
        file.launch("k", (start + 10, start + 20), (start + 30, start + 40))
    assert f"3 of 6 launches show no GPU operation: {LOST}" in the_finding(judged(file, requests=3))


def test_operations_without_their_call(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.kernel("k", 50, 60, 999)
    assert "1 GPU operations have no launch call in the trace" in the_finding(judged(file))


def test_unknown_launch(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.kernel("k", 50, 60, file.call("cuLobKernel", 21, 22))
    assert "1 GPU operations came from cuLobKernel, which is not known as a launch" in the_finding(
        judged(file)
    )


def test_replay_without_a_time(tmp_path: Path) -> None:
    file = traced(tmp_path, mode="graph")
    file.replay(0, 0, file.call("cudaGraphLaunch_v10000", 61, 65))
    assert "1 of 2 GPU operations carry no time" in the_finding(judged(file, mode="graph"))


def test_two_devices(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.launch("k", (50, 60), (70, 80), deviceId=1)
    assert "GPU work on 2 devices" in the_finding(judged(file))


def test_counts_that_vary(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.requests((0, 100), (200, 300))
    for start in (10, 30, 210):
        file.launch("k", (start, start + 5), (start + 6, start + 9))
    validity = judged(file, requests=2)
    assert [finding.split(":")[0] for finding in validity.findings] == [
        "kernels vary between requests, from 1 to 2",
        "launches vary between requests, from 1 to 2",
    ]


def test_hidden_nodes_are_no_varying_count(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode="graph")
    file.requests((0, 100), (200, 300))
    file.replay(30, 40, file.call("cudaGraphLaunch", 10, 20))
    file.launch("k", (210, 220), (230, 240))
    assert judged(file, mode="graph", requests=2) == Validity(None, ())


def test_errors_of_nsys_itself(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.diagnostic(1, "fine")
    file.diagnostic(2, "a warning")
    file.diagnostic(3, "lost " * 100)
    file.diagnostic(3, "more")
    finding = the_finding(judged(file))
    assert "nsys itself reports 2 errors" in finding
    assert len(finding) < 400


def test_simulation_needs_no_gpu(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite", mode=None)
    file.requests((0, 100))
    assert judged(file, simulated=True) == Validity(None, ())


def test_simulation_without_ranges(tmp_path: Path) -> None:
    error = the_error(judged(TraceFile(tmp_path / "t.sqlite", mode=None), simulated=True))
    assert error.startswith("no launchgap ranges")
