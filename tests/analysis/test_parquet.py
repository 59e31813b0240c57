"""A table that becomes Parquet is the same table when it is read again: `make parquet-test`."""

from __future__ import annotations

import io
import math
from typing import Any

import pandas as pd
import pytest

from analysis.parquet import parquet_bytes

pytestmark = pytest.mark.parquet

TABLE = pd.DataFrame(
    {
        "strategy": ["eager", "graph", "<script>alert(1)</script>"],
        "request": pd.Series([0, 1, 2**62], dtype="int64"),
        "busy_us": [1629.8123456789, math.nan, -0.25],
        "timed": [True, False, True],
        "reason": pd.Series(["", None, 'µs, "quoted"\nand a second line'], dtype="object"),
    }
)


def read_again(table: pd.DataFrame) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(parquet_bytes(table)), engine="pyarrow")


def test_rows_and_types_are_those_of_the_table() -> None:
    again = read_again(TABLE)
    assert list(again) == list(TABLE)
    numbers = ["request", "busy_us", "timed"]
    assert again[numbers].dtypes.to_dict() == TABLE[numbers].dtypes.to_dict()
    pd.testing.assert_frame_equal(again[numbers], TABLE[numbers], check_exact=True)
    for name in ("strategy", "reason"):
        assert (
            again[name].astype("object").where(again[name].notna(), None).tolist()
            == TABLE[name].astype("object").where(TABLE[name].notna(), None).tolist()
        )


def test_the_file_has_plain_columns_and_no_index() -> None:
    packed = io.BytesIO(parquet_bytes(TABLE.iloc[1:]))
    stored = pd.read_parquet(packed, engine="pyarrow", dtype_backend="pyarrow")
    assert {name: str(dtype) for name, dtype in stored.dtypes.items()} == {
        "strategy": "string[pyarrow]",
        "request": "int64[pyarrow]",
        "busy_us": "double[pyarrow]",
        "timed": "bool[pyarrow]",
        "reason": "string[pyarrow]",
    }


@pytest.mark.parametrize("kind", ["object", "str", "string"])
def test_every_kind_of_text_gives_the_same_bytes(kind: Any) -> None:  # noqa: ANN401
    text = pd.DataFrame({"kernel": ["gemm", "softmax"]}, dtype="object")
    assert parquet_bytes(text.astype(kind)) == parquet_bytes(text)


def test_a_table_without_rows_keeps_its_columns() -> None:
    again = read_again(TABLE.iloc[:0])
    assert (list(again), len(again)) == (list(TABLE), 0)
