"""A dry run of the real Snakemake on a host without a GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.pipeline.loaded import Snakemake


def dry_run(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Have `python -m WORDS` say in a folder what it would do; the words begin with snakemake's name."""
    name, *arguments = words
    assert name == "snakemake"
    started = Snakemake([*arguments, "--dry-run"], folder, {**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    out, err = started.communicate(timeout=120)
    assert started.returncode is not None
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)
