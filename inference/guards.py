"""What a capture baked in, and whether it still holds.

A graph reads its weights at the addresses of the capture, and runs the code path that the settings of that
moment chose. New values in the same storage (`load_state_dict`, `copy_`, an optimizer's step) are read by the
next replay and need nothing. Replaced tensors or modules, another dtype, device, attention or experts
implementation or matmul precision do: the guard notices. It cannot see plain Python values that a forward
pass reads (a `scaling` attribute, a config field, a hook); capture again after changing those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter, eq, is_not
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from contract import LaunchgapError

_is_training = attrgetter("training")

_LAYOUT: tuple[Callable[[torch.Tensor], object], ...] = (
    torch.Tensor.data_ptr,
    torch.Tensor.numel,
    torch.Tensor.stride,
    attrgetter("dtype"),
)
"""What a kernel was given of a weight. Read one by one: lists of it would set off garbage collections."""


class ModelGuard:
    """A model as it was when this was made.

    Keeps the memory of its parameters and buffers allocated, so that a replay that was launched before the
    check never reads memory that was given back: weights that were replaced are freed with the guard.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._modules = list(model.modules())
        self._slots: list[dict[str, Any]] = []
        self._keys: list[str] = []
        self._names: list[str] = []
        for prefix, module in model.named_modules():
            for slots in (module._parameters, module._buffers, module._modules):
                self._slots += [slots] * len(slots)
                self._keys += slots
                self._names += [f"{prefix}.{key}".lstrip(".") for key in slots]
        self._values = list(map(dict.get, self._slots, self._keys))
        self._tensors = [value for value in self._values if isinstance(value, torch.Tensor)]
        self._kept = [tensor.detach() for tensor in self._tensors]
        self._layout = [list(map(read, self._tensors)) for read in _LAYOUT]
        self._settings = _settings(model)

    def changed(self) -> str | None:
        """What no longer is as it was, in a few words, or None. Waits for nothing.

        Raises:
            LaunchgapError: a module is in training mode.
        """
        self.refuse_training()
        same = not any(map(is_not, map(dict.get, self._slots, self._keys), self._values))
        for read, then in zip(_LAYOUT, self._layout, strict=True):
            same = same and all(map(eq, map(read, self._tensors), then))
        if not same:
            return self._difference()
        settings = _settings(self._model)
        if settings != self._settings:
            name = next(key for key, value in settings.items() if value != self._settings[key])
            return f"{name} is {settings[name]}, was {self._settings[name]}"
        return None

    def settings_changed(self) -> bool:
        """Whether attention, experts or matmul precision are chosen in another way than they were."""
        return _settings(self._model) != self._settings

    def refuse_training(self) -> None:
        """See the function of this name."""
        refuse_training(self._modules)

    def _difference(self) -> str:
        """The first difference, by name; another device or dtype first, since it shows in all weights."""
        kept = iter(self._kept)
        found = []
        for name, slots, key, was in zip(self._names, self._slots, self._keys, self._values, strict=True):
            now = slots.get(key)
            old = next(kept) if isinstance(was, torch.Tensor) else None
            if old is not None and isinstance(now, torch.Tensor):
                if (now.device, now.dtype) != (old.device, old.dtype):
                    return f"{name} is {now.dtype} on {now.device}, was {old.dtype} on {old.device}"
                moved = _layout_of(now) != _layout_of(old)
                if now is was and moved:
                    found.append(f"{name} lies at another address or has another shape")
            if now is not was:
                found.append(f"{name} was replaced")
        return found[0] if found else "weights were moved"


def refuse_training(modules: Iterable[nn.Module]) -> None:
    """Graphs hold inference: no dropout, no gradients.

    Raises:
        LaunchgapError: a module is in training mode.
    """
    if any(map(_is_training, modules)):
        raise LaunchgapError("the model is in training mode; call model.eval() first")


def refuse_autocast(device: torch.device) -> None:
    """Autocast would change what eager computes, and not what a graph does.

    Raises:
        LaunchgapError: autocast is on for this kind of device.
    """
    if torch.is_autocast_enabled(device.type):
        raise LaunchgapError("autocast is on; leave it, and load the model in the dtype to compute in")


def _layout_of(tensor: torch.Tensor) -> list[object]:
    return [read(tensor) for read in _LAYOUT]


def _settings(model: PreTrainedModel) -> dict[str, object]:
    return {
        "attention implementation": model.config._attn_implementation,
        "experts implementation": getattr(model.config, "_experts_implementation", None),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
    }
