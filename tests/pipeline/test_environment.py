"""What the jobs' environment is: this project first, and bytecode kept where that disturbs nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rules.environment import prepare_environment


def prepared(**environ: str) -> dict[str, str]:
    prepare_environment("/project", environ)
    return environ


def test_the_project_and_this_python_come_first() -> None:
    environ = prepared(PYTHONPATH="/theirs", PATH="/usr/bin")
    assert environ["PYTHONPATH"] == "/project:/theirs"
    assert environ["PATH"].split(":") == [str(Path(sys.executable).parent), "/usr/bin"]


def test_bytecode_goes_to_the_users_cache_and_not_beside_the_module(tmp_path: Path) -> None:
    module = tmp_path / "code" / "imported.py"
    module.parent.mkdir()
    module.write_text("")
    (tmp_path / "home").mkdir()
    given = os.environ | {"HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX"):
        given.pop(name, None)
    environ = prepared(**given) | {"PYTHONPATH": str(module.parent)}
    subprocess.run([sys.executable, "-c", "import imported"], env=environ, check=True)
    assert list((tmp_path / "home" / ".cache" / "launchgap").rglob("imported.*.pyc"))
    assert list(module.parent.iterdir()) == [module]


@pytest.mark.parametrize(
    ("given", "bytecode_in"),
    [
        ({"HOME": "{own}"}, None),
        ({"PYTHONDONTWRITEBYTECODE": "1"}, None),
        ({"HOME": "{own}", "PYTHONDONTWRITEBYTECODE": ""}, None),
        ({"HOME": "{own}/gone", "PYTHONDONTWRITEBYTECODE": "1"}, None),
        ({"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}, None),
        ({"HOME": "{own}", "PYTHONDONTWRITEBYTECODE": "1"}, "{own}/.cache/launchgap/bytecode"),
        (
            {"HOME": "/gone", "XDG_CACHE_HOME": "{own}", "PYTHONDONTWRITEBYTECODE": "1"},
            "{own}/launchgap/bytecode",
        ),
        ({"HOME": "{own}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/mine"}, "/mine"),
        (
            {"HOME": "{own}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": ""},
            "{own}/.cache/launchgap/bytecode",
        ),
    ],
)
def test_only_where_python_must_not_write_and_the_cache_is_the_users_own(
    tmp_path: Path, given: dict[str, str], bytecode_in: str | None
) -> None:
    environ = prepared(**{name: value.format(own=tmp_path) for name, value in given.items()})
    wanted = bytecode_in.format(own=tmp_path) if bytecode_in else None
    assert (environ.get("PYTHONPYCACHEPREFIX") or None) == wanted
    assert environ.get("PYTHONDONTWRITEBYTECODE") == (
        None if wanted else given.get("PYTHONDONTWRITEBYTECODE")
    )
