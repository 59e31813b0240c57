import gzip
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from analysis import bulk
from analysis.bulk import SMALL, WIDE, Digits, NotPlain, Term, read_integers
from analysis.database import open_sqlite

COLUMNS = ("a", "b")


def table_of(path: Path, rows: list[tuple[object, ...]], kind: str = "INTEGER") -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name in COLUMNS)})")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    return path


def read(path: Path, *terms: Term) -> list[list[int]]:
    with open_sqlite(path) as database:
        return [column.tolist() for column in read_integers(database, "t", terms)]


@pytest.mark.parametrize("digits", [SMALL, WIDE], ids=["small", "wide"])
def test_all_values_in_reach(tmp_path: Path, digits: Digits) -> None:
    random = np.random.default_rng(1)
    edges = [digits.low, digits.low + 1, -1, 0, 1, digits.high - 1, digits.high]
    values = [*edges, *random.integers(digits.low, digits.high, 5000).tolist()]
    path = table_of(tmp_path / "t.sqlite", [(value, place) for place, value in enumerate(values)])
    assert read(path, Term("a", digits), Term("b", SMALL)) == [values, list(range(len(values)))]


@pytest.mark.parametrize("digits", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize("kind", ["INTEGER", ""], ids=["integer column", "column of any type"])
@pytest.mark.parametrize("bad", ["below", "above", None, "soon", "7", "", b"7", 1.5, 1e300, float("inf")])
def test_what_is_no_such_integer_is_never_taken_for_one(
    tmp_path: Path, digits: Digits, kind: str, bad: object
) -> None:
    value = {"below": digits.low - 1, "above": digits.high + 1}.get(str(bad), bad)
    path = table_of(tmp_path / "t.sqlite", [(1, 1), (value, 2), (3, 3)], kind)
    with sqlite3.connect(path) as connection:
        stored = connection.execute("SELECT a FROM t").fetchall()[1][0]
    connection.close()
    if bad == "7" and stored == 7:
        assert read(path, Term("a", digits)) == [[1, 7, 3]]
        return
    with pytest.raises(NotPlain):
        read(path, Term("a", digits))


def test_small_columns_take_half_the_memory_where_they_fit(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t.sqlite", [(2**31 - 1, 2**31), (-5, 0)])
    with open_sqlite(path) as database:
        fits, does_not = read_integers(database, "t", [Term("a", SMALL), Term("b", SMALL)])
    assert (str(fits.dtype), str(does_not.dtype)) == ("int32", "int64")
    assert does_not.tolist() == [2**31, 0]


def test_no_rows(tmp_path: Path) -> None:
    assert read(table_of(tmp_path / "t.sqlite", []), Term("a"), Term("b")) == [[], []]


@pytest.mark.parametrize("rows_at_once", [1, 3, 7, 100])
@pytest.mark.parametrize("rows_per_worker", [1, 5, 1000])
def test_rows_stay_in_order_over_blocks_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int, rows_per_worker: int
) -> None:
    monkeypatch.setattr(bulk, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(bulk, "_ROWS_PER_WORKER", rows_per_worker)
    monkeypatch.setattr(bulk, "_cores", lambda: 3)
    values = np.random.default_rng(2).integers(-(10**15), 10**15, 50).tolist()
    path = table_of(tmp_path / "t.sqlite", [(value, place) for place, value in enumerate(values)])
    expected = [values, list(range(50))]
    assert read(path, Term("a"), Term("b", SMALL)) == expected
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed, Term("a"), Term("b", SMALL)) == expected


def test_row_ids_with_large_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_cores", lambda: 3)
    path = table_of(tmp_path / "t.sqlite", [])
    ids = [-(2**63), -5, 0, 1, 2**40, 2**63 - 1]
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO t (rowid, a, b) VALUES (?, ?, 0)", [(i, i % 97) for i in ids])
    connection.close()
    assert read(path, Term("a")) == [[i % 97 for i in ids]]


@pytest.mark.parametrize("taken", [["rowid"], ["rowid", "_rowid_"], ["RowID", "oid", "_rowid_"]])
def test_table_with_a_column_called_rowid(tmp_path: Path, taken: list[str]) -> None:
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t (a INTEGER, {', '.join(taken)})")
        connection.executemany(f"INSERT INTO t (a, {taken[0]}) VALUES (?, 1)", [(5,), (6,), (7,)])
    connection.close()
    if len(taken) == 3:
        with pytest.raises(NotPlain):
            read(path, Term("a"))
    else:
        assert read(path, Term("a")) == [[5, 6, 7]]
