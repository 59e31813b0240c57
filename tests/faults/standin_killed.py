"""Stands in for a stage that is killed: half an output and no end where the file `half` says its name.

Otherwise it is what stood in this file's place, which now ends in `.real`.
"""

import os
import runpy
import sys
import time
from pathlib import Path

from scripts._cli import run_main

HERE = Path(__file__)
OUTPUTS = {
    "preflight": "results/preflight.json",
    "cuda_graph_benchmark": "results/latency/*/latency.json",
    "analyse_traces": "results/tables/*/traces.json",
    "build_report": "results/report.json",
}


def hang() -> None:
    """Write half of an output in its place, say who does, and wait."""
    output = Path(OUTPUTS[HERE.stem].replace("*", "bert-tiny-float32-p50-m128"))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text('{"schema_version": 1, "ki', encoding="utf-8")
    Path("running").write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)


if __name__ == "__main__":
    half = Path("half")
    if half.exists() and half.read_text(encoding="utf-8") == HERE.stem:
        run_main(hang)
    sys.argv[0] = str(HERE.with_suffix(".real"))
    runpy.run_path(sys.argv[0], run_name="__main__")
