"""Name the line that broke a capture: the innermost frame of model or user code, never torch's own."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

_TORCH = Path(torch.__file__).parent
_HERE = Path(__file__).parent


def blame(error: BaseException) -> str:
    """`folder/file.py:LINE "source text" (what CUDA or torch said)` for the error that came first."""
    first = root_cause(error)
    said = (str(first).strip().splitlines() or [type(first).__name__])[0]
    frames = [f for f in traceback.extract_tb(first.__traceback__) if not _is_machinery(f.filename)]
    if not frames:
        return f"an unknown line ({said})"
    frame = frames[-1]
    return f'{"/".join(Path(frame.filename).parts[-2:])}:{frame.lineno} "{frame.line}" ({said})'


def root_cause(error: BaseException) -> BaseException:
    """The error that came first: a broken capture raises at the operation, then again when it ends."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _is_machinery(filename: str) -> bool:
    path = Path(filename)
    return path.is_relative_to(_TORCH) or path.is_relative_to(_HERE) or not path.is_absolute()
