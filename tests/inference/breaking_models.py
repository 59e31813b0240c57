"""Models that a CUDA graph cannot hold, each for one reason, on one marked line of this file.

Each is a real model of transformers whose last norm is a module of ours. `BREAKERS` says which line must be
named: the one that ends in `# here` within the module's source.
"""

from __future__ import annotations

import inspect
import linecache

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.inference.tiny_models import tiny


class Item(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * hidden.abs().sum().item()  # here


class Nonzero(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        found = torch.nonzero(hidden > 0)  # here
        return hidden + found.shape[0]


class GrowingCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        before = hidden if self.kept is None else self.kept
        self.kept = torch.cat((before, hidden), dim=1)  # here
        return hidden + self.kept.mean(dim=1, keepdim=True)


class HostCopy(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        on_host = hidden.cpu()  # here
        return hidden * len(on_host)


class Branch(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        if hidden.sum() > 0:  # here
            return hidden.relu()
        return -hidden


class ForeignGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator: torch.Generator | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.generator is None:
            self.generator = torch.Generator(hidden.device).manual_seed(0)
        noise = torch.randn(hidden.shape, generator=self.generator, device=hidden.device)  # here
        return hidden + noise


class HostData(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * torch.tensor([1.0, 2.0], device=hidden.device).sum()  # here


class LegacyStream(nn.Module):
    """Only on CUDA: there is no stream to leave elsewhere."""

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.cuda.stream(torch.cuda.default_stream(hidden.device)):
            return hidden * 2.0  # here


class BakedNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, hidden: Tensor) -> Tensor:
        self.calls += 1
        return hidden * float(self.calls)  # here


class ReboundState(nn.Module):
    """No operation is wrong by itself; the next call reads a tensor that the graph does not know of."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(()))

    def forward(self, hidden: Tensor) -> Tensor:
        self.total = self.total * 2.0  # here
        return hidden + self.total


class Innocent(nn.Module):
    """Keeps state as a graph can: in one tensor that is written into."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, hidden: Tensor) -> Tensor:
        self.calls.add_(1.0)
        return torch.where(hidden > 0, hidden, -hidden) + torch.full((), 1.0, device=hidden.device)


BREAKERS: dict[str, tuple[type[nn.Module], str]] = {
    "item": (Item, "breaks"),
    "nonzero": (Nonzero, "breaks"),
    "growing cache": (GrowingCache, "corrupts"),
    "host copy": (HostCopy, "breaks"),
    "branch": (Branch, "breaks"),
    "generator": (ForeignGenerator, "breaks"),
    "host data": (HostData, "breaks"),
    "baked number": (BakedNumber, "corrupts"),
    "rebound state": (ReboundState, "corrupts"),
}
"""What the CPU can tell as well, with what it does to a capture. `LegacyStream` is for CUDA alone."""


def with_norm(module: nn.Module, device: str = "cpu") -> PreTrainedModel:
    """A tiny Llama with this as its last norm."""
    model = tiny("llama")
    model.model.norm = module.eval()
    nn.Module.to(model, torch.device(device))
    return model


def marked_place(module: type[nn.Module]) -> str:
    """The marked line of a module as `inference.blame.place_of` writes it."""
    lines, first = inspect.getsourcelines(module)
    line = first + next(number for number, text in enumerate(lines) if text.rstrip().endswith("# here"))
    return f'inference/breaking_models.py:{line} "{linecache.getline(__file__, line).strip()}"'
