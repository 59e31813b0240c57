"""A dry run of the real Snakemake on a host without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def dry_run(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Have `python -m WORDS` say in a folder what it would do; the words begin with snakemake's name."""
    return subprocess.run(
        [sys.executable, "-m", *words, "--dry-run"],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
