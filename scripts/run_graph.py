#!/usr/bin/env python3
"""The NVTX-annotated graph runner that Nsight Systems runs: capture once, then one range per replay.

Any strategy but the baseline can be run, those without a graph too: each forward pass is then in a range.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract import Strategy
from scripts._cli import run_main
from scripts._traced import run

if __name__ == "__main__":
    run_main(lambda: run(__doc__, [s for s in Strategy if s is not Strategy.EAGER]))
