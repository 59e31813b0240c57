"""Stands in for the benchmark: writes a record at once.

A strategy named in the file `unmeasurable` fails, and so does the whole of a case with a prompt as long as
the file `too-long` says. The file `clock` gets begin, end and GPU of each run.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

begin = time.monotonic()
parser = argparse.ArgumentParser()
parser.add_argument("--strategies", nargs="+", required=True)
parser.add_argument("--output-dir", type=Path, required=True)
parser.add_argument("--allow-partial", action="store_true", required=True)
for option in ("model", "dtype", "device", "prompt-length", "max-length", "attn-implementation"):
    parser.add_argument(f"--{option}", required=True)
for option in ("weights", "seed", "runs", "warmup-s"):
    parser.add_argument(f"--{option}", required=True)
arguments = parser.parse_args()

if Path("too-long").exists() and Path("too-long").read_text() == arguments.prompt_length:
    sys.exit(f"error: a prompt of {arguments.prompt_length} tokens is too long; shorten it")
failing = Path("unmeasurable").read_text().split() if Path("unmeasurable").exists() else []
record = {
    "schema_version": 1,
    "kind": "latency",
    "arguments": {name: str(value) for name, value in vars(arguments).items()},
    "strategies": {name: {"status": "failed" if name in failing else "ok"} for name in arguments.strategies},
}
arguments.output_dir.mkdir(parents=True, exist_ok=True)
(arguments.output_dir / "latency.json").write_text(json.dumps(record))
(arguments.output_dir / "latency_comparison.png").write_bytes(b"\x89PNG\r\n\x1a\n")
time.sleep(0.2)
with Path("clock").open("a") as clock:
    clock.write(f"{begin} {time.monotonic()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
