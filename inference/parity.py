#!/usr/bin/env python3
"""Prove the graphed runner against eager: every way that static storage is known to give a wrong answer.

    python -m inference.parity gpt2 --device cuda --dtype bfloat16
    python -m inference.parity bert-tiny --device cpu --lengths 8 16

Prints one line for each check and exits with 1 if one failed, with 2 if it could not be run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from contract import DEFAULT_ATTENTION, Dtype
from inference.battery import run_battery
from inference.command import Parser, run_command
from inference.devices import forbid_tf32, resolve_device, resolve_dtype
from inference.lengths import usable_lengths
from inference.loading import ModelRequest, load_model
from inference.subject import Check

EXIT_DIFFERENT = 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m inference.parity", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("model", help="preset, hub id (org/name) or local folder")
    add("--device", default="auto", help="auto, cuda, or cpu for the simulation (default: auto)")
    add("--dtype", default=Dtype.FLOAT32.value, help=f"{', '.join(Dtype)} (default: float32)")
    add("--lengths", nargs="+", type=int, metavar="N", help="captured lengths (default: 64 to 1024)")
    add("--attn-implementation", default=DEFAULT_ATTENTION, metavar="NAME", help="(default: sdpa)")
    add("--weights", choices=("auto", "pretrained", "random"), default="auto", help="(default: auto)")
    add("--seed", type=int, default=0, metavar="N", help="of prompts and random weights (default: 0)")
    add("--fused", action="store_true", help="as Inductor compiles it; minutes")
    add("--strict", action="store_true", help="a length that cannot be captured is an error")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the battery and print its table.

    Returns:
        0, or 1 if a check failed.

    Raises:
        LaunchgapError: it could not be run.
    """
    arguments = _parse(argv)
    device = resolve_device(arguments.device)
    dtype = resolve_dtype(arguments.dtype, device)
    forbid_tf32()
    usable_lengths(arguments.lengths, sys.maxsize)  # before a model is loaded for nothing
    request = ModelRequest(
        arguments.model, dtype, device, arguments.attn_implementation, arguments.weights, arguments.seed
    )
    model = load_model(request).model
    checks = run_battery(
        model, arguments.lengths, arguments.seed, strict=arguments.strict, fused=arguments.fused
    )
    failed = sum(not check.passed for check in checks)
    notes = "".join(f"{note}\n" for note in dict.fromkeys(note for check in checks for note in check.notes))
    sys.stdout.write(f"{table(checks)}\n\n{notes}{len(checks)} checks, {failed} failed\n")
    return EXIT_DIFFERENT if failed else 0


def table(checks: Sequence[Check]) -> str:
    """One line for each check, aligned."""
    frame = pd.DataFrame(
        {
            "runner": [check.runner for check in checks],
            "check": [check.name for check in checks],
            "inputs": [check.inputs for check in checks],
            "largest difference": [_number(check.difference) for check in checks],
            "rule": [check.rule for check in checks],
            "result": ["pass" if check.passed else "FAIL" for check in checks],
        }
    )
    left = {str(name): f"{{:<{frame[name].str.len().max()}}}".format for name in frame}
    return frame.to_string(index=False, justify="left", formatters=left)


def _number(difference: float | None) -> str:
    return "-" if difference is None else f"{difference:.3g}"


if __name__ == "__main__":
    sys.exit(run_command(main))
