"""What a model may bring beside its numbers: code of its own, and a pickle of weights. On request only."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pickle import UnpicklingError
from typing import Any, Literal

import torch

from contract import LaunchgapError

Trusted = Literal["remote code", "pickle"]

SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")

CODE_OPTION = "--trust-remote-code"
PICKLE_OPTION = "--allow-pickle"

_KERNELS_PACKAGE = "kernels"
"""With it transformers downloads compiled attention from the hub and runs it."""

_FLASH_PACKAGES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
"""Where attention of this name is found without the hub."""

_PICKLE_WARNING = (
    f"a pickle, which can run code when it is read; convert it to safetensors, or give {PICKLE_OPTION}"
)


@dataclass(frozen=True)
class Trust:
    """What the user trusts the source of a model with: to run its code, to read its pickles."""

    remote_code: bool = False
    pickle: bool = False

    @property
    def weight_files(self) -> tuple[str, ...]:
        """Names of the files that weights may be read from."""
        return SAFE_WEIGHTS + PICKLED_WEIGHTS if self.pickle else SAFE_WEIGHTS

    @property
    def words(self) -> list[Trusted]:
        """What is trusted, for the record."""
        granted: list[tuple[Trusted, bool]] = [("remote code", self.remote_code), ("pickle", self.pickle)]
        return [word for word, given in granted if given]


def why_pickled(files: Collection[str], trust: Trust) -> str | None:
    """Why weights may not be read, where a pickle is all that there is among the files; else None."""
    pickled = [name for name in PICKLED_WEIGHTS if name in files]
    if trust.pickle or not pickled or any(name in files for name in SAFE_WEIGHTS):
        return None
    return f"its weights, {pickled[0]}, are {_PICKLE_WARNING}"


def refuse_hub_attention(attention: str, trust: Trust) -> None:
    """Refuse an attention implementation that transformers would download as compiled code.

    Raises:
        LaunchgapError: it is one, and code from the hub is not trusted.
    """
    package = _FLASH_PACKAGES.get(attention)
    fetched = attention.startswith("flash_attention") and not (package and find_spec(package))
    if not trust.remote_code and ("/" in attention or (fetched and find_spec(_KERNELS_PACKAGE))):
        raise LaunchgapError(
            f"attention implementation {attention}: is code from the hub, which is not run unasked; "
            f"use another, such as sdpa, or give {CODE_OPTION}"
        )


def loading_options(trust: Trust) -> dict[str, Any]:
    """Options of `from_pretrained`. Said in so many words: without them transformers asks on the terminal."""
    return {"trust_remote_code": trust.remote_code, "use_safetensors": None if trust.pickle else True}


def refused(model: str, error: BaseException) -> LaunchgapError | None:
    """The one line for what torch or transformers would have run code for; None for other errors."""
    if isinstance(error, UnpicklingError):
        return LaunchgapError(
            f"model {model}: its pickle is damaged or holds more than tensors, so it is not read; "
            "take weights from a source that you trust"
        )
    if "trust_remote_code" in str(error):
        return LaunchgapError(
            f"model {model}: needs code of its own, which is not run unasked; "
            f"read it, then give {CODE_OPTION}"
        )
    return None


@contextmanager
def pickles_refused(model: str, trust: Trust) -> Iterator[None]:
    """Within the block nothing is unpickled, whichever file a config or an index names; no block of threads.

    Raises:
        LaunchgapError: something would have been, and pickles are not trusted.
    """
    load = torch.load

    def refuse(*_: object, **__: object) -> None:
        raise LaunchgapError(f"model {model}: it names weights that are {_PICKLE_WARNING}")

    torch.load = load if trust.pickle else refuse
    try:
        yield
    finally:
        torch.load = load
