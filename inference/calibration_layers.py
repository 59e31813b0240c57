"""Chains of unlike kernels: decoder layers of no particular model, to see what a node of real work costs.

A chain of one small kernel repeated is too kind: its code stays in the instruction cache, it reads what
was written a moment before, and its blocks end together. In a model each kernel is another than the last
one and reads weights that no cache holds. The layers here have such a mix. Their sizes are those of none of
the models that predictions are scored on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as nnf

from contract.calibration import LAYER
from inference.calibration_probes import Probe
from inference.calibration_traced import recorded_kinds

ROWS, HIDDEN, HEADS, WIDE = 64, 1024, 16, 4096
"""Tokens, their width, attention heads, and the width between the two last products."""

LAYERS = 20
"""With weights of their own, 1 GB in fp32: more than any cache holds."""


@dataclass(frozen=True)
class _Weights:
    """Matrices (out, in), biases (out,), and the norm's scale (in,) of one layer."""

    norm: torch.Tensor
    matrices: tuple[torch.Tensor, ...]
    biases: tuple[torch.Tensor, ...]


def layer_probes(device: torch.device, rows: int = ROWS, layers: int = LAYERS) -> tuple[Probe, ...]:
    """A probe for fp32 and one for half precision; a step is one layer, of about a dozen kernels.

    What a step launches is the library's choice and left open, see `with_kinds`.
    """
    half = torch.bfloat16 if device.type == "cpu" or torch.cuda.is_bf16_supported() else torch.float16
    return tuple(
        Probe(f"{LAYER}-{str(dtype).removeprefix('torch.')}", LAYER, (), _step(dtype, device, rows, layers))
        for dtype in (torch.float32, half)
    )


def with_kinds(probe: Probe) -> Probe:
    """The probe, knowing what a step launches. Records one: only when all else has been measured.

    A profiler stays in the process: on an H200 graphs of 2,000 kernels that took 0.03 ms to launch took 0.84
    from then on.

    Raises:
        LaunchgapError: torch's profiler cannot see the GPU's work.
    """
    return replace(probe, kinds=recorded_kinds(lambda: probe.step(0))) if not probe.kinds else probe


def _step(dtype: torch.dtype, device: torch.device, rows: int, layers: int) -> Callable[[int], torch.Tensor]:
    hidden = torch.randn(1, rows, HIDDEN, dtype=dtype, device=device)
    weights = [_random_weights(dtype, device) for _ in range(layers)]

    @torch.no_grad()
    def step(number: int) -> torch.Tensor:
        return _layer(hidden, weights[number % layers])

    return step


def _random_weights(dtype: torch.dtype, device: torch.device) -> _Weights:
    shapes = ((3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (WIDE, HIDDEN), (HIDDEN, WIDE))
    return _Weights(
        norm=torch.ones(HIDDEN, dtype=dtype, device=device),
        matrices=tuple(torch.randn(shape, dtype=dtype, device=device) * 0.02 for shape in shapes),
        biases=tuple(torch.zeros(shape[0], dtype=dtype, device=device) for shape in shapes),
    )


def _layer(hidden: torch.Tensor, weights: _Weights) -> torch.Tensor:
    """Norm, attention, norm, and two products with an activation between them: changes (1, rows, width)."""
    (heads_in, heads_out, up, down), bias = weights.matrices, weights.biases
    rows = hidden.shape[1]
    normed = nnf.layer_norm(hidden, (HIDDEN,), weights.norm)
    parts = nnf.linear(normed, heads_in, bias[0]).view(1, rows, 3, HEADS, HIDDEN // HEADS)
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    attended = nnf.scaled_dot_product_attention(query, key, value, is_causal=True)
    attended = attended.transpose(1, 2).reshape(1, rows, HIDDEN)
    middle = hidden + nnf.linear(attended, heads_out, bias[1])
    normed = nnf.layer_norm(middle, (HIDDEN,), weights.norm)
    return torch.add(middle, nnf.linear(nnf.gelu(nnf.linear(normed, up, bias[2])), down, bias[3]), out=hidden)
