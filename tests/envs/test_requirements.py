"""The lists of what must be installed say the same."""

from __future__ import annotations

import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "envs/requirements.txt"
DEVELOPMENT = ROOT / "envs/requirements-dev.txt"
SLURM = ROOT / "envs/requirements-slurm.txt"
PARQUET = ROOT / "envs/requirements-parquet.txt"
CONSTRAINTS = ROOT / "envs/constraints.txt"
CONDA = ROOT / "envs/launchgap.yaml"
CUDA_LIBRARIES = ("nvidia-", "cuda-", "triton")
"""A CUDA build of torch names these itself, version by version."""


def read_requirements(lines: list[str]) -> dict[str, Requirement]:
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    names = [canonicalize_name(requirement.name) for requirement in found]
    assert len(set(names)) == len(names), "a package is listed twice"
    return dict(zip(names, found, strict=True))


def read_file(path: Path) -> dict[str, Requirement]:
    return read_requirements(path.read_text(encoding="utf-8").splitlines())


def conda_dependencies() -> list[Any]:
    dependencies: list[Any] = yaml.safe_load(CONDA.read_text(encoding="utf-8"))["dependencies"]
    return dependencies


def conda_python() -> str:
    (python,) = [entry for entry in conda_dependencies() if str(entry).startswith("python=")]
    return str(python).removeprefix("python=")


def test_conda_file_pins_what_the_requirements_bring_in() -> None:
    (pip_section,) = [entry["pip"] for entry in conda_dependencies() if isinstance(entry, dict)]
    names = all_brought_in_by(RUNTIME, python=conda_python())
    pins = {name: pin for name, pin in read_file(CONSTRAINTS).items() if name in names}
    for name, requirement in read_file(RUNTIME).items():
        pins[name].extras = requirement.extras
    assert {str(pin) for pin in read_requirements(pip_section).values()} == set(map(str, pins.values())), (
        "envs/launchgap.yaml: pip's section is out of step; make it\n"
        + "\n".join(f'      - "{pin}"' for _, pin in sorted(pins.items()))
    )


def test_conda_python_is_one_that_the_project_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = Requirement(f"python{project['requires-python']}").specifier
    assert supported.contains(conda_python())


@pytest.mark.parametrize("path", [RUNTIME, DEVELOPMENT, SLURM, PARQUET], ids=lambda path: path.name)
def test_every_requirement_is_a_bounded_range_and_its_pin_lies_inside(path: Path) -> None:
    pins = read_file(CONSTRAINTS)
    for name, requirement in read_file(path).items():
        assert {specifier.operator for specifier in requirement.specifier} == {">=", "<"}, name
        (pin,) = pins[name].specifier
        assert requirement.specifier.contains(pin.version), f"{name} {pin.version} against {requirement}"


def test_every_constraint_is_one_exact_public_version() -> None:
    for name, constraint in read_file(CONSTRAINTS).items():
        (specifier,) = constraint.specifier
        assert specifier.operator == "==", name
        assert "+" not in specifier.version, f"{name}: a local build is not on every index"
        assert "*" not in specifier.version, name


def brought_in_by(requirement: Requirement, seen: set[tuple[str, str]], python: str | None) -> set[str]:
    """Names of the installed packages that a requirement brings in, itself included; None is this Python."""
    name = canonicalize_name(requirement.name)
    key = (name, ",".join(sorted(requirement.extras)))
    if key in seen or name.startswith(CUDA_LIBRARIES):
        return set()
    seen.add(key)
    names: set[str] = {name}
    version = {} if python is None else {"python_version": python, "python_full_version": f"{python}.0"}
    for line in distribution(name).requires or []:
        needed = Requirement(line)
        extras = ["", *requirement.extras]
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": extra, **version}) for extra in extras):
            names |= brought_in_by(needed, seen, python)
    return names


def all_brought_in_by(*paths: Path, python: str | None = None) -> set[str]:
    seen: set[tuple[str, str]] = set()
    wanted = [requirement for path in paths for requirement in read_file(path).values()]
    return {name for requirement in wanted for name in brought_in_by(requirement, seen, python)}


def test_constraints_pin_what_the_requirements_bring_in_and_nothing_else() -> None:
    # What Parquet needs is installed apart and without what it needs itself.
    assert set(read_file(CONSTRAINTS)) == all_brought_in_by(RUNTIME, DEVELOPMENT, SLURM) | set(
        read_file(PARQUET)
    )


def test_slurms_executor_is_the_same_for_users_and_tests() -> None:
    slurm = read_file(SLURM)
    assert {name: read_file(DEVELOPMENT)[name] for name in slurm} == slurm


def test_nvtx_stays_below_the_release_that_old_nsys_cannot_see() -> None:
    assert not read_file(RUNTIME)["nvtx"].specifier.contains("0.2.12")
