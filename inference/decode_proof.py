"""Whether a model is right over a static cache: tried, before anything is captured."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from contract import CaptureError
from inference.backends import Backend
from inference.blame import blame
from inference.calling import ModelCall
from inference.decode import Decoder, Mask
from inference.proof import SHARES
from inference.staging import StaticInputs

_TRIALS = 3
"""Random sequences tried. One that agrees is enough: rounding may tip a router of experts, and then all is
different, but a wrong mask or position is wrong for every sequence."""

_TF32_SHARE = SHARES[torch.float16]
"""TF32 rounds as float16 does."""


@torch.no_grad()
def prove_decoder(decoder: Decoder, call: ModelCall, slots: int, backend: Backend) -> None:
    """Compare a padded prompt and one step, run eagerly, with passes over the whole sequence.

    Finds out by the way whether the model takes a mask that is handed in (`Decoder.takes_mask`): one that
    lasts from step to step spares the small kernels that build one for each.

    Raises:
        CaptureError: the logits differ, or the model cannot be run in that way.
    """
    inputs = StaticInputs(slots, backend.device, "right", masked=False)
    differences = []
    for seed in range(_TRIALS):
        tokens = np.random.default_rng(seed).integers(0, call.vocabulary, max(1, slots // 2) + 1)
        different = _try_sequence(decoder, call, inputs, tokens)
        if different is None:
            return
        differences.append(different)
    raise CaptureError(f"model {type(call.model).__name__}: {differences[0]}")


def _try_sequence(
    decoder: Decoder, call: ModelCall, inputs: StaticInputs, tokens: NDArray[np.int64]
) -> str | None:
    """What differs for this sequence, None if nothing does.

    Raises:
        CaptureError: the model cannot be run over a static cache.
    """
    name = type(call.model).__name__
    inputs.fill(tokens[:-1])
    try:
        found = decoder.prompt(inputs, decoder.store.prompt_view())
    except Exception as error:
        raise _unable(name, "a prompt", error) from error
    dtype = decoder.state.mask.dtype  # of the computation: logits may be widened behind it
    different = _difference("a prompt", found, _reference(call, tokens[:-1]), dtype)
    if different is not None:
        return different
    decoder.state.token.copy_(torch.from_numpy(tokens[-1:])[None])
    reference = _reference(call, tokens)
    if decoder.fits_all_layers(inputs.length):
        try:
            found = _look(decoder, inputs.length, "static")
        except Exception as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
        else:
            decoder.takes_mask = _difference("a step", found, reference, dtype) is None
    if decoder.takes_mask:
        return None
    try:
        found = _look(decoder, inputs.length, "explicit")
    except Exception as error:
        raise _unable(name, "a step", error) from error
    return _difference("a step", found, reference, dtype)


def _look(decoder: Decoder, slots: int, mask: Mask) -> torch.Tensor:
    return decoder.look(decoder.store.token_view(slots, decoder.state.position), slots, mask)


def _reference(call: ModelCall, tokens: NDArray[np.int64]) -> torch.Tensor:
    return call.eager(torch.from_numpy(tokens)[None].to(call.device))[:, -1]


def _difference(what: str, found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> str | None:
    """A few words if logits differ by more than rounding explains, measured as in `inference.proof`."""
    share, eps = SHARES.get(dtype, SHARES[torch.bfloat16]), torch.finfo(dtype).eps
    if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":
        share = _TF32_SHARE
    found, wanted = found.float(), wanted.float()
    off = (found - wanted).square().mean().sqrt()
    if off <= share * wanted.std() + eps * wanted.abs().max():
        return None
    return f"{what} over a static cache gives other logits (off by {float(off):.3g})"


def _unable(name: str, what: str, error: Exception) -> Exception:
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return error
    return CaptureError(f"model {name}: cannot run {what} over a static cache, at {blame(error)}")
