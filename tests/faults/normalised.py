"""Results as they are but for what every run measures anew: times, and where and when it ran."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

_MEASURED = re.compile(
    r".*_(ms|us|ns|s|percent|bytes)|.*(median|clock|noise|drift|speedup|reduction|interval|ratio|when|date|time|load|free).*"
    r"|environment|findings|verdict|text|points|svg|output_dir|command|paths?"
)
"""Names of fields and columns that hold what a run measured, or words about it."""


def normalised(folder: Path) -> dict[str, Any]:
    """Every record, table and figure of a folder of results by its path; a figure by its name alone."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in (".used", ".snakemake_timestamp"):
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            found[name] = _without_measured(json.loads(path.read_text(encoding="utf-8")))
        elif path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                found[name] = [_without_measured(row) for row in csv.DictReader(file)]
        else:
            found[name] = path.stat().st_size > 0
    return found


def _without_measured(content: Any) -> Any:  # noqa: ANN401 - as JSON gives it
    if isinstance(content, dict):
        return {k: _without_measured(v) for k, v in content.items() if not _MEASURED.fullmatch(str(k))}
    if isinstance(content, list):
        return [_without_measured(item) for item in content]
    return "a number" if isinstance(content, float) else content
