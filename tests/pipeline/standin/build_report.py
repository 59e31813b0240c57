"""Stands in for the report: says which cases have latency and which have tables."""

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--latency-dir", type=Path, required=True)
parser.add_argument("--tables-dir", type=Path, required=True)
parser.add_argument("--preflight", type=Path)
parser.add_argument("--cases", nargs="+", default=[])
parser.add_argument("--failures", type=Path)
parser.add_argument("--not-run", nargs="+", default=[])
parser.add_argument("-o", "--output-dir", type=Path, required=True)
arguments = parser.parse_args()

found = {
    "latency": sorted(
        name for name in arguments.cases if (arguments.latency_dir / name / "latency.json").exists()
    ),
    "tables": {
        path.parent.name: json.loads(path.read_text()) for path in arguments.tables_dir.glob("*/traces.json")
    },
    "failures": json.loads(arguments.failures.read_text())["cases"] if arguments.failures else {},
    "not_run": arguments.not_run,
    "preflight": json.loads(arguments.preflight.read_text()) if arguments.preflight else None,
}
figures = arguments.output_dir / "figures"
figures.mkdir(parents=True, exist_ok=True)
(figures / "latency.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
(arguments.output_dir / "report.json").write_text(json.dumps(found))
(arguments.output_dir / "report.md").write_text("# report\n")
(arguments.output_dir / "report.html").write_text(
    "<!doctype html><title>report</title><p>stand-in report</p>"
)
