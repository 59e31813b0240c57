"""Keep a capture from doing attention work that the eager pass does not do.

transformers skips the causal mask for an unpadded prompt and lets the attention kernel be causal by itself,
but never while a stream is capturing: it then builds the mask with dozens of small kernels and hands it to
slower attention kernels (`transformers.masking_utils`, `is_tracing`). Under an attention implementation that
it has no mask function for, it builds none either, so a graph captured that way runs eager's own kernels.
Whether that is right for a model at a length is not assumed but tried: both ways must give the same logits,
bit by bit.

An eager pass also asks the device whether the prompt packs several sequences: a few small kernels and one
wait, which a graph cannot hold (`find_packed_sequence_indices`). Without a mask it is not asked, so
a graph has a little less work than the eager pass that it is compared with.

Models without torch's attention (GPT-J, gpt-oss and its sinks) run transformers' own, "eager" one. Its mask
is made of a number that comes from the host, which a graph cannot hold; in a capture the same mask is filled
in on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

from contract import LaunchgapError

UNMASKED = "launchgap_unmasked_sdpa"
"""torch's scaled dot-product attention, registered under a name that no mask function exists for."""

AttentionInterface.register(UNMASKED, sdpa_attention_forward)

EAGER_ATTENTION = "eager"
"""transformers' name of its own attention, which every model has."""

MASKABLE = ("sdpa", EAGER_ATTENTION)
"""transformers' names of attention whose masks a capture within `as_captured` can hold."""

_LOCK = Lock()
_within: list[None] = []
"""One entry for each capture that is under way, in any thread."""


def mask_is_redundant(model: nn.Module, input_ids: torch.Tensor) -> bool:
    """Whether the model gives bitwise the same logits without a mask, on random tokens of this shape (1, n).

    False for models whose attention cannot be chosen, or is not torch's own. Runs two eager passes.
    """
    if not isinstance(model, PreTrainedModel) or model.config._attn_implementation != "sdpa":
        return False
    vocabulary = int(model.config.get_text_config().vocab_size)
    tokens = torch.randint_like(input_ids, vocabulary)
    usual = _logits(model, tokens)
    with unmasked(model):
        return model.config._attn_implementation == UNMASKED and torch.equal(_logits(model, tokens), usual)


@contextmanager
def unmasked(model: nn.Module) -> Iterator[None]:
    """Run the block with `UNMASKED` attention, and put back what was there."""
    assert isinstance(model, PreTrainedModel)
    before = model.config._attn_implementation
    model.set_attn_implementation(UNMASKED)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def as_captured(model: nn.Module, *, masked: bool) -> Iterator[None]:
    """Run the block, which captures, with attention as the graph shall hold it."""
    if not masked:
        with unmasked(model):
            yield
        return
    masks = ALL_MASK_ATTENTION_FUNCTIONS
    with _LOCK:
        _within.append(None)
        if masks[EAGER_ATTENTION] is eager_mask:  # another's stays
            masks[EAGER_ATTENTION] = _eager_mask_on_device
    try:
        yield
    finally:
        with _LOCK:
            _within.pop()
            if not _within and masks[EAGER_ATTENTION] is _eager_mask_on_device:
                del masks[EAGER_ATTENTION]


def missing_attention(model: str, asked: str, error: BaseException) -> LaunchgapError | None:
    """What to do where an architecture lacks the attention asked for, and transformers advises its own."""
    said = str(error)
    if "does not support" not in said or f'attn_implementation="{EAGER_ATTENTION}"' not in said:
        return None
    return LaunchgapError(
        f"model {model}: its architecture has no attention {asked!r} in transformers; "
        f"use --attn-implementation {EAGER_ATTENTION}"
    )


def _eager_mask_on_device(
    *args: Any,  # noqa: ANN401 - transformers' own
    dtype: torch.dtype = torch.float32,
    **kwargs: Any,  # noqa: ANN401
) -> torch.Tensor | None:
    """What transformers adds to scores: 0 where a token is seen, else the least number of the dtype."""
    seen = sdpa_mask(*args, **kwargs | {"allow_is_causal_skip": False})
    if seen is None:
        return None
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)


@torch.no_grad()
def _logits(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=tokens, use_cache=False).logits
    assert isinstance(logits, torch.Tensor)
    return logits
