"""Tables as Parquet, for tools that read it; needs pyarrow, which nothing else here does."""

from __future__ import annotations

from importlib.util import find_spec

import pandas as pd

from contract import LaunchgapError


def require_pyarrow() -> None:
    """Fail before the work, not after it.

    Raises:
        LaunchgapError: pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise LaunchgapError("Parquet: pyarrow is not installed; pip install pyarrow, or read the CSV files")


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """A table as a Parquet file, without its index and, unlike the CSV, not rounded.

    The same table and the same pyarrow give the same bytes. Needs pyarrow: see `require_pyarrow`.
    """
    # Without pandas' own kinds of text, of which there is another one where pyarrow is installed.
    plain = table.astype(dict.fromkeys(table.select_dtypes(["str", "string"]).columns, "object"))
    return bytes(plain.to_parquet(engine="pyarrow", index=False))
