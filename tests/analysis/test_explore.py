"""The notebook: what is committed, that it runs on any trace and shows the commands' numbers, its errors."""

from __future__ import annotations

import ast
import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from jupytext.cli import jupytext as jupytext_command
from nbclient import NotebookClient
from packaging.requirements import Requirement

from tests.analysis.commands.run_command import analysis
from tests.analysis.trace_file import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "analysis/explore.ipynb"
SCRIPT = ROOT / "analysis/explore.py"
REFERENCE = "profiles/reference/gpt2-float32-p50-m1024"
OUT_OF_STEP = "run `jupytext --sync analysis/explore.ipynb`, which writes the newer file into the older"
NO_WIDGETS = "raise ImportError('hidden by a test')\n"
STANDARD = {"os", "sys", "pathlib"}
SHOWING = {"IPython", "pandas"}


@dataclass
class Session:
    """A kernel that runs the notebook's cells, and what they showed: texts in order, and pictures."""

    client: NotebookClient
    cells: list[Any]
    texts: list[str] = field(default_factory=list)
    pictures: list[bytes] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)

    def run(self, source: str) -> None:
        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        self.client.execute_cell(cell, len(self.client.nb.cells) - 1, store_history=False)
        for output in cell.outputs:
            self._take(output)

    def run_all(self, settings: str = "", until: str = "") -> None:
        """All cells in order, `settings` after the parameters; the last is the one that holds `until`."""
        for cell in self.cells:
            self.run(cell.source)
            if "parameters" in cell.metadata.get("tags", []) and settings:
                self.run(settings)
            if self.errors or (until and until in cell.source):
                return

    @property
    def said(self) -> str:
        return "\n".join(self.texts)

    def _take(self, output: Any) -> None:  # noqa: ANN401  # of a notebook
        if output.output_type == "error":
            self.errors.append(output)
        elif output.output_type == "stream":
            self.texts.append(output.text)
        else:
            self.texts.append(output.data.get("text/markdown") or output.data.get("text/plain", ""))
            if "image/png" in output.data:
                self.pictures.append(base64.b64decode(output.data["image/png"]))


def read(path: Path) -> Any:  # noqa: ANN401  # notebooks are untyped
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Session]]:
    """Starts kernels that know nothing of this machine's settings, and ends them."""
    home = tmp_path_factory.mktemp("jupyter")
    clients = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
            patch.setenv(name, str(home / name))
        for name in [key for key in os.environ if key.startswith("LAUNCHGAP_")]:
            patch.delenv(name)

        def start(**environ: str) -> Session:
            book = nbformat.v4.new_notebook(metadata=read(NOTEBOOK).metadata)
            # Cells may fail: what they show then is what the tests look at.
            client = NotebookClient(
                book, timeout=120, allow_errors=True, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
            )
            manager = client.setup_kernel(env={**os.environ, **environ})
            manager.__enter__()
            clients.append(manager)
            cells = [cell for cell in read(NOTEBOOK).cells if cell.cell_type == "code"]
            return Session(client, cells)

        yield start
        for manager in clients:
            manager.__exit__(None, None, None)


@pytest.fixture(scope="module")
def reference(kernels: Callable[..., Session]) -> Session:
    session = kernels()
    session.run_all()
    return session


@pytest.fixture(scope="module")
def foreign(kernels: Callable[..., Session], tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The notebook on another program's traces, set from outside, where ipywidgets is not installed."""
    folder = tmp_path_factory.mktemp("no-widgets")
    (folder / "ipywidgets.py").write_text(NO_WIDGETS)
    session = kernels(
        PYTHONPATH=str(folder),
        LAUNCHGAP_TRACE=str(EXAMPLES["eager.node"]),
        LAUNCHGAP_GRAPH=str(EXAMPLES["graph.node"]),
        LAUNCHGAP_REQUEST="3",
    )
    session.run_all()
    return session


@pytest.fixture
def again(foreign: Session) -> Session:
    """The same kernel, with nothing shown yet."""
    return Session(foreign.client, foreign.cells)


def tables(*command: str | Path) -> dict[str, list[dict[str, Any]]]:
    ran = analysis(*command, "--format", "json")
    assert ran.code == 0, ran
    found: dict[str, list[dict[str, Any]]] = json.loads(ran.out)["tables"]
    return found


def test_notebook_and_script_are_in_step() -> None:
    notebook, script = read(NOTEBOOK), jupytext.read(SCRIPT)
    sides = [
        [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in side.cells]
        for side in (notebook, script)
    ]
    assert sides[0] == sides[1], OUT_OF_STEP
    assert notebook.metadata.kernelspec == script.metadata.kernelspec, OUT_OF_STEP
    assert notebook.metadata.jupytext.formats == script.metadata.jupytext.formats == "ipynb,py:percent"


def test_sync_brings_an_edit_of_one_into_the_other_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    for path in (NOTEBOOK, SCRIPT, ROOT / "pyproject.toml"):
        shutil.copy(path, tmp_path)
    script, before = tmp_path / SCRIPT.name, read(NOTEBOOK)
    jupytext_command(["--quiet", "--sync", str(script)])
    assert script.read_text() == SCRIPT.read_text()
    script.write_text(script.read_text().replace("# # Explore a trace", "# # Explored"))
    os.utime(tmp_path / NOTEBOOK.name, (0, 0))
    jupytext_command(["--quiet", "--sync", str(script)])
    after = read(tmp_path / NOTEBOOK.name)
    assert after.cells[0].source == before.cells[0].source.replace("Explore a trace", "Explored")
    assert after.cells[1:] == before.cells[1:]
    assert after.metadata == before.metadata


def test_nothing_that_a_run_leaves_is_committed() -> None:
    notebook = read(NOTEBOOK)
    nbformat.validate(notebook)
    ran = [
        cell.source
        for cell in notebook.cells
        if cell.get("outputs") or cell.get("execution_count") is not None or set(cell.metadata) - {"tags"}
    ]
    assert not ran, "choose `Edit > Clear Outputs of All Cells` and save before a commit"
    # JupyterLab adds language_info on the first save.
    assert set(notebook.metadata) <= {"jupytext", "kernelspec", "language_info"}


def test_the_notebook_imports_nothing_but_what_shows_and_the_reader() -> None:
    tree = ast.parse(SCRIPT.read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= STANDARD | SHOWING | {"analysis", "contract"}


def test_its_own_requirements_are_those_it_is_tested_with() -> None:
    lists = [
        {
            line.split(">")[0]: line
            for line in (ROOT / "envs" / name).read_text().splitlines()
            if line[0] != "#"
        }
        for name in ("requirements-notebook.txt", "requirements-dev.txt")
    ]
    assert lists[0].pop("jupyterlab")
    assert lists[0].items() <= lists[1].items()
    for line in (ROOT / "envs/requirements-notebook.txt").read_text().splitlines()[2:]:
        assert {one.operator for one in Requirement(line).specifier} == {">=", "<"}


def test_it_runs_on_the_committed_trace_and_shows_every_picture(reference: Session) -> None:
    assert reference.errors == []
    assert len(reference.pictures) == 5
    assert all(picture.startswith(b"\x89PNG") for picture in reference.pictures)
    assert "Dropdown(description='range'" in reference.said


def test_it_shows_the_numbers_of_the_commands(reference: Session) -> None:
    trace, graph = f"{REFERENCE}/eager.node.sqlite.gz", f"{REFERENCE}/graph.node.sqlite.gz"
    own = ["--range", "request", "--domain", "launchgap"]
    count = {row["quantity"]: row["median"] for row in tables(trace, *own, "--table", "summary")["summary"]}
    assert count["kernels"] == 231
    assert f"{count['kernels']:,.0f} kernels of " in reference.said
    for part in (*tables("ledger", trace, *own)["gpu"], *tables("ledger", trace, *own)["host"]):
        assert f"{part['median_request_us']:,.3f}" in reference.said, part
    same = tables("match", trace, graph, *own)["totals"][0]
    assert (same["match"], same["eager_calls"]) == ("same", 223)
    assert f"{same['eager_us']:,.3f}" in reference.said


def test_it_ends_with_commands_that_run(reference: Session) -> None:
    lines = [line for line in reference.texts[-1].splitlines() if line.startswith("python -m analysis ")]
    assert len(lines) == 5
    words = next(line for line in lines if " ledger " in line).split()[3:]
    assert analysis(*words).code == 0


def test_settings_from_outside_choose_the_trace_and_the_request(foreign: Session) -> None:
    assert foreign.errors == []
    assert len(foreign.pictures) == 5
    assert "range: forward, domain (default)" in foreign.said
    assert "request: 3 of 0 to 19" in foreign.said
    instance = tables(EXAMPLES["eager.node"], "--range", "forward", "--table", "instances")["instances"][3]
    assert f"{instance['kernels']} kernels of " in foreign.said
    ledger = tables("ledger", EXAMPLES["eager.node"], "--range", "forward")["gpu_requests"][3]
    for part in ("head_ns", "busy_ns", "launch_bound_gaps_ns", "tail_ns"):
        assert f"{ledger[part] / 1_000:,.3f}" in foreign.said


def test_a_trace_in_graph_mode_shows_replays_and_no_kernels(again: Session) -> None:
    trace = str(EXAMPLES["graph.graph"])
    again.run_all(f"TRACE, GRAPH, REQUEST = {trace!r}, '', ''")
    assert again.errors == []
    assert len(again.pictures) == 5
    assert "0 kernels of 0 names" in again.said


@pytest.mark.parametrize(
    ("settings", "until", "expected"),
    [
        ("TRACE = 'nowhere.sqlite'", "open_trace", "nowhere.sqlite: cannot be read"),
        ("TRACE = 'README.md'", "open_trace", "README.md: no SQLite file"),
        ("RANGE = 'foward'", "chosen_range", "RANGE 'foward': not in the trace; did you mean 'forward'?"),
        ("DOMAIN = 'nowhere'; RANGE = 'forward'", "chosen_range", "DOMAIN 'nowhere': not in the trace"),
        (
            "REQUEST = '20'",
            "request_number",
            "REQUEST '20': there are 20 requests; give a number from 0 to 19",
        ),
        ("REQUEST = '-1'", "request_number", "REQUEST '-1': there are 20 requests"),
        ("REQUEST = 'first'", "request_number", "REQUEST 'first': there are 20 requests"),
        ("GRAPH = TRACE", "ledger_view(", "its requests replay no graph; give GRAPH the graph's trace"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(
    again: Session, settings: str, until: str, expected: str
) -> None:
    again.run_all(settings, until)
    (error,) = again.errors
    (line,) = error.traceback
    assert line.startswith("error: ")
    assert expected in line
    assert error.ename == "LaunchgapError"
