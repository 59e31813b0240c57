"""Traces for nsys to report on: the bundled ones, and the hard cases in the shapes of several schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.trace import Trace
from tests.analysis.nvidia.hard_cases import CASES, build
from tests.analysis.nvidia.oracle import read_once, unpack_once
from tests.analysis.trace_file import EXAMPLES, LATEST

ROOT = Path(__file__).resolve().parents[3]
PACKED = [*EXAMPLES.values(), *sorted((ROOT / "profiles" / "reference").glob("**/*.sqlite.gz"))]
SCHEMAS = ("3.0.0", LATEST)

BUNDLED = {f"{path.parent.name}/{path.name}": path for path in PACKED}
BUILT = {f"{name}/{schema}": (name, schema) for name in CASES for schema in SCHEMAS}
"""Traces by the name of their test."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="session")
def unpacked() -> dict[str, Path]:
    """The three example traces by name, the same files as `path` gives."""
    return {name: unpack_once(packed) for name, packed in EXAMPLES.items()}


@pytest.fixture(scope="session", params=[*BUNDLED, *BUILT])
def path(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A trace that nsys may write beside; made once, so that nsys is asked once for all tests."""
    if request.param in BUNDLED:
        return unpack_once(BUNDLED[request.param])
    name, schema = BUILT[request.param]
    return build(CASES[name], folder / f"{name}-{schema}.sqlite", schema)


@pytest.fixture(scope="session")
def trace(path: Path) -> Trace:
    return read_once(path)
