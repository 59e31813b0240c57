"""One line and exit code 2 for what a user can mend; files whole or absent."""

import errno
import logging
import os
import resource
import signal
from pathlib import Path

import pytest

from commandline import Parser, run_command
from contract import LaunchgapError
from scripts._cli import require_writable, run_main, write_bytes_atomic, write_text_atomic
from scripts._config import parse_with_config


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (LaunchgapError("model x: unknown;\nuse gpt2"), "error: model x: unknown; use gpt2"),
        (
            OSError(errno.ENOSPC, "No space left on device", "out.json"),
            "error: out.json: No space left on device; free",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "out.json"),
            "error: out.json: Permission denied; give",
        ),
    ],
)
def test_a_users_mistake_is_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_main(lambda: _raise(error))
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(line)


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_main(lambda: 1 // 0)


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1)])
def test_the_return_value_is_the_exit_code(returned: int | None, code: int) -> None:
    with pytest.raises(SystemExit) as caught:
        run_main(lambda: returned)
    assert caught.value.code == code


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "record.json"
    write_text_atomic(path, "first")
    write_text_atomic(path, "second: µs")
    assert path.read_text(encoding="utf-8") == "second: µs"
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    write_text_atomic(path, "old")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_text_atomic(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_a_real_limit_on_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_text_atomic(path, "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_bytes_atomic(path, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        require_writable(tmp_path / "file" / "results")


def _mistaken(argv: list[str]) -> int:
    """A program that logs in one of launchgap's packages and in another, and ends in a user's mistake."""
    Parser().parse_args(argv)
    for name in ("inference.loading", "urllib3"):
        logging.getLogger(name).debug("details of %s", name)
    raise LaunchgapError("model x: unknown; use gpt2")


def test_verbose_shows_details_of_our_own_and_where_an_error_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for package in ("analysis", "inference", "nsight", "scripts"):
        monkeypatch.setattr(logging.getLogger(package), "level", logging.NOTSET)
    assert run_command(lambda: _mistaken(["--verbose"])) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "details of inference.loading"
    assert not any("urllib3" in line for line in said)
    assert any("in _mistaken" in line for line in said)
    assert said[-1] == "error: model x: unknown; use gpt2"
    assert run_command(lambda: _mistaken([])) == 2
    assert capsys.readouterr().err.splitlines()[-1:] == ["error: model x: unknown; use gpt2"]


def test_a_config_file_cannot_be_verbose(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("verbose: true\n")
    with pytest.raises(LaunchgapError, match="unknown key 'verbose'"):
        parse_with_config(Parser(), ["--config", str(path)])
