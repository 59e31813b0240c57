"""Stands in for the analysis: lists the traces it finds."""

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--case", required=True)
parser.add_argument("--trace-dir", type=Path, required=True)
parser.add_argument("--preflight", type=Path)
parser.add_argument("--latency", type=Path, required=True)
parser.add_argument("--calibration", type=Path)
parser.add_argument("--strategies", nargs="+", default=[])
parser.add_argument("-o", "--output-dir", type=Path, required=True)
arguments = parser.parse_args()

found = [
    path.name.removesuffix(".gz").removesuffix(suffix)
    for suffix in (".sqlite", ".json")
    for path in arguments.trace_dir.glob("*.sqlite*" if suffix == ".sqlite" else "*.json.gz")
]
traces = sorted(name for name in found if (arguments.trace_dir / f"{name}.json").exists())
arguments.output_dir.mkdir(parents=True, exist_ok=True)
counted = ("requests", "launches", "kernels", "comparison")
explained = ("ledger", "host_ledger", "kernel_match", "escaped", "graph_cost", "blockers")
predicted = ("prediction", "prediction_summary", "scores")
for table in (*counted, *explained, *predicted):
    (arguments.output_dir / f"{table}.csv").write_text("strategy,kernels\neager,3\n")
(arguments.output_dir / "traces.json").write_text(json.dumps({"case": arguments.case, "traces": traces}))
(arguments.output_dir / "timeline.json").write_text("{}")
(arguments.output_dir / "explained.json").write_text(json.dumps({"calibration": str(arguments.calibration)}))
