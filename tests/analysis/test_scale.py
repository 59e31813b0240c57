"""Large traces, made by multiplying a real one. No time is asserted, only how times relate to each other."""

import shutil
import sys
from pathlib import Path

import pytest

from analysis.aggregate import summarise
from analysis.attribute import NO_CALL, call_of
from analysis.trace import read_trace
from tests.analysis.trace_file import EXAMPLES
from tests.data.measure_scale import SUM_UP, Cost, cost, nsys_stats, ours
from tests.data.multiply_trace import multiply

SMALL, LARGE = 20_000, 200_000
ROUNDS = 2


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "trace.sqlite"
    multiply(EXAMPLES["eager.node"], path, SMALL)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "trace.sqlite"
    multiply(EXAMPLES["eager.node"], path, LARGE)
    return path


@pytest.mark.parametrize(("processes", "devices"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_multiple_holds_its_source_so_many_times(
    tmp_path: Path, name: str, processes: int, devices: int
) -> None:
    source = read_trace(EXAMPLES[name])
    copies = 7
    count = multiply(EXAMPLES[name], tmp_path / "t.sqlite", copies * len(source.kernels), processes, devices)
    trace = read_trace(tmp_path / "t.sqlite")
    assert count == len(trace.kernels)
    for table in ("kernels", "memcpys", "memsets", "graph_launches", "api_calls", "ranges"):
        assert len(getattr(trace, table)) == copies * len(getattr(source, table))
    assert trace.device_count == devices
    assert trace.api_calls["process"].nunique() == processes
    for work in (trace.kernels, trace.memsets, trace.graph_launches):
        assert (call_of(work, trace.api_calls) != NO_CALL).all()
    once, many = summarise(EXAMPLES[name]), summarise(tmp_path / "t.sqlite")
    for before, after in ((once.kernels, many.kernels), (once.api_calls, many.api_calls)):
        assert after["name"].tolist() == before["name"].tolist()
        assert (after["total_ns"] == copies * before["total_ns"]).all()
        assert (after["med_ns"] == before["med_ns"]).all()
    assert many.unlaunched == 0
    assert many.ranges["operations"].tolist() == (copies * once.ranges["operations"]).tolist()


def test_multiply_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "t.sqlite").write_text("precious")
    with pytest.raises(ValueError, match="exists"):
        multiply(EXAMPLES["eager.node"], tmp_path / "t.sqlite", 10)
    assert (tmp_path / "t.sqlite").read_text() == "precious"


@pytest.fixture(scope="module")
def costs_of_large(large: Path) -> list[Cost]:
    return [ours(large) for _ in range(ROUNDS)]


def test_time_and_memory_grow_no_faster_than_the_trace(
    small: Path, large: Path, costs_of_large: list[Cost]
) -> None:
    nothing = min(cost([sys.executable, "-c", SUM_UP.partition(";")[0]]).cpu_s for _ in range(ROUNDS))
    costs_of_small = [ours(small) for _ in range(ROUNDS)]
    few, many = (min(one.cpu_s for one in costs) for costs in (costs_of_small, costs_of_large))
    # Ten times the rows; the start of the interpreter is in both, and what is quadratic would take a hundred.
    assert many - nothing < 25 * max(few - nothing, nothing / 10)
    few_bytes, many_bytes = (
        min(one.resident_bytes for one in costs) for costs in (costs_of_small, costs_of_large)
    )
    assert many_bytes < large.stat().st_size + 2 * few_bytes


@pytest.mark.nsys
def test_nsys_takes_longer_for_the_same_tables(large: Path, costs_of_large: list[Cost]) -> None:
    nsys = shutil.which("nsys")
    assert nsys is not None
    # nsys takes so much longer that one run of it tells.
    assert min(one.cpu_s for one in costs_of_large) < nsys_stats(nsys, large).cpu_s
