"""Stands in for the traced programs: a range and a record. The file `misbehave` tells it to hang or fail.

`hang N` means only with a prompt of N tokens.
"""

import argparse
import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path

import nvtx

begin = time.monotonic()
parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="eager")
parser.add_argument("--prompt-length")
parser.add_argument("--record", type=Path, required=True)
parser.add_argument("--requests", type=int, required=True)
parser.add_argument("--tracer", default="nsys")
parser.add_argument("--trace", type=Path)
arguments, _ = parser.parse_known_args()

order = Path("misbehave").read_text() if Path("misbehave").exists() else ""
with nvtx.annotate("request", domain="launchgap"):
    Path("running").write_text(str(os.getpid()))
    if order in ("hang", f"hang {arguments.prompt_length}"):
        time.sleep(600)
if order == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if order == "fail":
    sys.exit("the device ran out of patience")
record = {
    "schema_version": 1,
    "kind": "trace",
    "strategy": arguments.strategy,
    "requests": arguments.requests,
}
if arguments.tracer == "torch":
    arguments.trace.write_bytes(gzip.compress(b'{"traceEvents": []}'))
arguments.record.write_text(json.dumps(record))
with Path("clock").open("a") as clock:
    clock.write(f"{begin} {time.monotonic()}\n")
