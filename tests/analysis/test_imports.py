import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# explore.py is a notebook, which runs when it is imported; test_explore.py sees to what it imports.
MODULES = sorted(
    f"analysis.{path.stem}"
    for path in (ROOT / "analysis").glob("*.py")
    if path.stem not in ("__init__", "explore")
)


def imported_by(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_analysis_loads_no_torch_and_neither_neighbour() -> None:
    loaded = imported_by(*MODULES)
    assert set(MODULES) <= loaded
    tops = {name.split(".")[0] for name in loaded}
    assert not tops & {"torch", "transformers", "inference", "nsight", "scripts"}


@pytest.mark.parametrize("script", ["scripts.analyse_traces", "analysis.commands.scrub"])
def test_executables_load_no_torch(script: str) -> None:
    assert not {name.split(".")[0] for name in imported_by(script)} & {"torch", "transformers", "inference"}


def test_reading_a_trace_loads_no_plotting() -> None:
    assert "matplotlib" not in imported_by("analysis.case", "analysis.scrub", "analysis.trace")


def test_the_report_loads_no_pandas() -> None:
    """Loading it would take a tenth of the time that a report has; its tables are read without."""
    assert "pandas" not in imported_by("analysis.report", "scripts.build_report")
