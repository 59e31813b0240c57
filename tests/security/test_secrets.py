"""Secrets stay where they are, and nobody can connect: the real pipeline, from configuration to report."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.conftest import CASE, PLANTED
from tests.security.listening import ListeningWatch

pytestmark = pytest.mark.nsys


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_no_secret_is_in_anything_that_was_written(real: Path) -> None:
    files = _files(real)
    suffixes = {path.suffix for path in files}
    assert suffixes >= {".nsys-rep", ".sqlite", ".json", ".html", ".md", ".csv", ".svg", ".png", ".log"}
    found = [
        (path.relative_to(real), name)
        for path in files
        for name, value in PLANTED.items()
        if value.encode() in path.read_bytes() or value.encode("utf-16-le") in path.read_bytes()
    ]
    assert found == []


def test_a_trace_holds_no_environment_but_that_of_nsys_and_the_program(real: Path) -> None:
    """What is found proves that it would be: nsys does store environments, this one's among them."""
    with closing(sqlite3.connect(real / f"profiles/nsys/{CASE}/graph.node.sqlite")) as connection:
        texts = [row[0] for row in connection.execute("SELECT value FROM StringIds")]
    environments = [text for text in texts if "\0" in text]
    assert environments
    for text in environments:
        names = {entry.partition("=")[0] for entry in text.split("\0")}
        assert "LAUNCHGAP_CAPTURE" in names
        assert names & {*PLANTED, "PYTEST_CURRENT_TEST"} == set()


def test_nothing_listens_on_a_network(real: Path) -> None:
    assert (real.parent / "listening").read_text() == ""


def test_the_watch_sees_who_listens() -> None:
    program = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(flush=True); input()"
    environ = {**os.environ, "WATCHED": "yes"}
    with (
        ListeningWatch("WATCHED=yes") as watch,
        socket.create_server(("127.0.0.1", 0)),
        subprocess.Popen(
            [sys.executable, "-c", program], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 30
        while not watch.found and time.monotonic() < deadline:
            time.sleep(0.01)
        process.communicate(b"\n")
    assert len(watch.found) == 1
    assert next(iter(watch.found)).startswith("python: tcp 0100007F:")
