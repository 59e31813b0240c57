"""A key-value cache at fixed addresses, in two views that a graph can hold: of a prompt, of one token.

transformers' own StaticCache works in a graph, but keeps a position per layer, so that each layer of each
token launches the same small kernels again, and attends over its full length even in the prompt. Here all
layers share one position, and a cache of fewer slots is a view of the largest, so that several lengths cost
the memory of one. Every layer keeps every slot, sliding windows too: their masks do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from contract import CaptureError

_PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)


@dataclass(frozen=True)
class LayerShape:
    """What one layer stores for each token: `heads` keys of `key_size` and values of `value_size` numbers."""

    heads: int
    key_size: int
    value_size: int


@dataclass(frozen=True)
class CacheShape:
    """What a model stores for each token. `window` is its shortest sliding window, in tokens, if any."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    window: int | None


def cache_shape(name: str, cache: object) -> CacheShape:
    """What the model of that name keeps, seen from the cache that it returned for one token.

    Raises:
        CaptureError: it keeps no keys and values, or something else besides.
    """
    if not isinstance(cache, DynamicCache):
        kept = "nothing" if cache is None else type(cache).__name__
        raise CaptureError(
            f"model {name}: keeps {kept} between tokens where a static cache needs keys and values"
        )
    for layer in cache.layers:
        if type(layer) not in _PLAIN:
            raise CaptureError(
                f"model {name}: a layer keeps {type(layer).__name__}, which has no static form here; "
                "only attention over keys and values has"
            )
    return _described(name, cache.layers)


def _described(name: str, layers: Sequence[Any]) -> CacheShape:
    shapes, dtypes, windows = [], set(), []
    for layer in layers:
        keys, values = layer.keys, layer.values
        if keys is None or keys.dim() != 4 or keys.shape[:3] != values.shape[:3] or keys.shape[2] != 1:
            raise CaptureError(f"model {name}: its cache is not one key and value per head and token")
        shapes.append(LayerShape(keys.shape[1], keys.shape[3], values.shape[3]))
        dtypes |= {keys.dtype, values.dtype}
        if isinstance(layer, DynamicSlidingWindowLayer):
            windows.append(int(layer.sliding_window))
    if len(dtypes) != 1:
        raise CaptureError(f"model {name}: its cache is of {len(dtypes)} number types, a static one has one")
    return CacheShape(tuple(shapes), dtypes.pop(), min(windows, default=None))


class KeyValueStore:
    """Keys and values of all layers.

    Attributes:
        slots: tokens that fit.
        layers: keys, shape (1, heads, slots, key size), and values of each layer.
    """

    def __init__(self, shape: CacheShape, slots: int, device: torch.device) -> None:
        """Allocate.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit.
        """
        self.slots = slots
        self.layers = tuple(
            (
                torch.zeros((1, layer.heads, slots, layer.key_size), dtype=shape.dtype, device=device),
                torch.zeros((1, layer.heads, slots, layer.value_size), dtype=shape.dtype, device=device),
            )
            for layer in shape.layers
        )

    @property
    def nbytes(self) -> int:
        """Memory of all layers."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)

    def clear(self) -> None:
        """Zero all slots, so that nothing of one request, not even a NaN, can reach the next."""
        # One kernel for many tensors: cleared one by one, small models would feel it.
        torch._foreach_zero_([tensor for layer in self.layers for tensor in layer])

    def prompt_view(self) -> Cache:
        """The cache for a pass over a whole prompt, which fills the slots from 0 on."""
        return Cache(layers=[_PromptLayer(keys, values) for keys, values in self.layers])

    def token_view(self, slots: int, position: torch.Tensor) -> Cache:
        """The cache for passes over one token each, which see the first `slots` slots.

        Each pass writes to slot `position`, shape (1,), on the device; the caller advances it.
        """
        pairs = [(keys[:, :, :slots], values[:, :, :slots]) for keys, values in self.layers]
        return Cache(layers=[_TokenLayer(keys, values, position) for keys, values in pairs])


class _PromptLayer(CacheLayerMixin):
    """Stores a whole prompt and hands its own keys and values on: nothing was there before."""

    is_compileable = True

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys = self._keys = keys
        self.values = self._values = values
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the storage is given."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write to the first slots."""
        tokens = key_states.shape[2]
        self._keys[:, :, :tokens].copy_(key_states)
        self._values[:, :, :tokens].copy_(value_states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens attended to, and the position of the first."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Tokens stored before this pass."""
        return 0

    def get_max_length(self) -> int:
        """Tokens that fit."""
        return int(self._keys.shape[2])


class _TokenLayer(_PromptLayer):
    """Stores one token at a position that only the device knows, and hands all slots on."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor) -> None:
        super().__init__(keys, values)
        self._position = position

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write to the slot at the position. Running past the last slot is a device-side assert."""
        self._keys.index_copy_(2, self._position, key_states)
        self._values.index_copy_(2, self._position, value_states)
        return self._keys, self._values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 - the interface's
        """Slots attended to, and the position of the first."""
        return int(self._keys.shape[2]), 0

    def get_seq_length(self) -> int:
        """The position, a tensor without dimensions as in transformers' StaticCache."""
        return self._position.view(())  # type: ignore[return-value]
