"""The workflow by real Snakemake: what is made, what runs again and when, what is said of what is missing."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.pipeline.conftest import CASE, NO_NSYS, ROOT, SMALL, Project


def _edit(path: Path) -> None:
    path.write_text(path.read_text() + "# edited\n")


@pytest.mark.nsys
def test_everything_is_made(finished_master: Project) -> None:
    made = [
        name for name in ("html", "md", "json") if finished_master.path(f"results/report.{name}").exists()
    ]
    assert made == ["html", "md", "json"]
    report = finished_master.report()
    assert report["latency"] == [CASE]
    assert report["tables"] == {CASE: {"case": CASE, "traces": ["eager.node", "graph.node"]}}
    assert finished_master.trace_files() == [
        f"{name}.node.{suffix}" for name in ("eager", "graph") for suffix in ("json", "nsys-rep", "sqlite")
    ]
    for name in ("preflight", f"measure/{CASE}", f"capture/{CASE}/graph.node", f"analyse/{CASE}", "report"):
        assert finished_master.path(f"logs/{name}.log").exists()


@pytest.mark.nsys
def test_second_run_does_nothing(finished_master: Project) -> None:
    done = finished_master.run()
    assert done.returncode == 0
    assert "Nothing to be done" in done.stderr


@pytest.mark.nsys
def test_edits_and_settings_run_again_what_depends_on_them(finished: Project) -> None:
    assert finished.rules_to_run(config=(*SMALL, "runs=7")) == {"measure", "report"}
    assert finished.rules_to_run(config=(*SMALL, "traced_requests=7")) == {"capture", "analyse", "report"}
    _edit(finished.path("scripts/run_graph.py"))
    assert finished.rules_to_run() == {"capture", "analyse", "report"}
    # Once nsys has been looked at anew the captures come into the plan.
    _edit(finished.path("nsight/gpu.py"))
    assert finished.rules_to_run() == {"preflight", "report"}


@pytest.mark.nsys
def test_edit_of_the_report_in_a_project_that_moved_keeps_the_measurements(
    finished: Project, tmp_path: Path
) -> None:
    moved = Project(finished.folder.rename(tmp_path / "elsewhere"))
    assert moved.rules_to_run() == set()
    _edit(moved.path("scripts/build_report.py"))
    assert moved.rules_to_run() == {"report"}
    _edit(moved.path("scripts/analyse_traces.py"))
    assert moved.rules_to_run() == {"analyse", "report"}


@pytest.mark.nsys
def test_without_nsys_and_after_installing_it(without_nsys: Project) -> None:
    project = without_nsys
    report = project.report()
    assert report["latency"] == [CASE]
    assert report["tables"] == {}
    preflight = report["preflight"]
    assert isinstance(preflight, dict)
    assert "LAUNCHGAP_NSYS names it" in preflight["findings"][0]
    # nsys is there now: look again, trace, report; what was measured stays.
    measured = project.path(f"results/latency/{CASE}/latency.json").stat().st_mtime_ns
    assert project.rules_to_run() == {"preflight", "report"}
    done = project.run()
    assert done.returncode == 0, done.stderr
    assert project.report()["tables"] == {CASE: {"case": CASE, "traces": ["eager.node", "graph.node"]}}
    assert project.path(f"results/latency/{CASE}/latency.json").stat().st_mtime_ns == measured


def test_profiler_required_and_missing(fresh: Project) -> None:
    done = fresh.run(config=(*SMALL, "profiler=required"), LAUNCHGAP_NSYS=NO_NSYS)
    assert done.returncode == 1
    assert "error: profiler required: /absent/nsys: LAUNCHGAP_NSYS names it" in done.stderr
    assert not fresh.path("results/preflight.json").exists()
    assert not fresh.path("results/latency").exists()


def test_profiler_off(fresh: Project) -> None:
    done = fresh.run(config=(*SMALL, "profiler=off"))
    assert done.returncode == 0, done.stderr
    assert fresh.report()["tables"] == {}
    assert [path.name for path in fresh.path("profiles/nsys").iterdir()] == []


@pytest.mark.nsys
def test_calibrations(finished: Project) -> None:
    explained = finished.path(f"results/tables/{CASE}/explained.json")
    assert json.loads(explained.read_text()) == {"calibration": "None"}
    # The simulation has no launches to calibrate.
    assert finished.rules_to_run(config=(*SMALL, "calibration=measure")) == set()
    on_gpu = (*SMALL, "device=cuda", "calibration=measure")
    assert "calibrate" in finished.rules_to_run("results/calibration.json", config=on_gpu)
    finished.path("mine.json").write_text("{}")
    assert finished.rules_to_run(config=(*SMALL, "calibration=mine.json")) == {"analyse", "report"}


@pytest.mark.nsys
def test_strategy_that_cannot_be_measured_is_not_traced(fresh: Project) -> None:
    fresh.path("unmeasurable").write_text("graph")
    done = fresh.run()
    assert done.returncode == 0, done.stderr
    assert fresh.report()["tables"] == {CASE: {"case": CASE, "traces": ["eager.node"]}}


@pytest.mark.nsys
def test_program_that_fails_under_nsys(finished: Project) -> None:
    for path in finished.traces().glob("graph.node.*"):
        path.unlink()
    finished.path("misbehave").write_text("fail")
    done = finished.run(f"profiles/nsys/{CASE}/graph.node.json", "--cores", "1")
    assert done.returncode == 1
    assert "error: traced program: exit code 1, 'the device ran out of patience'" in done.stdout + done.stderr
    assert "start again (without traces: --config profiler=off)" in done.stderr
    assert [name for name in finished.trace_files() if name.startswith((".", "graph"))] == []


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("lost", "with_it"),
    [
        ("results/report.md", ["results/report.json"]),
        (f"results/latency/{CASE}/latency_comparison.png", []),
        (
            f"results/tables/{CASE}/explained.json",
            [f"results/tables/{CASE}/{name}" for name in ("timeline.json", "kernels.csv")],
        ),
        (f"profiles/nsys/{CASE}/eager.node.nsys-rep", [f"profiles/nsys/{CASE}/eager.node.sqlite"]),
    ],
)
def test_a_file_that_was_lost_is_made_again(finished: Project, lost: str, with_it: list[str]) -> None:
    """Snakemake's reason names each file of a rule's outputs that is missing."""
    for name in (lost, *with_it):
        finished.path(name).unlink()
    done = finished.run("--dry-run")
    assert done.returncode == 0, done.stderr
    told = done.stderr + done.stdout
    reasons = [line for line in told.splitlines() if "Missing output files:" in line]
    assert "Nothing to be done" not in told
    for name in (lost, *with_it):
        assert any(name in line for line in reasons), told


def test_gpu_asked_for_and_missing(fresh: Project) -> None:
    done = fresh.run(config=("device=cuda",))
    assert done.returncode == 1
    assert "error: device cuda: no GPU: CUDA_VISIBLE_DEVICES hides all of them; unset it" in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("launchgap: ")][-2:] == [
        "launchgap: failed: preflight: device cuda: no GPU: CUDA_VISIBLE_DEVICES hides all of them; unset it "
        "to use the GPU (logs/preflight.log)",
        "launchgap: stopped early; mend what is named above and start again",
    ]
    assert not fresh.path("results/latency").exists()


def test_cpu_settings_are_laid_over_and_said_once_beside_the_dag(fresh: Project) -> None:
    done = fresh.run("--dag", config=())
    assert done.stderr.count("config/cpu.yaml on top") == 1
    assert done.stdout.startswith("digraph")
    assert CASE in done.stdout
    assert "gpt2" not in done.stdout


def test_command_line_wins_over_cpu_settings(fresh: Project) -> None:
    mine = {"cases": [{"model": "gpt2", "dtype": "float32", "prompt_length": 9, "max_length": 99}]}
    fresh.path("mine.yaml").write_text(yaml.safe_dump(mine))
    done = fresh.run("--dry-run", "--cores", "1", "--configfile", "mine.yaml", config=())
    assert "gpt2-float32-p9-m99" in done.stdout
    assert CASE not in done.stdout


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rusn=5", "error: config: unknown key 'rusn'; did you mean 'runs'?"),
        (
            "runs=-5",
            "error: config: runs: -5 is not allowed; give a whole number from 1 to 1000000, the timed runs",
        ),
    ],
)
def test_bad_setting_is_one_line(fresh: Project, setting: str, message: str) -> None:
    done = fresh.run("--cores", "1", config=(setting,))
    assert done.returncode == 2
    errors = [
        line for line in done.stderr.splitlines() if not line.startswith(("Using workflow", "Config file"))
    ]
    assert len(errors) == 1
    assert errors[0].startswith(message)
    assert not fresh.path(".snakemake/locks").exists()


def test_output_folder_that_cannot_be_written(fresh: Project) -> None:
    fresh.path("results").write_text("a file where a folder has to be")
    done = fresh.run()
    assert done.returncode == 2
    assert "error: results: cannot be written (Not a directory); give a writable folder" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nsys
def test_snakemake_report_holds_report_tables_and_figures(finished: Project) -> None:
    done = finished.run("--report", "all.zip")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(finished.path("all.zip")) as archive:
        contained = {Path(name).name for name in archive.namelist()}
    tables = {f"{name}.csv" for name in ("requests", "launches", "kernels", "comparison", "ledger", "scores")}
    assert contained >= tables | {"report.html", "latency.svg", "latency_comparison.png"}


def test_reference_needs_neither_nsys_nor_gpu(fresh: Project) -> None:
    case = fresh.path("profiles/reference/gpt2-float32-p50-m1024")
    case.mkdir(parents=True)
    (case / "latency.json").write_text("{}")
    for name in ("eager.node", "graph.graph"):
        (case / f"{name}.sqlite.gz").write_bytes(gzip.compress(b"trace"))
        (case / f"{name}.json").write_text("{}")
    path = f"{Path(sys.executable).parent}:/bin"
    done = fresh.run("reference", "--cores", "1", PATH=path, LAUNCHGAP_NSYS=NO_NSYS)
    assert done.returncode == 0, done.stderr
    report = json.loads(fresh.path("results/reference/report.json").read_text())
    assert report["latency"] == ["gpt2-float32-p50-m1024"]
    assert report["tables"]["gpt2-float32-p50-m1024"]["traces"] == ["eager.node", "graph.graph"]
    assert report["preflight"] is None
    assert fresh.rules_to_run("reference") == set()


@pytest.mark.nsys
def test_timed_jobs_never_overlap(fresh: Project) -> None:
    case = {"model": "bert-tiny", "dtype": "float32", "prompt_length": 50}
    cases = [case | {"max_length": length} for length in (64, 128)]
    fresh.path("two.yaml").write_text(yaml.safe_dump({"cases": cases, "traced_strategies": ["eager"]}))
    # Without the profile nothing but the rules' own threads keeps them apart.
    arguments = ("--cores", "4", "--workflow-profile", "none", "--configfile", "two.yaml")
    names = [f"bert-tiny-float32-p50-m{length}" for length in (64, 128)]
    wanted = [f"profiles/nsys/{name}/eager.node.json" for name in names]
    wanted += [f"results/latency/{name}/latency.json" for name in names]
    done = fresh.run(*wanted, *arguments, config=())
    assert done.returncode == 0, done.stderr
    times = sorted(
        tuple(map(float, line.split()[:2])) for line in fresh.path("clock").read_text().splitlines()
    )
    assert len(times) == 4
    for (_, end), (begin, _) in pairwise(times):
        assert end <= begin


def test_the_snakefile_is_short() -> None:
    assert len((ROOT / "Snakefile").read_text().splitlines()) < 80


def test_every_rule_has_a_log_and_an_environment() -> None:
    for path in ROOT.glob("rules/*.smk"):
        blocks = [block for block in path.read_text().split("\n\n\n") if "    shell:" in block]
        for block in blocks:
            assert "    log:" in block
            assert "../envs/launchgap.yaml" in block
            assert "> {log:q} 2>&1" in block


def test_parsing_loads_nothing_heavy() -> None:
    code = "import sys, rules.settings, nsight.gpu, nsight.preflight; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"torch", "pandas", "numpy", "transformers", "matplotlib"} & set(done.stdout.split()) == set()
