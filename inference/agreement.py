"""Whether generated tokens are those of `model.generate`, and how near a call it was where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from contract import LaunchgapError
from inference.calling import ModelCall
from inference.generation_request import GenerationRequest


@dataclass(frozen=True)
class Agreement:
    """Greedy tokens of two sides, and both sides' view of the first choice in which they differ.

    In half precision two likely tokens may be a rounding apart, and either is right: the logits tell. Each
    pair holds the logit of our token and that of theirs.

    Attributes:
        tokens: ours.
        reference: those of `model.generate`.
        first_divergence: index of the first difference, None where there is none.
        logits: our logits there.
        reference_logits: theirs.
    """

    tokens: tuple[int, ...]
    reference: tuple[int, ...]
    first_divergence: int | None = None
    logits: tuple[float, float] | None = None
    reference_logits: tuple[float, float] | None = None


@torch.no_grad()
def compare(
    call: ModelCall,
    request: GenerationRequest,
    tokens: Sequence[int],
    logits_at: Callable[[int], torch.Tensor],
) -> Agreement:
    """Let `model.generate` greedily continue the prompt of a request, and compare.

    Args:
        call: the model.
        request: its prompt.
        tokens: ours, chosen greedily, without an end of sequence.
        logits_at: our logits, shape (1, vocabulary), from which the token of an index was chosen.

    Raises:
        LaunchgapError: the model has no `generate`.
    """
    outputs = _generated(call, request, len(tokens))
    reference = outputs.sequences[0, request.prompt.size :].tolist()
    index = next((i for i, (a, b) in enumerate(zip(tokens, reference, strict=True)) if a != b), None)
    if index is None:
        return Agreement(tuple(tokens), tuple(reference))
    pair = [tokens[index], reference[index]]
    ours, theirs = (logits[0, pair].tolist() for logits in (logits_at(index), outputs.logits[index]))
    return Agreement(tuple(tokens), tuple(reference), index, (ours[0], ours[1]), (theirs[0], theirs[1]))


def _generated(call: ModelCall, request: GenerationRequest, count: int) -> Any:  # noqa: ANN401 - transformers' own
    generate: Any = getattr(call.model, "generate", None)
    if generate is None:
        raise LaunchgapError(
            f"model {type(call.model).__name__}: has no generate(); there is nothing to compare with"
        )
    ids = torch.from_numpy(request.prompt)[None].to(call.device)
    return greedily(generate, ids, count, return_dict_in_generate=True, output_logits=True)


def greedily(generate: Callable[..., Any], ids: torch.Tensor, count: int, **more: object) -> Any:  # noqa: ANN401
    """What a model's `generate` gives for ids of shape (1, n) on its device and `count` new tokens.

    What its own settings would add (penalties, tokens forced or forbidden, an end of sequence) is not greedy
    choice and switched off.
    """
    return generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        eos_token_id=None,
        pad_token_id=0,
        min_length=0,
        min_new_tokens=None,
        forced_bos_token_id=None,
        forced_eos_token_id=None,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        bad_words_ids=None,
        **more,
    )
