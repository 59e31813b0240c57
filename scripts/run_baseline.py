#!/usr/bin/env python3
"""The NVTX-annotated baseline that Nsight Systems runs: a few eager requests, one range each."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract import Strategy
from scripts._cli import run_main
from scripts._traced import run

if __name__ == "__main__":
    run_main(lambda: run(__doc__, [Strategy.EAGER]))
