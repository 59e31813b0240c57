"""Model families that the runner is tried on: a tiny random model of each, with the family's own machinery.

    python -m inference.families --device cuda --dtype bfloat16    # prints the table of docs/models.md

What decides whether a graph can hold a model is its code, not its size, so two layers are enough. Sliding
windows are shorter than the prompts tried, on purpose.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from inference.battery import OVER_PADDING, check_runner
from inference.command import Parser, run_command
from inference.devices import forbid_tf32, resolve_device, resolve_dtype
from inference.forward import GraphedForward
from inference.loading import float32_copy
from inference.staging import PaddingSide

VOCABULARY = 96
POSITIONS = 64
WINDOW = 6
"""Sliding window in tokens, where the family has one."""

_SMALL: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_GROUPED: Mapping[str, Any] = {**_SMALL, "num_key_value_heads": 2}


LENGTHS = (4, 16)
"""Captured lengths that a family is tried at: one below the sliding window and one above it."""


@dataclass(frozen=True)
class Family:
    """A family's tiny variant.

    `trait` says what about it a captured graph may stumble over; `experts` is transformers' name of the
    implementation of a mixture of experts, None for its own choice; `attention` that of its attention.
    """

    name: str
    trait: str
    model_type: str
    config: Mapping[str, Any]
    experts: str | None = None
    attention: str = "sdpa"


FAMILIES: tuple[Family, ...] = (
    Family("GPT-2", "learned positions", "gpt2", {**_SMALL, "n_inner": 64}),
    Family("BERT", "as a decoder, learned positions", "bert", {**_SMALL, "is_decoder": True}),
    Family(
        "OPT",
        "positions counted from the mask",
        "opt",
        {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32},
    ),
    Family("GPT-NeoX", "partly rotary, parallel residual", "gpt_neox", _SMALL),
    Family("Llama", "grouped heads, untied", "llama", {**_GROUPED, "tie_word_embeddings": False}),
    Family("Llama, tied", "one matrix in and out", "llama", {**_GROUPED, "tie_word_embeddings": True}),
    Family("Qwen2", "biased attention", "qwen2", _GROUPED),
    Family("Qwen3", "normed queries and keys", "qwen3", {**_GROUPED, "head_dim": 8}),
    Family("Mistral", "sliding window", "mistral", {**_GROUPED, "sliding_window": WINDOW}),
    Family("Gemma", "scaled embeddings", "gemma", {**_GROUPED, "head_dim": 8}),
    Family(
        "Gemma 2",
        "every other layer slides, soft-capped logits",
        "gemma2",
        {**_GROUPED, "head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 8},
    ),
    Family("Phi", "partly rotary, parallel", "phi", _SMALL),
    Family(
        "Phi-3 LongRoPE",
        "scaling chosen by the prompt's length",
        "phi3",
        {
            **_GROUPED,
            "original_max_position_embeddings": POSITIONS // 2,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
            },
        },
    ),
    Family("Mixtral", "mixture of experts", "mixtral", {**_GROUPED, "num_local_experts": 4}),
    Family(
        "Qwen2-MoE",
        "mixture of experts with a shared one",
        "qwen2_moe",
        {
            **_GROUPED,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
        },
    ),
    Family(
        "Mixtral, looped experts",
        'experts_implementation="eager"',
        "mixtral",
        {**_GROUPED, "num_local_experts": 4},
        experts="eager",
    ),
    Family(
        "GPT-J",
        'attention without a choice, "eager"',
        "gptj",
        {**_SMALL, "n_inner": 64, "rotary_dim": 4},
        attention="eager",
    ),
    Family(
        "GPT-OSS",
        '"eager" attention with sinks, every other layer slides, mixture of experts',
        "gpt_oss",
        {
            **_GROUPED,
            "head_dim": 8,
            "sliding_window": WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 2.0,
                "original_max_position_embeddings": POSITIONS // 2,
            },
        },
        attention="eager",
    ),
)


def find_family(name: str) -> Family:
    """The family of this name.

    Raises:
        KeyError: there is none.
    """
    return {family.name: family for family in FAMILIES}[name]


def tiny_model(
    family: Family,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """The family's tiny model with random weights, the same ones every time."""
    config = AutoConfig.for_model(family.model_type, **family.config)
    config._experts_implementation = family.experts
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=attn_implementation or family.attention
        )
    nn.Module.to(model.eval(), device or torch.device("cpu"))
    return model


def verdict(model: PreTrainedModel, padding_side: PaddingSide) -> str:
    """What the table says: `works`, with a limit or without, `refused: OPERATION at LINE`, or `WRONG`."""
    reference = None if model.dtype is torch.float32 else float32_copy(model)
    with GraphedForward(model, LENGTHS, padding_side=padding_side, only_if_faster=False) as forward:
        checks = check_runner(forward, reference)
        wrong = [check.name for check in checks if not check.passed]
        refused = [entry for entry in forward.ledger if entry.path == "eager"]
        masked = [entry.attention_mask == "explicit" for entry in forward.ledger]
        everywhere = len(refused) == len(forward.ledger)
    if wrong:
        return f"WRONG: {', '.join(wrong)}"
    if refused:
        where = "" if everywhere else f" at {refused[-1].length} tokens"
        return f"refused{where}: {_blamed(refused[-1].reason or '')}"
    limits = ["with a mask" if all(masked) else "with a mask beyond the window"] if any(masked) else []
    limits += ["rounding chooses"] if any(OVER_PADDING in check.rule for check in checks) else []
    return "; ".join(["works", *limits])


def _blamed(reason: str) -> str:
    """The operation and the line of source that a refusal names, without the line's number."""
    named = re.match(r'(.*?):\d+ "(.*?)"', reason)
    return f"`{named[1]}`: `{named[2]}`" if named else reason


def family_table(device: torch.device, dtype: torch.dtype) -> str:
    """A Markdown table, one line for each family."""
    lines = ["| family | what is special | padded right | padded left |", "| --- | --- | --- | --- |"]
    for family in FAMILIES:
        model = tiny_model(family, device, dtype)
        right, left = verdict(model, "right"), verdict(model, "left")
        lines.append(f"| {family.name} | {family.trait} | {right} | {left} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table for one device.

    Raises:
        LaunchgapError: no such device or dtype.
    """
    parser = Parser(prog="python -m inference.families", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cuda, or cpu for the simulation")
    parser.add_argument("--dtype", default="float32", help="(default: float32)")
    arguments = parser.parse_args(argv)
    forbid_tf32()
    device = resolve_device(arguments.device)
    sys.stdout.write(f"{family_table(device, resolve_dtype(arguments.dtype, device))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
