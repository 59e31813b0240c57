"""scripts/build_report.py, and the report of real traces."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.attribute import RangeSelector
from analysis.case import analyse_case
from analysis.report import gather, render
from scripts.build_report import main
from tests.analysis.report_samples import latency_record, write_preflight, write_record, write_tables
from tests.in_process import in_process

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests/data/traces"
REAL = {
    "baseline-trace-node": "eager.node",
    "graph-trace-node": "graph.node",
    "graph-trace-graph": "graph.graph",
}
NAME = "gpt2-float32-p50-m1024"
FIGURES = ("latency_comparison", "where_time_went", "waterfall", "launches_by_api", "top_kernels")


def results(root: Path, *models: str) -> Path:
    for model in models:
        record = latency_record(model)
        write_record(root, record)
        write_tables(root, record["case"]["name"])
    write_preflight(root)
    return root


def untraced(root: Path) -> Path:
    """A case that was measured only: its report has fewer figures to draw."""
    write_record(root, latency_record())
    write_preflight(root)
    return root


def arguments(root: Path, output: Path | None = None) -> list[str]:
    return [
        f"--latency-dir={root / 'latency'}",
        f"--tables-dir={root / 'tables'}",
        f"--preflight={root / 'preflight.json'}",
        f"--output-dir={output or root}",
    ]


def run(root: Path, output: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/build_report.py"), *arguments(root, output)]
    return subprocess.run(
        command,
        cwd=root,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in ("latency", "tables", "preflight.json")
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The report of a whole case beside a broken one, an empty one and broken tables; what was said."""
    data = results(tmp_path_factory.mktemp("built"), "gpt2")
    shutil.copytree(data / "latency" / NAME, data / "latency" / "strange")
    shutil.copytree(data / "tables" / NAME, data / "tables" / "strange")
    (data / "tables" / "strange" / "kernels.csv").unlink()
    for name in ("cut", "empty"):
        (data / "latency" / name).mkdir()
    (data / "latency" / "cut" / "latency.json").write_text('{"schema_version": 1', encoding="utf-8")
    return data, run(data)


def test_it_writes_page_markdown_json_and_figures(
    built: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    data, done = built
    assert done.returncode == 0
    expected = {"report.html", "report.md", "report.json"}
    expected |= {f"figures/{NAME}.{figure}.{kind}" for figure in FIGURES for kind in ("svg", "png")}
    assert {name for name in files_of(data) if "/strange." not in name} == expected
    assert "report.html" in done.stdout


def test_the_same_inputs_give_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    first, second = (
        untraced(results(tmp_path / "first", "a")),
        untraced(results(tmp_path / "elsewhere" / "second", "a")),
    )
    assert in_process(main, *arguments(first)).code == 0
    assert run(second, PYTHONHASHSEED="2", TZ="Asia/Tokyo").returncode == 0
    assert files_of(first) == files_of(second)


def test_nothing_of_the_machine_is_in_the_report(
    built: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    data, _ = built
    for name in ("report.html", "report.md", "report.json"):
        assert str(data) not in (data / name).read_text(encoding="utf-8")


def test_a_broken_case_or_part_is_one_warning_and_the_report_stands(
    built: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    data, done = built
    cut, empty, tables = done.stderr.splitlines()
    assert cut.startswith(f"warning: {data}/latency/cut/latency.json: not valid JSON")
    assert empty.startswith(f"warning: {data}/latency/empty/latency.json: cannot be read")
    assert tables.startswith("warning: Kernel counts, launches and GPU times: ")
    assert f": {data}/tables/strange/kernels.csv: cannot be read" in tables
    for name in ("report.html", "report.md"):
        text = (data / name).read_text(encoding="utf-8")
        assert "strange lacks kernel counts, launches and GPU times: tables/strange/kernels.csv: " in text


def test_a_broken_preflight_is_one_warning_and_the_report_stands(tmp_path: Path) -> None:
    data = untraced(tmp_path)
    (data / "preflight.json").write_text('{"schema_version": 1, "ki', encoding="utf-8")
    done = in_process(main, *arguments(data), log=True)
    assert done.code == 0
    (warning,) = done.err.splitlines()
    assert warning.startswith(f"warning: {data}/preflight.json: not valid JSON")
    assert "preflight.json: not valid JSON" in (data / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"schema_version": 7, "kind": "latency"}', "record schema 7, this launchgap reads 1"),
        ('{"schema_version": 1, "kind": "latency"', "not valid JSON"),
        ('{"schema_version": 1, "kind": "latency"}', "half-written or edited, case is missing"),
        ('{"schema_version": 1, "kind": "trace"}', "not a latency record"),
    ],
)
def test_with_nothing_readable_it_is_one_line_and_exit_code_2(
    tmp_path: Path, content: str, reason: str
) -> None:
    write_record(tmp_path, latency_record(), "case").write_text(content, encoding="utf-8")
    done = in_process(main, *arguments(tmp_path), log=True)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith(f"error: {tmp_path}/latency/case/latency.json: ")
    assert reason in done.err
    assert "delete" not in done.err
    assert files_of(tmp_path) == {}


def test_a_missing_folder_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    assert "measure first" in in_process(main, *arguments(tmp_path), log=True).complaint


def test_an_output_that_is_no_folder_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    data = untraced(tmp_path / "data")
    taken = tmp_path / "taken"
    taken.write_text("mine", encoding="utf-8")
    done = in_process(main, *arguments(data, taken / "below"), log=True)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert taken.read_text(encoding="utf-8") == "mine"


def test_a_full_disk_leaves_the_old_report(tmp_path: Path) -> None:
    data = untraced(tmp_path)
    (data / "report.html").write_text("old", encoding="utf-8")
    program = [sys.executable, str(ROOT / "scripts/build_report.py"), *arguments(data)]
    script = f"ulimit -f 20; exec {shlex.join(program)}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert (data / "report.html").read_text(encoding="utf-8") == "old"
    assert not list(data.rglob("*.part"))


def test_real_traces_of_an_h200_reach_the_page(tmp_path: Path) -> None:
    record = latency_record(medians_ms={"eager": 4.6, "graph": 1.79})
    name = record["case"]["name"]
    write_record(tmp_path, record)
    traces, tables = tmp_path / "traces", tmp_path / "tables" / name
    traces.mkdir()
    tables.mkdir(parents=True)
    for source, target in REAL.items():
        shutil.copy(TRACES / f"h200-gpt2-fp32-{source}.sqlite.gz", traces / f"{target}.sqlite.gz")
    analysed = analyse_case(name, traces, selector=RangeSelector("forward", ""))
    for file, text in analysed.files().items():
        (tables / file).write_text(text, encoding="utf-8")
    data = gather(tmp_path / "latency", tmp_path / "tables", None, tmp_path)
    eager, graph = data.cases[0].strategies
    assert eager.traced is not None
    assert graph.traced is not None
    assert (eager.traced.kernels, eager.traced.launches) == (232, 271)
    assert (graph.traced.kernels, graph.traced.graph_launches, graph.traced.time_mode) == (306, 1, "graph")
    assert graph.traced.gpu_busy_us == pytest.approx(1629.8, abs=0.1)
    assert graph.traced.replay_span_us == pytest.approx(1671.3, abs=0.1)
    files = render(data)
    assert len(files) == 3 + 2 * len(FIGURES)
    assert "cutlass_80_simt_sgemm_64x64_8x5_nn_align1" in files["report.html"].decode()
