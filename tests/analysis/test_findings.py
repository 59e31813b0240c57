import gzip
from pathlib import Path

import pytest

from analysis.finding import Finding
from analysis.findings import inspect
from analysis.trace import read_trace
from tests.analysis.trace_file import EXAMPLES, PROCESS, THREAD, TraceFile

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = sorted((ROOT / "profiles" / "reference").glob("*/*.sqlite.gz"))


def traced(path: Path, *, mode: str | None = "node", schema: str = "3.20.3") -> TraceFile:
    """One range with one launched kernel: nothing to say about it."""
    file = TraceFile(path / "t.sqlite", schema, mode)
    file.range("step", 0, 100, domain=0)
    file.launch("k", (10, 20), (30, 40))
    return file


def found(file: TraceFile) -> tuple[Finding, ...]:
    findings = inspect(read_trace(file.save()))
    for finding in findings:
        assert finding.sentence.isprintable()
        assert finding.sentence == f"{finding.what}: {finding.effect}; {finding.remedy}"
        assert all((finding.what, finding.effect, finding.remedy))
    return findings


def the_finding(file: TraceFile) -> Finding:
    (finding,) = found(file)
    return finding


def session(file: TraceFile, *, duration: int, start: int = 5_000) -> None:
    file.execute("CREATE TABLE ANALYSIS_DETAILS (duration INTEGER, startTime INTEGER, stopTime INTEGER)")
    file.execute(f"INSERT INTO ANALYSIS_DETAILS VALUES ({duration}, {start}, {start + duration})")


def test_sound_trace_has_nothing_to_say(tmp_path: Path) -> None:
    assert found(traced(tmp_path)) == ()


@pytest.mark.parametrize("path", [*EXAMPLES.values(), *REFERENCES], ids=lambda path: path.name)
def test_real_traces_have_nothing_to_say(path: Path) -> None:
    found = inspect(read_trace(path))
    assert [finding for finding in found if finding.severity != "note"] == []
    # nsys 2025 says of every trace that starts in the middle of a program that events may be missing.
    assert ["Not all NVTX events might" in finding.what for finding in found] == [True] * len(found)


def test_export_that_is_gone_is_judged_by_its_events(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(gzip.decompress(EXAMPLES["graph.node"].read_bytes()))
    trace = read_trace(path)
    path.unlink()
    assert inspect(trace) == ()


def test_nothing_was_recorded(tmp_path: Path) -> None:
    first, second = found(TraceFile(tmp_path / "t.sqlite"))
    assert (first.severity, first.what) == ("fatal", "no CUDA activity recorded")
    assert (second.severity, second.what) == ("note", "no NVTX ranges")


def test_ranges_without_cuda(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("step", 0, 100, domain=0)
    finding = the_finding(file)
    assert (finding.severity, finding.what) == ("warning", "no CUDA activity recorded")


def test_calls_that_launch_nothing(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("step", 0, 100, domain=0)
    file.call("cudaMalloc_v3020", 10, 20)
    finding = the_finding(file)
    assert finding.severity == "warning"
    assert finding.what == "1 CUDA calls recorded, but no launch and no GPU work"


def test_launches_without_any_gpu_work_stop_the_report(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("step", 0, 100, domain=0)
    for start in (10, 20, 30):
        file.call("cudaLaunchKernel_v7000", start, start + 5)
    file.diagnostic(2, "Number of incomplete CUPTI events dropped: 3. Incomplete events appear when …")
    first, second = found(file)
    assert (first.severity, first.count) == ("fatal", 3)
    assert "no GPU work recorded, though 3 launches were" in first.what
    assert (second.severity, second.count) == ("warning", 3)


def test_gpu_work_without_calls(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("step", 0, 100, domain=0)
    file.kernel("k", 30, 40, 7)
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("warning", 1)
    assert "no CUDA calls recorded, though 1 GPU operations were" in finding.what


def test_replays_without_gpu_work(tmp_path: Path) -> None:
    file = traced(tmp_path, mode="graph")
    file.call("cudaGraphLaunch_v10000", 50, 60)
    file.replay(70, 80, file.call("cudaGraphLaunch_v10000", 61, 65))
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("warning", 1)
    assert finding.what == "1 of 2 graph launches show no GPU work"


def test_launches_without_operations(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.call("cuLaunchKernelEx", 50, 60)
    file.call("cudaLaunchKernelExC_v11060", 61, 62)
    file.call("cudaMemcpyAsync_v3020", 63, 64)
    finding = the_finding(file)
    assert finding.count == 3
    assert finding.what == "3 of 4 launches show no GPU operation (2 kernel, 1 memcpy)"


def test_other_process_does_not_answer(tmp_path: Path) -> None:
    file = traced(tmp_path)
    other = PROCESS + (1 << 24)
    file.kernel("k", 70, 80, file.call("cudaLaunchKernel_v7000", 50, 60, correlation=55), globalPid=other)
    first, second = found(file)
    assert first.what.startswith("1 of 2 launches show no GPU operation")
    assert second.what == "1 of 2 GPU operations have no launch call in the trace"


def test_two_processes_with_equal_correlation_ids_are_sound(tmp_path: Path) -> None:
    file = traced(tmp_path)
    shift = 1 << 24
    call = file.call("cudaLaunchKernel_v7000", 12, 22, thread=THREAD + shift, correlation=1)
    file.kernel("k", 32, 42, call, globalPid=PROCESS + shift)
    assert found(file) == ()


def test_runtime_call_and_the_driver_call_inside_it_answer_for_each_other(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.call("cuLaunchKernel", 12, 18, correlation=1)
    assert found(file) == ()


def test_launches_during_stream_capture_run_nothing(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.call("cudaStreamBeginCapture_v10000", 50, 51)
    file.call("cudaLaunchKernel_v7000", 52, 53)
    file.call("cudaMemcpyAsync_v3020", 54, 55)
    file.call("cudaStreamEndCapture_v10000", 56, 57)
    file.call("cudaStreamBeginCapture_v10000", 60, 61)
    file.call("cuLaunchKernel", 62, 63)
    file.call("cudaStreamEndCapture_v10000", 64, 65)
    assert found(file) == ()


def test_launches_between_captures_and_on_other_threads_count(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.call("cudaStreamEndCapture_v10000", 44, 45)  # begun before the trace
    file.call("cudaLaunchKernel_v7000", 46, 47)
    file.call("cudaStreamBeginCapture_v10000", 50, 51)
    file.call("cudaLaunchKernel_v7000", 52, 53, thread=THREAD + 1)
    file.call("cudaStreamEndCapture_v10000", 56, 57)
    file.call("cudaLaunchKernel_v7000", 58, 59)
    file.call("cudaStreamBeginCapture_v10000", 70, 71)  # ends after the trace
    assert the_finding(file).what == "3 of 4 launches show no GPU operation (3 kernel)"


def test_mode_that_is_unknown(tmp_path: Path) -> None:
    file = traced(tmp_path, mode=None, schema="3.0.0")
    file.kernel("k", 70, 80, file.call("cudaGraphLaunch_v10000", 50, 60))
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("warning", 1)
    assert "does not say how it recorded its 1 graph launches" in finding.what


def test_call_that_is_not_known_as_a_launch(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.kernel("k", 50, 60, file.call("cuLobKernel", 41, 42))
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("note", 1)
    assert "came from cuLobKernel, not known as launches" in finding.what


def test_two_devices_are_worth_a_note(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.launch("k", (50, 60), (70, 80), deviceId=1)
    finding = the_finding(file)
    assert (finding.severity, finding.what) == ("note", "GPU work on 2 devices")


def test_ranges_that_cannot_be_used(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.range("open", 50, None)
    file.range("crossing", 50, 60, end_thread=THREAD + 1)
    first, second = found(file)
    assert first.what == "1 of 3 ranges never ended (open)"
    assert second.what == "1 of 3 ranges ended on another thread than they began on (crossing)"


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("CUPTI dropped 12 records. Some CUPTI events might be missing.", 12),
        ("Number of incomplete CUPTI events dropped: 345. Incomplete events appear when GPU …", 345),
        ("Couldn't allocate CUPTI buffers 2 times.Some CUPTI events might be missing.", 2),
        ("Could not parse 9 CUPTI activity records. Please try updating the CUDA driver", 9),
        ("Can't associate CUDA device pid=1 cudaId=0 with system GPU. CUDA event processing was stopped", 1),
    ],
)
@pytest.mark.parametrize("severity", [2, 3])
def test_nsys_lost_records(tmp_path: Path, text: str, lost: int, severity: int) -> None:
    file = traced(tmp_path)
    file.diagnostic(severity, text)
    file.diagnostic(1, "CUPTI dropped 0 records. Some CUPTI events might be missing.")
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("warning", lost)
    assert f"nsys lost {lost} records or buffers" in finding.what
    assert text[:20] in finding.what


def test_doubts_are_no_warning(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.diagnostic(2, "Not all CUDA events might have been collected.")
    file.diagnostic(2, "Not all NVTX events might have been collected.")
    file.diagnostic(2, "Not all OpenGL events might have been collected.")
    file.diagnostic(1, "Number of CUPTI events produced: 5000, CUPTI buffers: 3.")
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("note", 2)


def test_errors_of_nsys(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.diagnostic(3, "some\nerror \x1b[31m" + "x" * 100_000)
    file.diagnostic(3, "another")
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("warning", 2)
    assert len(finding.sentence) < 500


def test_diagnostics_without_text(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.execute("CREATE TABLE DIAGNOSTIC_EVENT (severity, text)")
    file.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (3, NULL), (2, 7), (NULL, x'00')")
    assert found(file) == ()


def test_operations_that_start_before_their_call(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.launch("slightly early", (20_000, 20_010), (15_000, 15_010))
    file.launch("early", (90_000_000, 90_000_010), (20_000_000, 20_000_100))
    file.launch("very early", (90_000_000, 90_000_010), (10_000_000, 10_000_100))
    finding = the_finding(file)
    assert (finding.severity, finding.count) == ("warning", 2)
    assert (
        "2 of 4 GPU operations start before the call that launched them, by up to 80.000 ms" in finding.what
    )


def test_replays_without_a_time_are_not_early(tmp_path: Path) -> None:
    file = traced(tmp_path, mode="graph")
    file.replay(0, 0, file.call("cudaGraphLaunch_v10000", 90_000_000, 90_000_010))
    finding = the_finding(file)
    assert (finding.count, finding.what) == (1, "1 of 2 GPU operations carry no time")


def test_events_that_end_before_they_start(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.launch("k", (50, 45), (80, 70))
    file.range("backwards", 90, 80)
    findings = found(file)
    assert [finding.what for finding in findings] == [
        "1 of 2 GPU operations end before they start",
        "1 of 2 CUDA calls end before they start",
        "1 of 2 ranges end before they start",
    ]
    assert {finding.severity for finding in findings} == {"warning"}


def test_all_operations_backwards_stop_the_report(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.range("step", 0, 100, domain=0)
    file.launch("k", (10, 20), (80, 70))
    assert the_finding(file).severity == "fatal"


def test_times_outside_the_session(tmp_path: Path) -> None:
    second = 10**9
    file = traced(tmp_path)
    session(file, duration=10 * second, start=3 * second)
    file.range("before the capture, after nsys began", -3 * second, 50, domain=0)
    file.launch("read out late", (10 * second, 10 * second + 10), (10 * second + 10, 10 * second + 500))
    file.launch("too late", (10 * second + 20, 10 * second + 30), (20 * second, 20 * second + 5))
    file.launch("too early", (-9 * second, -9 * second + 5), (-9 * second + 6, -9 * second + 9))
    assert [(finding.count, finding.what) for finding in found(file)] == [
        (2, "2 of 4 GPU operations lie outside the session"),
        (1, "1 of 4 CUDA calls lie outside the session"),
    ]


def test_session_that_is_not_told_or_not_a_number(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.execute("CREATE TABLE ANALYSIS_DETAILS (duration, startTime)")
    path = file.save()
    assert inspect(read_trace(path)) == ()
    (tmp_path / "odd").mkdir()
    odd = traced(tmp_path / "odd")
    odd.execute("CREATE TABLE ANALYSIS_DETAILS (duration, startTime)")
    odd.execute("INSERT INTO ANALYSIS_DETAILS VALUES ('long', 'early')")
    assert found(odd) == ()


def test_worst_first(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t.sqlite")
    file.call("cudaLaunchKernel_v7000", 10, 20)
    file.diagnostic(3, "an error")
    assert [finding.severity for finding in found(file)] == ["fatal", "warning", "note"]


def test_names_of_ranges_and_calls_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    file = traced(tmp_path)
    file.range("\x1b]0;owned\x07<script>\n\u202e" + "long" * 25_000, 50, None)
    finding = the_finding(file)
    assert len(finding.sentence) < 500
    assert "\\x1b]0;owned\\x07<script> \\u202e" in finding.sentence
