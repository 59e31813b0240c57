"""docs/faults.md says what the tests prove: every row has its tests, every test its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.table import FAULTS, PAGE, ROOT, Fault, names_of_tests, page, quotes

SOURCES = [
    ROOT / "commandline.py",
    *(path for name in ("nsight", "contract", "rules") for path in (ROOT / name).glob("*.py")),
]
ABOUT_THE_TESTS = {"test_what_is_compared_would_be_seen"}


def test_the_page_is_as_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.faults.table"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name[:40])
def test_a_row_names_tests_that_exist_and_quotes_what_they_look_for(fault: Fault) -> None:
    files = [ROOT / name.partition("::")[0] for name in fault.tests]
    for name, path in zip(fault.tests, files, strict=True):
        assert name.partition("::")[2] in names_of_tests(path)
    # Literals that a source breaks into two lines are put together again.
    text = "".join(path.read_text(encoding="utf-8") for path in {*files, *SOURCES, *_helpers()})
    text = "".join("".join(part.split("\n")) for part in text.split('"'))
    for quote in quotes(fault):
        assert "".join(quote.split()) in "".join(text.split())


def _helpers() -> list[Path]:
    return [path for path in (ROOT / "tests/faults").glob("*.py") if path.name != "table.py"]


def test_every_test_of_a_fault_has_a_row() -> None:
    named = {name for fault in FAULTS for name in fault.tests}
    there = {
        f"tests/faults/{path.name}::{test}"
        for path in (ROOT / "tests/faults").glob("test_*.py")
        if path.name != "test_table.py"
        for test in names_of_tests(path) - ABOUT_THE_TESTS
    }
    assert there - named == set()
