#!/usr/bin/env python3
"""Ask the public databases whether a pinned package has a known vulnerability (pip-audit).

Exit code 1: one has. Exit code 2: the databases cannot be asked, which says nothing of the packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract import LaunchgapError
from scripts._arguments import Parser
from scripts._cli import run_main

SERVICES = ("pypi", "osv")
_TIMEOUT_S = 300


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was found; 1 where a package is vulnerable."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--pins",
        type=Path,
        default=Path("envs/constraints.txt"),
        metavar="FILE",
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--if-reachable", action="store_true", help="exit 0 where no database answers, and say so"
    )
    arguments = parser.parse_args(argv)
    try:
        report = _ask(arguments.pins)
    except LaunchgapError as error:
        if not arguments.if_reachable:
            raise
        print(f"not audited: {error}")
        return 0
    lines = vulnerabilities(report)
    skipped = [one["name"] for one in report["dependencies"] if "skip_reason" in one]
    print("\n".join([*lines, f"{len(lines)} known vulnerabilities in {arguments.pins}"]))
    if skipped:
        print(f"not looked up: {', '.join(skipped)}")
    return 1 if lines else 0


def _ask(pins: Path) -> dict[str, Any]:
    """The answer of the first database that knows the packages."""
    for service in SERVICES:
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--requirement",
            str(pins),
            "--no-deps",
            "--disable-pip",
        ]
        command += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if "No module named pip_audit" in done.stderr:
            raise LaunchgapError("pip-audit: not installed; run make audit, which installs it")
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        if was_answered(report):
            return dict(report)
    raise LaunchgapError(
        f"{pins}: no database of vulnerabilities answers (pypi.org, api.osv.dev), as behind a mirror or "
        "without a network; audit on a host that reaches one"
    )


def was_answered(report: dict[str, Any]) -> bool:
    """Whether most packages were looked up: where a mirror knows none, pip-audit skips them all."""
    packages = report.get("dependencies", [])
    return 2 * sum("skip_reason" in package for package in packages) < len(packages)


def vulnerabilities(report: dict[str, Any]) -> list[str]:
    """A line for each: package, version, its names and the versions that mend it."""
    return [
        f"{package['name']} {package['version']}: {', '.join([one['id'], *one.get('aliases', [])])}; "
        f"mended in {', '.join(one['fix_versions']) or 'no version yet'}"
        for package in report["dependencies"]
        for one in package.get("vulns", [])
    ]


if __name__ == "__main__":
    run_main(main)
