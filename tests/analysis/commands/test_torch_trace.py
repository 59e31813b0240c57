"""Traces of torch.profiler are accepted wherever an export of nsys is; what they do not tell is unknown."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.chrome_file import ChromeFile, eager_and_graph
from tests.analysis.commands.run_command import ROOT, analysis
from tests.analysis.trace_file import EXAMPLES

BY_TORCH = {
    name: ROOT / f"tests/data/chrome/h200-gpt2-fp32-{name}.torch.json.gz" for name in ("eager", "graph")
}
BY_NSYS = ROOT / "profiles/reference/gpt2-float32-p50-m1024"
STRATEGIES = sorted(BY_TORCH)


def shown(*words: str | Path) -> dict[str, Any]:
    ran = analysis(*words, "--format", "json")
    assert ran.code == 0, ran
    content = json.loads(ran.out)
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_tracer_is_named_and_what_it_does_not_tell_is_unknown(strategy: str) -> None:
    content = shown(BY_TORCH[strategy])
    facts = content["trace"]
    assert facts["tracer"] == "torch.profiler"
    for name in ("nsys_version", "export_schema", "capture_flags", "domains", "api_calls"):
        assert facts[name] is None
    assert "whether records were dropped" in facts["unknown"]
    assert facts["gpus_of_host"] == ["NVIDIA H200"]
    (device,), (process,) = content["tables"]["devices"], content["tables"]["processes"]
    assert (device["gpu"], device["graph_replays"]) == ("NVIDIA H200", None)
    assert (process["name"], process["api_calls"], process["graph_replays"]) == (None, None, None)
    assert process["kernels"] == device["kernels"] == facts["kernels"] > 0


def test_unknown_is_a_dash_for_a_reader() -> None:
    lines = analysis(BY_TORCH["graph"]).out.splitlines()
    facts = {line.strip().rpartition("  ")[0].strip(): line.split()[-1] for line in lines if line[:2] == "  "}
    assert (facts["tracer"], facts["API calls"], facts["nsys version"]) == ("torch.profiler", "-", "-")
    assert "record_function ranges" in lines
    assert "NVTX ranges" not in lines


def test_an_export_of_nsys_names_its_tracer() -> None:
    facts = shown(EXAMPLES["eager.node"], "--table", "devices")["trace"]
    assert facts["tracer"] == "nsys"
    assert "unknown" not in facts
    assert facts["api_calls"] > facts["launches"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_range_has_the_numbers_of_nsys(strategy: str) -> None:
    torch = shown(BY_TORCH[strategy], "--range", "request", "--domain", "launchgap")["tables"]["instances"]
    nsys = shown(BY_NSYS / f"{strategy}.node.sqlite.gz", "--range", "request")["tables"]["instances"]
    assert len(torch) == 3
    for name in ("kernels", "memcpys", "memsets", "launches", "graph_launches"):
        assert {row[name] for row in torch} == {row[name] for row in nsys}


def test_replays_are_found_by_their_launch() -> None:
    content = shown(BY_TORCH["graph"])
    (graph,) = content["tables"]["graphs"]
    launched = shown(BY_TORCH["graph"], "--range", "replay")["tables"]["instances"]
    assert (graph["shown_as"], graph["replays"], graph["graph"]) == ("nodes", 3, None)
    assert {row["kernels"] for row in launched} == {graph["kernels"]}
    assert content["trace"]["graph_launches_as_nodes"] == 3
    assert shown(BY_TORCH["eager"])["tables"]["graphs"] == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_request_is_proposed_and_the_proposed_command_runs(strategy: str) -> None:
    (first, *_) = shown(BY_TORCH[strategy])["tables"]["proposals"]
    assert (first["name"], first["domain"]) == ("request", "launchgap")
    words = first["command"].split()[3:]
    assert "3 instances of request" in analysis(*words).out


def test_a_part_of_it_and_a_plain_file(tmp_path: Path) -> None:
    plain = eager_and_graph().save(tmp_path / "plain.json")
    packed = eager_and_graph().save(tmp_path / "packed.json.gz")
    whole = shown(plain)
    assert whole["tables"] | {"proposals": []} == shown(packed)["tables"] | {"proposals": []}
    first = whole["trace"]["first_event_s"]
    part = shown(plain, "--between", f"{first + 9.5e-6:.9f}", f"{first + 30e-6:.9f}")["trace"]
    assert (part["kernels"], part["memsets"], part["launches"]) == (3, 1, 1)


@pytest.mark.parametrize("name", ["cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_kern_exec_sum",
                                  "cuda_gpu_mem_time_sum", "nvtx_gpu_proj_sum", "nvtx_gpu_proj_trace",
                                  "nvtx_kern_sum", "cuda_api_sync"])  # fmt: skip
def test_reports_that_it_can_answer(name: str) -> None:
    rows = shown(BY_TORCH["eager"], "--report", name)["tables"][name]
    assert rows
    if name.startswith("nvtx"):
        assert {row["Style"] for row in rows} == {None}


def test_reports_that_it_cannot_answer_are_one_line(tmp_path: Path) -> None:
    told = analysis(BY_TORCH["eager"], "--report", "cuda_api_sum").complaint
    assert "torch.profiler leaves some out" in told
    assert "overhead" in analysis(BY_TORCH["eager"], "--report", "gpu_gaps").complaint
    file = eager_and_graph()
    file.kernel("shapeless", 13_400, 13_410, 3, grid=None)
    path = file.save(tmp_path / "shapeless.json")
    assert "grid and block size" in analysis(path, "--report", "cuda_gpu_kern_gb_sum").complaint
    assert analysis(path, "--report", "cuda_gpu_kern_sum").code == 0


def test_warnings_of_the_reader_are_findings() -> None:
    (finding,) = shown(BY_TORCH["eager"])["findings"]
    assert finding["severity"] == "warning"
    assert finding["what"] == "recorded by torch.profiler, not by nsys"
    assert "gaps are longer" in finding["effect"]


def test_no_advice_on_nsys_for_a_trace_of_torch(tmp_path: Path) -> None:
    file = ChromeFile(ERROR=["Number of incomplete CUPTI events dropped: 3."], WARNING=["slow"])
    file.launch("gemm", (100, 200), (300, 400))
    file.call("cudaGraphLaunch", 500, 600)
    file.call("cudaLaunchKernel", 700, 800)
    file.launch("early", (900_000, 900_100), (1_000, 1_100))
    path = file.save(tmp_path / "bad.json")
    findings = shown(path, "--force")["findings"]
    told = [f"{finding['what']}: {finding['effect']}; {finding['remedy']}" for finding in findings]
    assert len(told) == 6
    assert sum("torch" in line for line in told) >= 5
    for word in ("nsys", "Nsight", "NVTX", "-t cuda", "--cuda-"):
        assert [line for line in told if word in line and "not by nsys" not in line] == []
    assert "record_function" in analysis(path, "--range", "step").complaint


def test_perfetto_of_it_and_back(tmp_path: Path) -> None:
    out = tmp_path / "for-perfetto.json.gz"
    assert analysis("perfetto", BY_TORCH["graph"], "-o", out).code == 0
    before, after = shown(BY_TORCH["graph"]), shown(out)
    kept = ("tracer", "kernels", "memcpys", "memsets", "launches", "ranges", "api_calls", "gpus_of_host")
    assert {key: after["trace"][key] for key in kept} == {key: before["trace"][key] for key in kept}
    assert after["tables"]["kernels"] == before["tables"]["kernels"]


def test_a_file_made_of_an_export_for_perfetto(tmp_path: Path) -> None:
    out = tmp_path / "for-perfetto.json"
    assert analysis("perfetto", EXAMPLES["graph.graph"], "-o", out).code == 0
    content, original = shown(out), shown(EXAMPLES["graph.graph"])
    assert content["trace"]["tracer"] == "nsys"
    assert content["trace"]["nsys_version"] == original["trace"]["nsys_version"]
    assert content["tables"]["launches"] == original["tables"]["launches"]
    assert content["tables"]["graphs"] == original["tables"]["graphs"]
    assert any("made for Perfetto" in finding["what"] for finding in content["findings"])
    assert analysis(out, "--report", "cuda_api_sum").code == 0
    assert "overhead" in analysis(out, "--report", "gpu_gaps").complaint


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b"{}", "no Chrome trace"),
        (b'{"schema_version": 1, "kind": "trace-overview"}', "no Chrome trace"),
        (b'{"traceEvents": [', "no complete JSON"),
        (gzip.compress(b'{"traceEvents": []}')[:-9], "no complete gzip file"),
    ],
    ids=["empty", "nothing in it", "a record", "cut", "cut gzip"],
)
def test_no_trace_at_all(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    assert told in analysis(path).complaint


def test_scrub_says_what_to_do_instead(tmp_path: Path) -> None:
    for words in ((BY_TORCH["eager"], "-o", tmp_path / "clean.json"), ("--check", BY_TORCH["eager"])):
        assert "python -m analysis perfetto" in analysis("scrub", *words).complaint
    assert list(tmp_path.iterdir()) == []
