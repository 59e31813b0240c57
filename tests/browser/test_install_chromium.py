"""envs/install-chromium.sh: its proof with the real browser, its refusals with one that is not there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

INSTALLER = Path(__file__).resolve().parents[2] / "envs/install-chromium.sh"


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(INSTALLER), *arguments]
    environment = {**os.environ, **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_working_browser_is_proven_and_nothing_is_installed(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert done.stdout.startswith("OK: ")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        (
            ("--check",),
            {"LAUNCHGAP_CHROMIUM": "no-such-browser"},
            "chromium: not found; run envs/install-chromium.sh",
        ),
        (("--check",), {"LAUNCHGAP_CHROMEDRIVER": "no-such-driver"}, "chromedriver: not found"),
        (("--check",), {"LAUNCHGAP_CHROMIUM": "true"}, "true: shows no page when started headless"),
        ((), {"LAUNCHGAP_CHROMIUM": "true"}, "true: does not work; correct or unset LAUNCHGAP_CHROMIUM"),
        (("--force",), {}, "usage: envs/install-chromium.sh [--check]"),
    ],
)
def test_refusals_are_one_line(arguments: tuple[str, ...], settings: dict[str, str], reason: str) -> None:
    done = run(*arguments, **settings)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"install-chromium: {reason}" in done.stderr
