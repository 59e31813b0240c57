"""Generation without graphs, for models that a graph cannot hold: the same rules, one launch at a time."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationMixin, PreTrainedModel

from inference.calling import ModelCall
from inference.sampling import Chooser, Greedy, Sampling, make_chooser


@torch.no_grad()
def eager_tokens(
    call: ModelCall, tokens: NDArray[np.int64], count: int, sampling: Greedy | Sampling
) -> Iterator[int]:
    """Up to `count` new tokens after a prompt, shape (n,), each read at once.

    A model that keeps no keys and values, or wants its cache served in a way of its own, sees the whole
    sequence anew for each token.
    """
    caches = _takes_tokens_one_by_one(call.model)
    ids = sequence = torch.from_numpy(tokens)[None].to(call.device)
    cache, chooser = None, None
    for _ in range(count):
        if caches:
            outputs = call.model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache = getattr(outputs, "past_key_values", None)
        else:
            outputs = call.model(input_ids=sequence, use_cache=False)
        chooser = chooser or _chooser(sampling, outputs.logits)
        token = chooser.choose(outputs.logits[:, -1])
        yield int(token)
        sequence = torch.cat((sequence, token[None]), dim=-1)
        ids = sequence if cache is None else token[None]


def _takes_tokens_one_by_one(model: PreTrainedModel) -> bool:
    usual = GenerationMixin.prepare_inputs_for_generation
    prepares = getattr(type(model), "prepare_inputs_for_generation", usual)
    return prepares is usual and "past_key_values" in inspect.signature(model.forward).parameters


def _chooser(sampling: Greedy | Sampling, logits: torch.Tensor) -> Chooser:
    chooser = make_chooser(sampling, logits.shape[-1], logits.device)
    chooser.set(sampling)
    return chooser
