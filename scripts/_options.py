"""Command-line options that the torch-facing executables share."""

from __future__ import annotations

import argparse

from contract import DEFAULT_ATTENTION, Dtype, Phase
from inference.case import CaseOptions
from inference.trust import CODE_OPTION, PICKLE_OPTION
from scripts._arguments import whole


def add_case_options(parser: argparse.ArgumentParser) -> None:
    """Add what makes up a case: model, precision, device and lengths."""
    add = parser.add_argument_group("case").add_argument
    add("--model", default="gpt2", help="preset, hub id (org/name) or local folder (default: gpt2)")
    add("--dtype", default=Dtype.FLOAT32.value, help=f"{', '.join(Dtype)} (default: float32)")
    add("--device", default="auto", help="auto, cuda, or cpu for the simulation (default: auto)")
    add("--prompt-length", type=whole(1), default=50, metavar="N", help="prompt tokens (default: 50)")
    add(
        "--max-length",
        type=whole(1),
        metavar="N",
        help="length of the padded graph, or slots of the cache of a decode step (default: 1024 or 128, or "
        "the model's)",
    )
    add(
        "--phase",
        choices=[str(one) for one in Phase],
        default=Phase.PREFILL.value,
        help="what a request is: a pass over the prompt, or one step of generation on its last token "
        "(default: prefill)",
    )
    add(
        "--attn-implementation",
        default=DEFAULT_ATTENTION,
        metavar="NAME",
        help="transformers' name (default: sdpa)",
    )
    add(
        "--weights",
        choices=("auto", "pretrained", "random"),
        default="auto",
        help="auto falls back to random weights of a preset where the hub is out of reach (default: auto)",
    )
    add(
        "--seed",
        type=whole(0),
        default=0,
        metavar="N",
        help="of prompts, order and random weights (default: 0)",
    )
    add(
        CODE_OPTION,
        action="store_true",
        help="run code that comes with the model; read it first (default: such a model is refused)",
    )
    add(
        PICKLE_OPTION,
        action="store_true",
        help="read weights from a pickle where there are no safetensors (default: they are refused)",
    )


def case_options(arguments: argparse.Namespace) -> CaseOptions:
    """The options of `add_case_options` as the library takes them."""
    return CaseOptions(
        model=arguments.model,
        dtype=arguments.dtype,
        device=arguments.device,
        prompt_length=arguments.prompt_length,
        max_length=arguments.max_length,
        attn_implementation=arguments.attn_implementation,
        weights=arguments.weights,
        seed=arguments.seed,
        phase=arguments.phase,
        trust_remote_code=arguments.trust_remote_code,
        allow_pickle=arguments.allow_pickle,
    )
