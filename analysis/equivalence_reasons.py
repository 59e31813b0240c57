"""Why work differs between an eager request and a graph, where kernel names tell.

What each says was seen in transformers 5 and torch 2.11 on an H200. A single name proves little, so a cause
is recognised by its signs, kernels that little else runs, and only then are others taken to belong to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

PACKED = "transformers asks whether the prompt packs several sequences, and waits; a graph cannot"
MASK = "an attention mask is built, which transformers skips in eager and never while a stream is capturing"
MASKED_ATTENTION = (
    "attention is handed that mask, so it is prepared for each layer or another kernel computes it"
)
READ_BACK = "eager reads a value from the device and waits for it; a graph cannot"
MATRIX = "the matrix library chose another kernel, as it does for other shapes, workspaces or streams"
FUSED = "a compiler put the work of several kernels into one"
COPIED = "a copy on the device, which the driver makes by a kernel where a graph holds it"
SIZES = "the same kernel over another amount of data, as with padding"
BESIDE = "launched beside the replay, which has no part in it"

_MATRIX = re.compile(r"gemm|gemv|cublas|cutlass|xmma|nvjet|splitK|scal_kernel|dot_kernel", re.IGNORECASE)
_ATTENTION = re.compile(r"fmha|flash|attention|softmax", re.IGNORECASE)
_FUSED = re.compile(r"triton_")
_COPYING = re.compile(r"memcpy\d+_post")
_COPY = "copy device to device"
_READ_BACK = "copy device to host"


@dataclass(frozen=True)
class _Cause:
    """Work of one cause among the rows of one match: every sign must be there, `part` says what belongs."""

    match: str
    signs: tuple[str, ...]
    part: str
    reason: str


_CAUSES = (
    # find_packed_sequence_indices: (position_ids.diff(prepend) != 1).cumsum(-1)[:, -1] == 0, .all()
    _Cause(
        "missing",
        (r"AUnaryFunctor<long, long, bool, .*CompareEqFunctor<long>", _READ_BACK),
        r"DeviceScan(?:Init)?Kernel|CatArrayBatchedCopy|add<long>|Compare\w*Functor<long|direct_copy\w*.*\(long\)"
        r"|copy device to (?:host|device)",
        PACKED,
    ),
    # masking_utils.sdpa_mask: positions by arange, compared, and joined by `and`
    _Cause(
        "extra",
        (r"BitwiseAndFunctor<bool>|Compare\w*Functor<long",),
        r"arange|Bitwise\w*Functor<bool>|Compare\w*Functor<long|FillFunctor<bool>|index_elementwise|add<long>"
        r"|direct_copy\w*.*\((?:bool|long)\b",
        MASK,
    ),
    # scaled_dot_product_attention turns a boolean mask into one to be added, once for each layer
    _Cause(
        "extra",
        (r"where_kernel_impl|masked_fill",),
        r"where_kernel_impl|masked_fill|FillFunctor<(?:float|c10)|direct_copy",
        MASKED_ATTENTION,
    ),
)


def with_reasons(matched: pd.DataFrame) -> pd.DataFrame:
    """The table of `analysis.equivalence` with `reason` filled in where it is known.

    `instead` still holds the full names of what runs at the same place, a tuple.
    """
    reasons = _of_causes(matched)
    masked = bool(reasons.isin((MASK, MASKED_ATTENTION)).any())
    fused = bool(_matches(matched.loc[matched["match"] == "extra", "full_name"], _FUSED.pattern).any())
    columns = (matched[name] for name in ("match", "full_name", "instead"))
    beside = (matched["outside_calls_per_request"] >= matched["graph_calls_per_request"]).to_numpy()
    filled = []
    for reason, is_beside, match, name, instead in zip(reasons, beside, *columns, strict=True):
        if reason or match == "same":
            filled.append(reason)
        elif match == "changed":
            filled.append(SIZES)
        elif match == "extra" and is_beside:
            filled.append(BESIDE)
        else:
            filled.append(_of_one(name, instead, masked=masked, fused=fused))
    return matched.assign(reason=pd.Series(filled, matched.index, dtype="object"))


def _of_causes(matched: pd.DataFrame) -> pd.Series[str]:
    reasons = pd.Series("", matched.index, dtype="object")
    for cause in _CAUSES:
        # What both sides run at another shape proves nothing.
        rows = matched.loc[matched["match"] == cause.match, "full_name"]
        if all(_matches(rows, sign).any() for sign in cause.signs):
            belongs = rows.index[_matches(rows, cause.part)]
            reasons[belongs] = reasons[belongs].where(reasons[belongs] != "", cause.reason)
    return reasons


def _of_one(name: str, instead: tuple[str, ...], *, masked: bool, fused: bool) -> str:
    """Reason for one missing or extra kernel, copy or fill."""
    names = (name, *instead)
    if _COPYING.search(name) or (name == _COPY and any(map(_COPYING.search, instead))):
        return COPIED
    if masked and _ATTENTION.search(name) and any(_ATTENTION.search(other) for other in instead):
        return MASKED_ATTENTION
    # A fill beside matrix kernels clears what a split sum adds up in.
    if (_MATRIX.search(name) or name == "fill") and any(_MATRIX.search(other) for other in instead):
        return MATRIX
    if fused and not _MATRIX.search(name) and (_FUSED.search(name) or not any(map(_MATRIX.search, names))):
        return FUSED
    return READ_BACK if name == _READ_BACK else ""


def _matches(names: pd.Series[str], pattern: str) -> pd.Series[bool]:
    return names.astype(str).str.contains(pattern, regex=True)
