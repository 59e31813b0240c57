"""What failed and why, from the jobs that Snakemake gave up on and their logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.failures import FailedJob, failures, reason


def _log(folder: Path, content: str) -> Path:
    path = folder / "a.log"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("loading\nerror: model x: not there; give one\n", "model x: not there; give one"),
        ("error: first\nerror: second; do this\nbye\n", "second; do this"),
        ("Traceback (most recent call last):\n  File ...\nKeyError:   'x'\n\n", "KeyError: 'x'"),
        ("\udcff broken\n", "\ufffd broken"),
        ("", "ended without a word: killed, or out of memory?"),
        ("x" * 100_000 + "\nerror: the end", "the end"),
    ],
)
def test_reason(tmp_path: Path, content: str, said: str) -> None:
    assert reason(_log(tmp_path, content)) == said


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert reason(tmp_path / "absent") == reason(None) == "ended without a word: killed, or out of memory?"


def test_the_first_step_that_failed_of_each_case_counts(tmp_path: Path) -> None:
    log = _log(tmp_path, "error: no space; make some\n")
    jobs = [
        FailedJob("analyse", {"case": "b"}, None),
        FailedJob("capture", {"case": "a", "strategy": "graph", "mode": "node"}, log),
        FailedJob("capture", {"case": "a", "strategy": "eager", "mode": "node"}, log),
        FailedJob("report", {}, log),
        FailedJob("measure", {"case": "c"}, log),
    ]
    found = failures(jobs)
    assert {case: one["step"] for case, one in found.items()} == {
        "c": "measuring",
        "a": "tracing eager (node mode)",
        "b": "analysing",
    }
    assert found["a"] == {
        "step": "tracing eager (node mode)",
        "reason": "no space; make some",
        "log": str(log),
    }
    assert found["b"]["log"] == ""
