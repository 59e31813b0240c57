"""nsys that writes what is no trace, and results that an older launchgap left, in the whole pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.report_tables import ANALYSE_AGAIN
from nsight.capture import capture
from nsight.errors import NsysFailed
from nsight.install import Nsys
from nsight.trace import Traced
from tests.faults.normalised import normalised
from tests.nsight.conftest import FakeNsys
from tests.pipeline.conftest import CASE, Project

# An nsys whose profile writes a report and the record, and whose export does this with the SQLite file.
PROFILE = """
report=${report//%%/%}
if [ -n "$report" ]; then
  head -c 50000 /dev/urandom > "$report"
  printf '{"schema_version": 1, "kind": "trace", "requests": 1}' > "$(dirname "$report")/trace.json"
  exit
fi
cd "$LAUNCHGAP_CAPTURE"
"""
DAMAGED = {
    "no database": "head -c 9000 /dev/urandom > trace.sqlite",
    "empty": "touch trace.sqlite",
    "cut off": "head -c 20000 {whole} > trace.sqlite",
}


@pytest.mark.nsys
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_report_that_is_broken(
    fake_nsys: FakeNsys, traced: Callable[..., Traced], finished_master: Project, tmp_path: Path, damage: str
) -> None:
    """A stand-in for nsys, whose real one cannot be made to: exit code 0 and half of a file."""
    whole = finished_master.traces() / "eager.node.sqlite"
    commands = DAMAGED[damage].format(whole=f'"{str(whole).replace("$", chr(92) + "$")}"')
    output = tmp_path / "traces/graph.node"
    with pytest.raises(NsysFailed, match=r"nsys export: its SQLite file is damaged \(.*trace again"):
        capture(fake_nsys(PROFILE + commands), traced("ok"), output, {"PATH": "/bin:/usr/bin"})
    assert [path.name for path in output.parent.iterdir() if path.suffix != ".lock"] == []


@pytest.mark.nsys
def test_the_pipeline_goes_on_once_nsys_is_mended(
    finished: Project, finished_master: Project, fake_nsys: FakeNsys, real_nsys: Nsys
) -> None:
    for path in finished.traces().glob("graph.node.*"):
        path.unlink()
    broken = fake_nsys(PROFILE + DAMAGED["no database"])
    trace = f"profiles/nsys/{CASE}/graph.node.json"
    # By the times of files alone: another nsys is a reason to look at the host anew.
    arguments = ("--cores", "1", "--rerun-triggers", "mtime")
    done = finished.run(trace, *arguments, LAUNCHGAP_NSYS=str(broken.path))
    assert done.returncode == 1
    assert (
        "error: nsys export: its SQLite file is damaged (file is not a database)" in done.stdout + done.stderr
    )
    assert [name for name in finished.trace_files() if name.startswith("graph")] == []
    assert finished.run(LAUNCHGAP_NSYS=str(real_nsys.path)).returncode == 0
    assert normalised(finished.path("results")) == normalised(finished_master.path("results"))


@pytest.mark.nsys
def test_a_damaged_table_is_made_anew_by_what_its_error_says(
    finished: Project, finished_master: Project
) -> None:
    table = finished.path(f"results/tables/{CASE}/ledger.csv")
    table.write_bytes(table.read_bytes()[:100])
    command = re.search(r"`snakemake (.*)`", ANALYSE_AGAIN)
    assert command is not None
    done = finished.run(*command[1].split())
    assert done.returncode == 0, done.stderr
    assert normalised(finished.path("results")) == normalised(finished_master.path("results"))


@pytest.mark.nsys
def test_results_of_an_older_version(finished: Project, finished_master: Project) -> None:
    name = f"results/latency/{CASE}/latency.json"
    record = json.loads(finished.path(name).read_text())
    finished.path(name).write_text(json.dumps(record | {"schema_version": 0}))
    told = finished.run()
    assert told.returncode != 0
    message = (
        f"{name}: record schema 0, this launchgap reads 1; measure again or use the version that wrote it"
    )
    assert message in told.stderr
    done = finished.run("--cores", "1", "--forcerun", "measure")
    assert done.returncode == 0, done.stderr
    assert normalised(finished.path("results")) == normalised(finished_master.path("results"))
