"""A view of a trace as text, Markdown, CSV or JSON. The same view is the same text, byte for byte."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.commands.sections import Fact, Section, View
from analysis.commands.select import DEFAULT_DOMAIN_SHOWN
from analysis.commands.words import markdown, shown, width
from analysis.finding import Finding

SCHEMA_VERSION = 1
"""Of the JSON; a reader of it should refuse another."""

NO_VALUE = "-"
"""Cell of something that the trace does not show. Never 0."""

_FACT_CHARACTERS = 300
_FINDING_CHARACTERS = 1_000
_DECIMALS = 4
_ONE_DECIMAL = ("_percent", "(%)", "(ns)")  # the last two are columns of NVIDIA's reports, as nsys shows them
_IDS = frozenset({"process", "thread", "only_process", "PID", "TID"})  # to be copied, not to be compared
_LINE = 110


class Format(StrEnum):
    """How a view is written."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"


def render(view: View, form: Format, top: int | None) -> str:
    """The view in a format; `top` rows of each table, all where it is None."""
    if form is Format.JSON:
        return _json(view, top)
    if form is Format.CSV:
        return _csv(view, top)
    return _markdown(view, top) if form is Format.MARKDOWN else _text(view, top)


def finding_line(finding: Finding) -> str:
    """One finding on one line, safe to print."""
    return shown(f"{finding.severity}: {finding.sentence}", _FINDING_CHARACTERS)


def cell(value: object, column: str = "") -> str:
    """One value as a reader sees it; by the unit in `column`, microseconds to the ns, percent to a tenth."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return NO_VALUE
    if isinstance(value, str):
        return shown(value) or (DEFAULT_DOMAIN_SHOWN if column == "domain" else "")
    if not isinstance(value, float):
        return str(value) if column in _IDS else f"{int(value):,}"  # type: ignore[call-overload]  # what is left is a whole number
    if column.endswith(_ONE_DECIMAL) or column.startswith("Avg "):
        return f"{value:,.1f}"
    if column.endswith("_s"):
        return f"{value:,.6f}"
    return f"{int(value):,}" if value.is_integer() and not column.endswith("_us") else f"{value:,.3f}"


def _text(view: View, top: int | None) -> str:
    parts = [shown(view.title, _FACT_CHARACTERS), _facts_text(view.facts)]
    if view.findings:
        parts.append("\n".join(finding_line(finding) for finding in view.findings))
    for section in _loud(view):
        rows, left = _cut(section, top)
        body = _aligned(_header(section), _cells(rows, section)) if len(section.table) else "(none)"
        note = f"\n{textwrap.fill(section.note, _LINE)}" if section.note else ""
        parts.append(f"{section.title}{note}\n\n{body}{_more(left)}")
    return "\n\n".join([*parts, *([view.tip] if view.tip else [])]) + "\n"


def _markdown(view: View, top: int | None) -> str:
    parts = [f"# {markdown(shown(view.title, _FACT_CHARACTERS))}"]
    parts.append(
        "\n".join(f"- {_label(name)}: {markdown(_fact(name, value))}" for name, value in view.facts.items())
    )
    if view.findings:
        parts.append("\n".join(f"- **{markdown(finding_line(finding))}**" for finding in view.findings))
    for section in _loud(view):
        rows, left = _cut(section, top)
        parts.append(f"## {markdown(section.title)}")
        parts += [markdown(section.note)] if section.note else []
        parts.append(_pipes(section, rows) if len(section.table) else "(none)")
        parts += [markdown(_more(left).strip())] if left else []
    return "\n\n".join([*parts, *([markdown(view.tip)] if view.tip else [])]) + "\n"


def _csv(view: View, top: int | None) -> str:
    """One table as plain CSV; several below each other, each led by a column that says which it is."""
    tables = [(section.name, _cut(section, top)[0]) for section in view.sections]
    if len(tables) != 1:
        facts = pd.DataFrame({"fact": list(view.facts), "value": [_plain(v) for v in view.facts.values()]})
        told = pd.DataFrame([asdict(finding) for finding in view.findings])
        tables = [("trace", facts), *([("findings", told)] if view.findings else []), *tables]
    if len(tables) > 1:
        tables = [(name, pd.concat([_constant(name, table), table], axis=1)) for name, table in tables]
    return "\n".join(
        table.round(_decimals(table)).to_csv(index=False, lineterminator="\n") for _, table in tables
    )


def _decimals(table: pd.DataFrame) -> dict[str, int]:
    return {str(name): _decimals_of(str(name)) for name in table.select_dtypes("number")}


def _decimals_of(column: str) -> int:
    """Seconds keep their nanoseconds."""
    return 9 if column.endswith("_s") else _DECIMALS


def _constant(name: str, table: pd.DataFrame) -> pd.Series[str]:
    return pd.Series([name] * len(table), index=table.index, name="table", dtype="object")


def _json(view: View, top: int | None) -> str:
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": view.kind,
        "trace": {"file": view.title, **{n: _json_fact(n, fact) for n, fact in view.facts.items()}},
        "findings": [asdict(finding) for finding in view.findings],
        "tables": {section.name: _records(_cut(section, top)[0]) for section in view.sections},
    }
    # ASCII only: a terminal escape or half a character in a name stays an escape in the file.
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    columns = [str(name) for name in table.columns]
    values = [[_json_value(value, name) for value in table[name]] for name in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _json_value(value: object, column: str) -> str | int | float | None:
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return round(float(value), _decimals_of(column))
    return int(value)  # type: ignore[call-overload, no-any-return]  # what is left is a whole number


def _json_fact(name: str, fact: Fact) -> Fact:
    return round(fact, _decimals_of(name)) if isinstance(fact, float) else fact


def _plain(fact: Fact) -> str:
    if fact is None:
        return ""
    return fact if isinstance(fact, str) else "; ".join(fact) if isinstance(fact, Sequence) else str(fact)


def _fact(name: str, value: Fact) -> str:
    if name == "only_domain":
        return cell(value, "domain")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return shown(", ".join(value), _FACT_CHARACTERS) or "none"
    return shown(value, _FACT_CHARACTERS) if isinstance(value, str) else cell(value, name)


def _label(name: str) -> str:
    """A fact's name in words."""
    words, _, unit = name.replace("_", " ").rpartition(" ")
    label = f"{words} (s)" if unit == "s" else name.replace("_", " ")
    return re.sub(r"\b(?:nvtx|api)\b", lambda found: found[0].upper(), label).replace("gpus", "GPUs")


def _facts_text(facts: Mapping[str, Fact]) -> str:
    wide = max(len(_label(name)) for name in facts)
    return "\n".join(f"  {_label(name).ljust(wide)}  {_fact(name, value)}" for name, value in facts.items())


def _loud(view: View) -> list[Section]:
    return [section for section in view.sections if not section.quiet]


def _cut(section: Section, top: int | None) -> tuple[pd.DataFrame, int]:
    """The first rows of a table, and how many are left."""
    table = section.table
    return (table, 0) if top is None or section.whole else (table.head(top), max(len(table) - top, 0))


def _more(left: int) -> str:
    return f"\n... and {left:,} more; --top 0 shows all" if left else ""


def _visible(section: Section) -> list[str]:
    return [str(name) for name in section.table.columns if name not in section.long]


def _header(section: Section) -> list[tuple[str, bool]]:
    """Visible columns, and whether each holds numbers, which stand to the right."""
    return [(name, pd.api.types.is_numeric_dtype(section.table[name])) for name in _visible(section)]


def _cells(rows: pd.DataFrame, section: Section) -> list[list[str]]:
    columns = [[cell(value, name) for value in rows[name]] for name in _visible(section)]
    return [list(row) for row in zip(*columns, strict=True)]


def _aligned(header: list[tuple[str, bool]], rows: list[list[str]]) -> str:
    widths = [max([width(name), *(width(row[i]) for row in rows)]) for i, (name, _) in enumerate(header)]
    lines = []
    for row in ([name for name, _ in header], ["-" * wide for wide in widths], *rows):
        padded = []
        for text, wide, (_, numeric) in zip(row, widths, header, strict=True):
            space = " " * (wide - width(text))
            padded.append(space + text if numeric else text + space)
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _pipes(section: Section, rows: pd.DataFrame) -> str:
    header = _header(section)
    lines = [
        "| " + " | ".join(markdown(name) for name, _ in header) + " |",
        "|" + "|".join(" ---: " if numeric else " --- " for _, numeric in header) + "|",
    ]
    lines += ["| " + " | ".join(map(markdown, row)) + " |" for row in _cells(rows, section)]
    return "\n".join(lines)


def to_bytes(text: str) -> bytes:
    """UTF-8; what has no encoding, such as half a character from a file's name, as an escape."""
    return text.encode("utf-8", "backslashreplace")
