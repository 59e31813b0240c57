"""docs/cluster.md and profiles/slurm: their commands plan a run, here without any cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.envs.dry_run import dry_run

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, flags=re.DOTALL)


def commands() -> list[str]:
    """Calls of Snakemake in the guide, each once, and the one that the pod of Kubernetes makes."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("snakemake")]
    (manifest,) = map(yaml.safe_load, blocks("yaml"))
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    lines.append(shlex.join(["snakemake", *container["args"]]))
    return sorted({line.replace(" --dry-run", "") for line in lines})


def in_checkout(word: str) -> str:
    """An argument as it would be in the checkout."""
    path = ROOT / word.removeprefix("/opt/launchgap/")
    return str(path) if "/" in word and path.exists() else word


def plan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return dry_run(folder, ["snakemake", "--snakefile", str(ROOT / "Snakefile"), *arguments])


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_guide_plans_a_run(command: str, tmp_path: Path) -> None:
    done = plan(tmp_path, *(in_checkout(word) for word in shlex.split(command)[1:]))
    assert done.returncode == 0, done.stderr
    jobs = (done.stdout + done.stderr).partition("Job stats:")[2]
    assert {"preflight", "measure", "report"} <= set(re.findall(r"^(\w+) +\d+$", jobs, flags=re.MULTILINE))


def test_a_login_node_without_a_gpu_is_not_taken_for_the_cluster(tmp_path: Path) -> None:
    # --config replaces what the profile says, so this leaves the device to be guessed.
    done = plan(tmp_path, "--workflow-profile", str(ROOT / "profiles/slurm"), "--config", "runs=10")
    assert done.returncode == 2
    assert "error: config: device: auto would look for a GPU on this host" in done.stderr
    assert list(tmp_path.glob("results*")) == []


def profile(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(
        (ROOT / f"profiles/{name}/config.yaml").read_text(encoding="utf-8")
    )
    return settings


def test_slurms_profile_repeats_the_usual_one_but_its_limit_of_one_gpu() -> None:
    usual = profile("default")
    del usual["resources"]
    assert usual.items() <= profile("slurm").items()
    assert "resources" not in profile("slurm")


def test_slurms_profile_asks_for_a_gpu_for_every_rule_that_uses_one() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "rules").glob("*.smk")))
    bodies = dict(re.findall(r"^(?:rule|checkpoint) (\w+):\n((?:(?:    .*)?\n)*)", text, flags=re.MULTILINE))
    wanted = {name for name, body in bodies.items() if re.search(r"^        gpu=1", body, flags=re.MULTILINE)}
    assert wanted >= {"measure", "capture", "calibrate"}
    asked = profile("slurm")["set-resources"]
    assert asked.keys() <= bodies.keys()
    # What looks at the host must see the GPU that is measured later.
    assert {name for name, resources in asked.items() if resources.get("gpu")} == wanted | {"preflight"}
