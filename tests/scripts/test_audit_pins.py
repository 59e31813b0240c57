"""The audit of the pins: what a database says, and a database that says nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.audit_pins import main
from tests.in_process import in_process

SOUND = {"name": "numpy", "version": "2.4", "vulns": []}
UNKNOWN = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited"}
HOLED = {
    "name": "jinja2",
    "version": "3.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-2024-1"], "fix_versions": ["3.1"], "description": "x"}],
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each database says, None where it cannot be reached. A stand-in: tests run without a network."""
    said: dict[str, Any] = {"pypi": None, "osv": None}

    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        packages = said[command[command.index("--vulnerability-service") + 1]]
        out = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
        return subprocess.CompletedProcess(command, 0, out, "")

    monkeypatch.setattr("scripts.audit_pins.subprocess.run", answer)
    return said


def test_nothing_known(answers: dict[str, Any]) -> None:
    answers["pypi"] = [SOUND, SOUND, UNKNOWN]
    done = in_process(main)
    assert done.code == 0
    assert done.out.splitlines() == [
        "0 known vulnerabilities in envs/constraints.txt",
        "not looked up: jinja2",
    ]


def test_a_vulnerability_is_a_line_and_exit_code_1(answers: dict[str, Any]) -> None:
    answers["osv"] = [SOUND, HOLED]
    done = in_process(main)
    assert done.code == 1
    assert done.out.splitlines()[0] == "jinja2 3.0: PYSEC-1, CVE-2024-1; mended in 3.1"


@pytest.mark.parametrize("pypi", [None, [UNKNOWN, UNKNOWN], []], ids=["no network", "a mirror", "nothing"])
def test_a_database_that_says_nothing_is_no_clean_audit(answers: dict[str, Any], pypi: Any) -> None:  # noqa: ANN401
    answers["pypi"] = pypi
    assert "no database of vulnerabilities answers" in in_process(main).complaint
    done = in_process(main, "--if-reachable")
    assert done.code == 0
    assert done.out.startswith("not audited: envs/constraints.txt: no database of vulnerabilities answers")


def test_without_pip_audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pip_audit.py").write_text("raise ModuleNotFoundError('No module named pip_audit')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "pip-audit: not installed; run make audit" in in_process(main).complaint
