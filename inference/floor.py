"""What no launch trick can beat: at batch 1 every token reads the weights once from the GPU's memory.

    bandwidth = read_bandwidth_bytes_per_s(device)
    floor_ms(weight_bytes_read(model), bandwidth)      # milliseconds a token, None where it cannot be told

The bandwidth is what this GPU reached in this run, not what its data sheet says. The floor holds the weights
alone, neither keys and values nor activations. A model that fits into the GPU's cache, some tens of
megabytes, may be faster.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

_BUFFER_BYTES = 2 * 2**30
_LEAST_BUFFER_BYTES = 256 * 2**20
"""A smaller buffer would be read from the cache in part."""

_WARM_UP_READS = 3
_READS = 10


def read_bandwidth_bytes_per_s(device: torch.device) -> float | None:
    """Bytes per second at which a sum over a large buffer reads it: the best of ten, by CUDA events.

    None on the CPU, and where less than a gigabyte of GPU memory is free.
    """
    if device.type != "cuda":
        return None
    size_bytes = min(_BUFFER_BYTES, torch.cuda.mem_get_info(device)[0] // 4)
    if size_bytes < _LEAST_BUFFER_BYTES:
        return None
    with torch.cuda.device(device):
        buffer = torch.ones(size_bytes // 4, dtype=torch.float32, device=device)
        read_ms = [_read_ms(buffer) for _ in range(_WARM_UP_READS + _READS)][_WARM_UP_READS:]
        read_bytes = buffer.nbytes
        del buffer
        torch.cuda.empty_cache()
    return read_bytes / (min(read_ms) / 1e3)


def _read_ms(buffer: torch.Tensor) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    buffer.sum()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def weight_bytes_read(model: PreTrainedModel) -> int | None:
    """Bytes of weights that one forward pass of one token reads: every parameter once, tied ones once.

    Lookup tables (`nn.Embedding`: tokens, learned positions) are left out, since a token reads one row of
    each; one that is also the output matrix is read whole and counts. None for a mixture of experts: which of
    them are read is decided token by token.
    """
    if _has_experts(model):
        return None
    output = getattr(model.get_output_embeddings(), "weight", None)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    tables.discard(id(output))
    return sum(weight.nbytes for weight in model.parameters() if id(weight) not in tables)


def floor_ms(weight_bytes: int | None, bytes_per_s: float | None) -> float | None:
    """Milliseconds to read so many bytes at that bandwidth; None where either is unknown."""
    if weight_bytes is None or bytes_per_s is None:
        return None
    return weight_bytes / bytes_per_s * 1e3


def _has_experts(model: PreTrainedModel) -> bool:
    """By the config's own words (`num_local_experts`, `n_routed_experts`, ...) or the modules' names."""
    settings = model.config.get_text_config().to_dict().items()
    named = any("experts" in key and isinstance(value, int) and value > 1 for key, value in settings)
    return named or any(name.rpartition(".")[2] == "experts" for name, _ in model.named_modules())
