"""Where launchgap counts otherwise than nsys: docs/nvidia-numbers.md quotes both, both are asked for here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.nvidia import gpu_gaps, nvtx_gpu_proj_sum
from analysis.nvidia.differences import launch_differences
from analysis.trace import Trace, read_trace
from tests.analysis.nvidia.conftest import ROOT
from tests.analysis.nvidia.hard_cases import CASES, build
from tests.analysis.nvidia.oracle import analyses, projection, stats
from tests.analysis.nvidia.traits import traits
from tests.analysis.trace_file import EXAMPLES, LATEST

DOCUMENT = ROOT / "docs" / "nvidia-numbers.md"
MS, US = 1_000_000, 1_000


@pytest.fixture(scope="module")
def documented() -> list[list[str]]:
    """Cells of every row of every table in the document."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def without_replays(trace: Trace) -> Trace:
    """What nsys 2022.4 and 2023.4 see of a trace."""
    return replace(trace, graph_launches=trace.graph_launches.iloc[:0])


def of_api(example: str, api: str) -> dict[str, Any]:
    table = launch_differences(read_trace(EXAMPLES[example]))
    (row,) = table[table["API Name"] == api].to_dict("records")
    return {str(title): cell for title, cell in row.items()}


def projected_ns(trace: Trace) -> int:
    return int(nvtx_gpu_proj_sum(trace)["Total Proj Time (ns)"].sum())


def idle_ns(trace: Trace) -> int:
    return int(gpu_gaps(trace, threshold_ns=0)["Duration (ns)"].sum())


def test_the_document_has_what_a_graph_launch_costs(documented: list[list[str]]) -> None:
    calls = read_trace(EXAMPLES["graph.node"]).api_calls
    row = of_api("graph.node", "cudaGraphLaunch")
    nsys_ms, own_ms = row["Nsys API Time (ns)"] / MS, row["Own API Time (ns)"] / MS
    assert ["launches charged", f"{row['Kernels']:,.0f}", f"{row['Calls']:.0f}"] in documented
    assert ["API time, all together", f"{nsys_ms:,.1f} ms", f"{own_ms:,.1f} ms"] in documented
    times = nsys_ms * MS / (calls["end_ns"].max() - calls["start_ns"].min())
    assert f"spent {times:.0f} times the length of the trace" in DOCUMENT.read_text().replace("\n", " ")


@pytest.mark.parametrize(
    ("example", "api", "title"),
    [
        ("graph.node", "cudaGraphLaunch", "graph in node mode, `cudaGraphLaunch`"),
        ("eager.node", "cudaLaunchKernel", "eager, `cudaLaunchKernel`"),
    ],
)
def test_the_document_has_the_queue_delays(
    documented: list[list[str]], example: str, api: str, title: str
) -> None:
    row = of_api(example, api)
    assert [
        title,
        f"{row['QCount']:,.0f} of {row['Kernels']:,.0f}",
        f"{row['Nsys Queue Avg (ns)'] / US:,.1f} µs",
        f"{row['Own Queue Avg (ns)'] / US:,.1f} µs",
        f"{row['Own Queue Min (ns)'] / US:,.1f} µs".replace("-", "−"),
    ] in documented


def test_the_document_has_what_whole_replays_make_of_a_trace(documented: list[list[str]]) -> None:
    both = (without_replays(trace := read_trace(EXAMPLES["graph.graph"])), trace)
    for title, measure in (("20 ranges `forward`, projected", projected_ns), ("all gaps together", idle_ns)):
        assert [title, *(f"{measure(seen) / MS:,.1f} ms" for seen in both)] in documented


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("example", "api"), [("graph.node", "cudaGraphLaunch"), ("eager.node", "cudaLaunchKernel")]
)
def test_the_numbers_given_as_nsys_own_are(example: str, api: str, unpacked: dict[str, Path]) -> None:
    row = of_api(example, api)
    table = stats(unpacked[example], "cuda_kern_exec_sum")
    own = table[table["API Name"].isin([api, f"{api}_v10000"])]
    count, waited = own["Count"].astype(int), own["QCount"].astype(int)
    assert count.sum() == row["Kernels"]
    assert waited.sum() == row["QCount"]
    rounding = 0.05 * len(count)
    assert (count * own["AAvg (ns)"].astype(float)).sum() == pytest.approx(
        row["Nsys API Time (ns)"], rel=0, abs=rounding * count.max()
    )
    waiting = own["QAvg (ns)"].where(waited > 0, "0").astype(float)
    assert (waited * waiting).sum() / waited.sum() == pytest.approx(
        row["Nsys Queue Avg (ns)"], rel=0, abs=0.1
    )


@pytest.mark.nsys
def test_nsys_itself_overlooks_whole_replays(unpacked: dict[str, Path]) -> None:
    path, trace = unpacked["graph.graph"], read_trace(EXAMPLES["graph.graph"])
    (gaps,) = analyses(path, "gpu_gaps:gap=0")
    projected = projection(path)["Projected Duration (ns)"].astype("int64").sum()
    for measure, looks, theirs in (
        (projected_ns, traits().projects_replays, projected),
        (idle_ns, traits().busy_replays, gaps["Duration (ns)"].astype("int64").sum()),
    ):
        assert measure(trace if looks else without_replays(trace)) == theirs
        assert measure(trace) != measure(without_replays(trace))


def test_a_launch_of_many_kernels_is_charged_once_and_keeps_its_delays(tmp_path: Path) -> None:
    trace = read_trace(build(CASES["queue_delays"], tmp_path / "queue.sqlite", LATEST))
    early = launch_differences(trace).set_index("API Name").T["cudaLaunchKernel"]
    assert early["Own Queue Min (ns)"] < 0
    assert early["Own Queue Avg (ns)"] < early["Nsys Queue Avg (ns)"]
    assert early["Own API Time (ns)"] == early["Nsys API Time (ns)"]
    assert early["Kernels"] == early["Calls"]
