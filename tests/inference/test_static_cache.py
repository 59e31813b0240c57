"""The cache views against what a growing cache would hold, and what has no static form."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

from contract import CaptureError
from inference.static_cache import CacheShape, KeyValueStore, LayerShape, cache_shape
from tests.inference.tiny_models import WINDOW, tiny

SHAPE = CacheShape((LayerShape(2, 4, 4), LayerShape(1, 8, 6)), torch.float32, None)
CPU = torch.device("cpu")


def states(layer: LayerShape, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    size = (1, layer.heads, tokens)
    return torch.randn(*size, layer.key_size), torch.randn(*size, layer.value_size)


def test_a_prompt_then_tokens_fill_the_slots_in_order() -> None:
    store, growing = KeyValueStore(SHAPE, 16, CPU), DynamicCache()
    position = torch.tensor([5])
    prompt_view, token_view = store.prompt_view(), store.token_view(8, position)
    for index, layer in enumerate(SHAPE.layers):
        keys, values = states(layer, 7)  # 5 real tokens, 2 of padding
        seen = prompt_view.update(keys, values, index)
        assert seen[0] is keys
        assert seen[1] is values
        growing.update(keys[:, :, :5], values[:, :, :5], index)
    for step in range(3):
        for index, layer in enumerate(SHAPE.layers):
            pair = states(layer, 1)
            keys, values = token_view.update(*pair, index)
            expected = growing.update(*pair, index)
            assert keys.shape[2] == 8
            assert torch.equal(keys[:, :, : 6 + step], expected[0])
            assert torch.equal(values[:, :, : 6 + step], expected[1])
        position.add_(1)
    assert int(token_view.get_seq_length()) == 8


def test_a_short_view_lies_in_the_long_one() -> None:
    store = KeyValueStore(SHAPE, 16, CPU)
    short = store.token_view(4, torch.tensor([3]))
    short.update(*states(SHAPE.layers[0], 1), 0)
    assert store.layers[0][0][:, :, 3].abs().min() > 0
    assert store.layers[0][0][:, :, 4:].abs().max() == 0
    store.clear()
    assert all(float(tensor.abs().max()) == 0 for pair in store.layers for tensor in pair)
    assert store.nbytes == 16 * (2 * 8 + 14) * 4


def test_sizes_that_masks_are_made_from() -> None:
    store, position = KeyValueStore(SHAPE, 16, CPU), torch.tensor([3])
    assert store.prompt_view().get_mask_sizes(7, 0) == (7, 0)
    assert store.prompt_view().get_seq_length() == 0
    view = store.token_view(8, position)
    assert view.get_mask_sizes(1, 0) == (8, 0)
    assert view.get_max_length() == 8
    length = view.get_seq_length()
    position.add_(1)
    assert int(length) == 4  # the position itself, not a copy
    assert view.is_compileable
    assert not any(view.is_sliding)


def cache_of(family: str) -> Any:  # noqa: ANN401 - to be taken apart
    return tiny(family)(input_ids=torch.zeros((1, 1), dtype=torch.int64), use_cache=True).past_key_values


@pytest.mark.parametrize(("family", "heads", "window"), [("gpt2", 2, None), ("mistral", 2, WINDOW)])
def test_what_a_model_keeps(family: str, heads: int, window: int | None) -> None:
    shape = cache_shape(family, cache_of(family))
    assert [layer.heads for layer in shape.layers] == [heads] * 2
    assert shape.window == window
    assert shape.dtype is torch.float32


def test_caches_without_a_static_form() -> None:
    model = tiny("llama")
    with pytest.raises(CaptureError, match="model X: keeps nothing between tokens"):
        cache_shape("X", None)
    with pytest.raises(CaptureError, match="model X: keeps StaticCache"):
        cache_shape("X", StaticCache(model.config, 8))
    cache = cache_of("llama")
    cache.layers[1] = SimpleNamespace()
    with pytest.raises(CaptureError, match="a layer keeps SimpleNamespace"):
        cache_shape("X", cache)
    for keys in (torch.zeros(1, 2, 1), torch.zeros(1, 2, 3, 4)):
        cache = cache_of("llama")
        cache.layers[1].keys = keys
        with pytest.raises(CaptureError, match="not one key and value per head and token"):
            cache_shape("X", cache)
    cache = cache_of("llama")
    cache.layers[1].keys = cache.layers[1].keys.half()
    with pytest.raises(CaptureError, match="of 2 number types"):
        cache_shape("X", cache)
