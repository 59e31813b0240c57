"""The word that stands for the code of a step: edits change it, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

from rules.fingerprint import fingerprint


def _project(folder: Path) -> Path:
    (folder / "library/__pycache__").mkdir(parents=True)
    (folder / "library/a.py").write_text("a = 1\n")
    (folder / "library/b.py").write_text("b = 2\n")
    (folder / "main.py").write_text("import library\n")
    return folder


def _now(root: Path) -> str:
    fingerprint.cache_clear()
    return fingerprint(root, "library/*", "library/*/*", "main.py")


def test_what_changes_it(tmp_path: Path) -> None:
    root = _project(tmp_path)
    seen = [_now(root)]
    for change in (
        lambda: (root / "library/a.py").write_text("a = 3\n"),
        lambda: (root / "library/c.py").write_text(""),
        lambda: (root / "library/c.py").rename(root / "library/d.py"),
        (root / "library/d.py").unlink,
        lambda: (root / "library/b.py").write_text("b = 2\nc = 3\n"),
    ):
        change()
        seen.append(_now(root))
    assert len(set(seen)) == len(seen) - 1  # a file that comes and goes leaves no trace
    assert seen[4] == seen[1]


def test_what_does_not(tmp_path: Path) -> None:
    first = _now(_project(tmp_path / "one"))
    root = _project(tmp_path / "two")
    (root / "library/__pycache__/a.pyc").write_bytes(b"compiled")
    (root / "other.py").write_text("")
    os.utime(root / "main.py", (1, 1))
    assert _now(root) == first
