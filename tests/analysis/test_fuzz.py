"""Whatever bytes stand where a trace should be, the answer is a trace or one line, never a traceback."""

import sqlite3
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.attribute import RangeSelector, attribute
from analysis.findings import inspect
from analysis.leaks import find_leaks
from analysis.scrub import scrub
from analysis.summaries import api_summary, kernel_summary
from analysis.trace import read_trace
from contract import LaunchgapError
from tests.analysis.trace_file import TraceFile

HEADER_BYTES = 100
PAGE_BYTES = 512
READERS = ("read", "scrub", "find leaks")


@cache
def sound() -> bytes:
    """A small trace on small pages, so that most of its bytes mean something."""
    with tempfile.TemporaryDirectory() as folder:
        file = TraceFile(Path(folder) / "t.sqlite")
        file.requests((0, 100), (200, 300))
        for start in (10, 40, 210, 240):
            file.launch(f"kernel {start}", (start, start + 5), (start + 8, start + 20))
        file.memcpy(22, 25, file.call("cudaMemcpyAsync_v3020", 20, 21))
        file.memset(32, 35, file.call("cudaMemsetAsync_v3020", 30, 31))
        file.replay(72, 75, file.call("cudaGraphLaunch_v10000", 70, 71))
        file.range("open", 50, None, registered=False)
        file.diagnostic(3, "CUPTI dropped 5 records. Some CUPTI events might be missing.")
        file.execute("CREATE TABLE ANALYSIS_DETAILS (duration INTEGER, startTime INTEGER)")
        file.execute("INSERT INTO ANALYSIS_DETAILS VALUES (1000, 5)")
        path = file.save()
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("VACUUM")
        connection.close()
        return path.read_bytes()


def use(path: Path, reader: str) -> None:
    if reader == "scrub":
        scrub(path)
    elif reader == "find leaks":
        find_leaks(path)
    else:
        trace = read_trace(path)
        attribute(trace, RangeSelector())
        kernel_summary(trace)
        api_summary(trace)
        for finding in inspect(trace):
            assert finding.sentence.isprintable()


def survives(content: bytes, reader: str, name: str = "t.sqlite") -> bool:
    """Whether the content was read; if not, it was refused in one line that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        refusal = None
        try:
            use(path, reader)
        except LaunchgapError as error:
            refusal = str(error)
        assert [child.name for child in Path(folder).iterdir()] == [name]
        assert refusal is None or (str(path) in refusal and "\n" not in refusal)
        return refusal is None


def patched(content: bytes, changes: dict[int, int]) -> bytes:
    image = bytearray(content)
    for place, value in changes.items():
        image[place % len(image)] = value
    return bytes(image)


few = settings(max_examples=50, deadline=None)
some = settings(max_examples=100, deadline=None)
bytes_of_a_file = st.integers(0, 255)


@pytest.mark.parametrize("reader", READERS)
def test_sound_file_is_read(reader: str) -> None:
    assert survives(sound(), reader)


@pytest.mark.parametrize("reader", READERS)
@few
@given(changes=st.dictionaries(st.integers(0, HEADER_BYTES - 1), bytes_of_a_file, min_size=1, max_size=8))
def test_fuzzed_header(reader: str, changes: dict[int, int]) -> None:
    survives(patched(sound(), changes), reader)


@pytest.mark.parametrize("reader", READERS)
@some
@given(changes=st.dictionaries(st.integers(0, 1 << 20), bytes_of_a_file, min_size=1, max_size=30))
def test_flipped_bytes(reader: str, changes: dict[int, int]) -> None:
    survives(patched(sound(), changes), reader)


@few
@given(length=st.integers(0, 1 << 20), packed=st.booleans())
def test_cut_anywhere(length: int, packed: bool) -> None:
    content = sound()[: length % len(sound())]
    assert not survives(content, "read", "t.sqlite.gz" if packed else "t.sqlite")
