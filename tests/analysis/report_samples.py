"""Small made-up results that look like the pipeline's: latency records, tables, traces.json, preflight."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from contract import (
    DEFAULT_STRATEGIES,
    SCHEMA_VERSION,
    WITHOUT_GRAPH,
    CorrectnessFields,
    LatencyRecord,
    Strategy,
    StrategyFields,
    case_name,
)
from tests.analysis.explained_samples import write_explained
from tests.analysis.timeline_samples import write_timelines

HOSTILE = '<script>alert(1)</script>|`*_[x](http://example.com) $x_1$ "quoted" @someone'
MEDIANS_MS = {"eager": 4.6, "graph": 1.8, "graph_padded": 9.6}
PEERS_MEDIANS_MS = dict(zip(Strategy, (4.6, 1.8, 9.6, 4.2, 4.1, 1.6, 1.7, 1.1, 2.9, 1.4, 1.75), strict=True))
"""All strategies, fastest a fused graph."""


def correctness(verdict: str = "equal") -> CorrectnessFields:
    return CorrectnessFields(
        inputs=5,
        bitwise=verdict == "equal",
        allclose=verdict != "DIFFERENT",
        atol=1e-5,
        rtol=1e-5,
        max_abs_difference=0.0 if verdict == "equal" else 0.25,
        same_argmax=verdict != "DIFFERENT",
        error_vs_fp32=None,
        eager_error_vs_fp32=None,
        half_tolerance_factor=None,
        verdict=verdict,  # type: ignore[typeddict-item]
        rule="allclose(atol=1e-05, rtol=1e-05) against eager",
    )


def strategy(name: str, median_ms: float, runs: int = 40, verdict: str = "equal") -> StrategyFields:
    random = np.random.default_rng(len(name))
    spread = 0.06 if name == "eager" else 0.004
    event_ms = (median_ms * (1 - spread / 2 + spread * random.gamma(1.0, 1.0, runs))).tolist()
    graph = name != "eager"
    return StrategyFields(
        status="ok",
        error=None,
        event_ms=event_ms,
        wall_ms=[time_ms + 0.05 for time_ms in event_ms],
        capture_s=0.31 if graph else None,
        graph_pool_bytes=46 << 20 if graph else None,
        attention_mask={"graph": "explicit", "graph_padded": "static"}.get(name),
        correctness=correctness(verdict) if graph else None,
    )


def failed(reason: str) -> StrategyFields:
    return StrategyFields(
        status="failed",
        error=reason,
        event_ms=[],
        wall_ms=[],
        capture_s=None,
        graph_pool_bytes=None,
        attention_mask=None,
        correctness=None,
    )


def latency_record(
    model: str = "gpt2",
    dtype: str = "float32",
    *,
    simulated: bool = False,
    medians_ms: dict[str, float] | None = None,
    weights: str = "random",
) -> LatencyRecord:
    strategies = {name: strategy(name, median) for name, median in (medians_ms or MEDIANS_MS).items()}
    eager = strategies.get("eager")
    again = [] if eager is None else list(reversed(eager["event_ms"]))
    environment: dict[str, Any] = {
        "gpu": None if simulated else "NVIDIA H200",
        "driver": None if simulated else "580.159",
        "cuda": None if simulated else "13.0",
        "torch": "2.11.0",
        "transformers": "5.17.0",
        "cpu": "A CPU",
        "clocks_before": None if simulated else {"sm_clock_mhz": 1980.0},
    }
    return LatencyRecord(
        schema_version=SCHEMA_VERSION,
        kind="latency",
        case={
            "name": case_name(model, dtype, 50, 1024),
            "model": model,
            "dtype": dtype,
            "prompt_length": 50,
            "max_length": 1024,
            "attn_implementation": "sdpa",
        },
        device="cpu" if simulated else "cuda",
        simulated=simulated,
        settings={
            "runs": 40,
            "warmup_s": 2.0,
            "seed": 0,
            "strategies": list(strategies),
            "correctness_inputs": 5,
        },
        model={
            "architecture": "GPT2LMHeadModel",
            "source": "preset gpt2",
            "weights": weights,  # type: ignore[typeddict-item]
            "reason": "the hub is out of reach" if weights == "random" else "",
            "parameters": 124_439_808,
            "weight_bytes": 497_759_232,
            "vocab_size": 50257,
            "max_positions": 1024,
        },
        strategies=strategies,
        aa_event_ms=again,
        environment=environment,
        command=["cuda_graph_benchmark.py", "--model", model, "--dtype", dtype],
    )


def peers_record() -> LatencyRecord:
    """A record of every strategy, as `--peers` makes it on a GPU."""
    record = latency_record(medians_ms={str(name): ms for name, ms in PEERS_MEDIANS_MS.items()})
    compile_s = {"graph_fused": 41.5, "compiled_default": 20.25, "compiled": 31.0}
    for name, fields in record["strategies"].items():
        captures = name not in WITHOUT_GRAPH and name != Strategy.COMPILED
        fields["logits"] = "all" if name in (*DEFAULT_STRATEGIES, Strategy.EAGER_UNMASKED) else "last"
        fields["compile_s"] = compile_s.get(name)
        fields["capture_s"] = 0.5 if captures else None
        fields["graph_pool_bytes"] = 46 << 20 if captures else None
    record["floor"] = {"bandwidth_bytes_per_s": 4e12, "weight_bytes_read": 400 << 20, "floor_ms": 0.1}
    return record


def write_record(root: Path, record: LatencyRecord, folder: str | None = None) -> Path:
    path = root / "latency" / (folder or record["case"]["name"]) / "latency.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


REQUEST_HEADER = (
    "strategy,trace_mode,request,kernels,memcpys,memsets,graph_launches,launches,launch_api_us,"
    "gpu_busy_us,gpu_span_us,range_us"
)
LAUNCH_HEADER = (
    "strategy,trace_mode,api,kind,calls_per_request,launch_api_us_per_request,mean_us,p50_us,max_us"
)
KERNEL_HEADER = (
    "strategy,kernel,full_name,calls_per_request,total_us_per_request,mean_us,min_us,max_us,share_percent"
)
COMPARISON_HEADER = (
    "strategy,kernel,full_name,eager_calls_per_request,graph_calls_per_request,"
    "eager_us_per_request,graph_us_per_request,difference_us"
)


def request_rows(simulated: bool = False) -> list[list[Any]]:
    if simulated:
        return [["eager", "node", i, "", "", "", "", "", "", "", "", 5100 + i] for i in range(3)]
    rows: list[list[Any]] = []
    for i in range(3):
        rows.append(["eager", "node", i, 232, 1, 4, 0, 237, 1310.5 + i, 1500.25, 4400, 4700])
        for name, busy_us in (("graph", 1670.5), ("graph_padded", 9510.0)):
            rows.append(
                [name, "node", i, 306, 1, 4, 1, 2, 602.5, busy_us * 0.9, busy_us * 1.25, busy_us + 700]
            )
            rows.append([name, "graph", i, "", 1, "", 1, 2, 11.25, busy_us, busy_us + 5, busy_us + 40])
    return rows


def kernel_rows(names: list[str]) -> list[list[Any]]:
    return [
        [
            name,
            kernel,
            f"void {kernel}<float>",
            10 - i % 3,
            100.0 / (i + 1),
            10.0 / (i + 1),
            1.0,
            20.0,
            50.0 / (i + 1),
        ]
        for name in ("eager", "graph", "graph_padded")
        for i, kernel in enumerate(names)
    ]


def comparison_rows(names: list[str]) -> list[list[Any]]:
    return [
        [name, kernel, f"void {kernel}<float>", 10, 12, 100.0 / (i + 1), 90.0 / (i + 1), -10.0 / (i + 1)]
        for name in ("graph", "graph_padded")
        for i, kernel in enumerate(names)
    ]


LAUNCH_ROWS: list[list[Any]] = [
    ["eager", "node", "cudaLaunchKernel", "kernel", 183, 1010.0, 5.5, 4.2, 60.0],
    ["eager", "node", "cuLaunchKernelEx", "kernel", 49, 270.0, 5.5, 4.2, 60.0],
    ["eager", "node", "cudaMemsetAsync", "memset", 4, 20.0, 5.0, 4.2, 60.0],
    ["eager", "node", "cudaMemcpyAsync", "memcpy", 1, 10.5, 10.5, 10.1, 12.0],
    ["graph", "node", "cudaGraphLaunch", "graph", 1, 600.0, 600.0, 590.0, 700.0],
    ["graph", "graph", "cudaGraphLaunch", "graph", 1, 8.0, 8.0, 7.9, 9.0],
    ["graph", "graph", "cudaMemcpyAsync", "memcpy", 1, 3.25, 3.25, 3.2, 4.0],
    ["graph_padded", "graph", "cudaGraphLaunch", "graph", 1, 8.0, 8.0, 7.9, 9.0],
]


def trace_entry(name: str, mode: str, status: str = "ok", reason: str | None = None) -> dict[str, Any]:
    return {
        "strategy": name,
        "trace_mode": mode,
        "status": status,
        "reason": reason,
        "nsys_version": "2025.3.1.90" if status != "missing" else None,
        "export_schema": "3.20.3" if status != "missing" else None,
        "requests": 3 if status != "missing" else 0,
        "findings": [],
        "profiled_event_ms_median": 5.9 if status == "ok" else None,
        "command": ["nsys", "profile", f"--cuda-graph-trace={mode}", name] if status == "ok" else None,
    }


ENTRIES = [
    trace_entry("eager", "node"),
    trace_entry("graph", "node"),
    trace_entry("graph", "graph"),
    trace_entry("graph_padded", "node"),
    trace_entry("graph_padded", "graph"),
]


def write_tables(
    root: Path,
    case: str,
    *,
    kernels: list[str] | None = None,
    entries: list[dict[str, Any]] | None = None,
    requests: list[list[Any]] | None = None,
) -> Path:
    folder = root / "tables" / case
    folder.mkdir(parents=True, exist_ok=True)
    names = kernels if kernels is not None else [f"kernel_{i}" for i in range(20)]
    found = request_rows() if requests is None else requests
    traced = any(row[7] != "" for row in found)
    _write_csv(folder / "requests.csv", REQUEST_HEADER, found)
    _write_csv(folder / "launches.csv", LAUNCH_HEADER, LAUNCH_ROWS if traced else [])
    _write_csv(folder / "kernels.csv", KERNEL_HEADER, kernel_rows(names) if traced else [])
    _write_csv(folder / "comparison.csv", COMPARISON_HEADER, comparison_rows(names) if traced else [])
    record = {"schema_version": SCHEMA_VERSION, "kind": "traces", "case": case, "traces": entries or ENTRIES}
    (folder / "traces.json").write_text(json.dumps(record), encoding="utf-8")
    write_explained(folder, case, names, traced=traced)
    write_timelines(folder, case, names, traced=traced)
    return folder


def _write_csv(path: Path, header: str, rows: list[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)


def write_preflight(root: Path, *, can_trace: bool = True, findings: list[str] | None = None) -> Path:
    path = root / "preflight.json"
    record = {
        "schema_version": SCHEMA_VERSION,
        "kind": "preflight",
        "device": "cuda" if can_trace else "cpu",
        "can_trace": can_trace,
        "nsys_path": "/usr/bin/nsys" if can_trace else None,
        "nsys_version": "2025.3.1.90" if can_trace else None,
        "nvtx_version": "0.2.11",
        "findings": findings or [],
    }
    root.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    return path
