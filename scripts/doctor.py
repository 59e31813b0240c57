#!/usr/bin/env python3
"""Say what stands between a model and a CUDA graph: each obstacle with its line of code and a remedy.

Runs a few eager requests (on CUDA under torch's sync debug mode), tries a capture, compares its replay with
eager, and captures the parts of the model one by one where the whole cannot be. On a machine without a GPU a
simulation of CUDA graphs stands in.

Exit code 0: capturable. 1: something would break or corrupt a capture. 2: it could not be tried.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from inference.case import open_case
from inference.doctor import diagnose
from inference.doctor_words import diagnosis_text
from inference.request import random_prompt
from scripts._arguments import Parser, whole
from scripts._cli import run_main
from scripts._options import add_case_options, case_options

EXIT_NOT_CAPTURABLE = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Examine one model and print what was found.

    Raises:
        LaunchgapError: the model cannot be loaded, or an eager request fails.
    """
    parser = Parser(
        prog="python -m scripts.doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The model may stand first, as there is no other word to give.
    parser.add_argument("model", nargs="?", default=argparse.SUPPRESS, metavar="MODEL", help="as --model")
    parser.add_argument(
        "--requests", type=whole(2), default=4, metavar="N", help="eager requests to watch (default: 4)"
    )
    add_case_options(parser)
    arguments = parser.parse_args(argv)
    case = open_case(case_options(arguments))
    generator = torch.Generator().manual_seed(arguments.seed)
    vocabulary = case.loaded.fields["vocab_size"]
    lengths = request_lengths(case.fields["prompt_length"], arguments.requests)
    prompts = [random_prompt(n, vocabulary, generator) for n in lengths]
    found = diagnose(case.loaded.model, prompts, case.backend)
    about = case.loaded.fields
    title = (
        f"{about['source']} ({about['architecture']}, {about['weights']} weights), {arguments.dtype}, "
        f"{arguments.attn_implementation}, {'cpu' if case.backend.simulated else 'cuda'}"
    )
    sys.stdout.write(diagnosis_text(title, found, simulated=case.backend.simulated))
    return 0 if found.capturable else EXIT_NOT_CAPTURABLE


def request_lengths(prompt_length: int, requests: int) -> list[int]:
    """Tokens of each request: twice the prompt's length, to see what changes with values, then ever fewer."""
    return [max(1, prompt_length >> max(0, number - 1)) for number in range(requests)]


if __name__ == "__main__":
    run_main(main)
