"""No setting reaches a shell as anything but itself: real Snakemake, stand-ins for the programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract import LaunchgapError
from rules.settings import check_config
from tests.pipeline.conftest import NO_NSYS, ROOT, Project

HOSTILE = [
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "x' && touch pwned '",
    'x" && touch pwned "',
    "x\ntouch pwned\n",
    "x\\' ; touch pwned #",
    "{params} {0} {input[0].__class__}",
    "--help",
    "$HOME/${PATH}",
    "> pwned",
]
CASE = {"model": "bert-tiny", "dtype": "float32", "prompt_length": 8, "max_length": 16}


def _strings(content: object, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Where in the configuration a text stands."""
    if isinstance(content, str):
        yield path
    elif isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from _strings(value, *path, key)


def _replaced(content: Any, path: tuple[str | int, ...], value: str) -> Any:  # noqa: ANN401 - as YAML gives it
    if not path:
        return value
    copy = content.copy()
    copy[path[0]] = _replaced(content[path[0]], path[1:], value)
    return copy


def _config() -> dict[str, Any]:
    """The shipped settings, with every text that a user may give."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert isinstance(config, dict)
    case = CASE | {"attn_implementation": "sdpa", "phase": "prefill"}
    return config | {"calibration": "measure", "cases": [case]}


@pytest.mark.parametrize("path", [*_strings(_config())], ids=lambda path: ".".join(map(str, path)))
def test_a_value_with_a_meaning_for_a_shell_is_refused_or_is_a_name(path: tuple[str | int, ...]) -> None:
    """Names of models and of attention may be anything; the next test runs those."""
    free = path[-1] in ("model", "attn_implementation")
    for value in HOSTILE:
        config = _replaced(_config(), path, value)
        if not free:
            with pytest.raises(LaunchgapError):
                check_config(config, ROOT / "config/config.schema.yaml")


@pytest.fixture
def hostile(fresh: Project) -> Project:
    """A project whose models lie in folders with such names, and whose attention is called so."""
    cases = []
    for length, name in enumerate(HOSTILE, start=8):
        # A slash ends the name of a folder, so those with one keep what is before it.
        folder = fresh.folder / "models" / name.partition("/")[0]
        folder.mkdir(parents=True, exist_ok=True)
        cases.append(CASE | {"model": f"./models/{folder.name}", "prompt_length": length, "max_length": 64})
        cases[-1]["attn_implementation"] = (
            name if _allowed(cases[-1] | {"attn_implementation": name}) else "sdpa"
        )
    fresh.path("hostile.yaml").write_text(yaml.safe_dump({"cases": cases}))
    return fresh


def _allowed(case: dict[str, Any]) -> bool:
    try:
        check_config(
            _config() | {"cases": [case | {"model": "bert-tiny"}]}, ROOT / "config/config.schema.yaml"
        )
    except LaunchgapError:
        return False
    return True


def test_hostile_names_run_as_they_are(hostile: Project) -> None:
    arguments = ("--cores", "1", "--configfile", "hostile.yaml")
    planned = hostile.run(*arguments, "--dry-run", "--printshellcmds", config=(), LAUNCHGAP_NSYS=NO_NSYS)
    assert planned.returncode == 0, planned.stderr
    done = hostile.run(*arguments, config=(), LAUNCHGAP_NSYS=NO_NSYS)
    assert done.returncode == 0, done.stderr
    assert list(hostile.folder.rglob("pwned")) == []
    wanted = yaml.safe_load(hostile.path("hostile.yaml").read_text())["cases"]
    records = [json.loads(path.read_text()) for path in hostile.path("results/latency").rglob("latency.json")]
    got = {(one["arguments"]["model"], one["arguments"]["attn_implementation"]) for one in records}
    assert got == {(case["model"], case["attn_implementation"]) for case in wanted}
    assert len(got) == len(HOSTILE)


def test_a_path_with_a_meaning_for_a_shell(fresh: Project) -> None:
    """The calibration is a path of the user's own, which rules pass on."""
    path = Path("$(touch pwned); 'mine'.json")
    fresh.path(str(path)).write_text("{}")
    fresh.path("mine.yaml").write_text(yaml.safe_dump({"cases": [CASE], "calibration": str(path)}))
    done = fresh.run(
        "--cores", "1", "--configfile", "mine.yaml", "--dry-run", config=(), LAUNCHGAP_NSYS=NO_NSYS
    )
    assert done.returncode == 0, done.stderr
    assert list(fresh.folder.rglob("pwned")) == []
