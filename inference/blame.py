"""Which line of code to name: the innermost of the model or the user, never torch's own.

One rule for captures that broke on a GPU (`blame`, after the fact) and for those that the simulation refuses
(`inference.simulation_rules`, while the line runs), so that both name the same line.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path

import torch

_TORCH = Path(torch.__file__).parent
_HERE = Path(__file__).parent
_STDLIB = Path(sysconfig.get_paths()["stdlib"])


def blame(error: BaseException) -> str:
    """`folder/file.py:LINE "source text" (what CUDA or torch said)` for the error that came first."""
    return f"{blamed_place(error)} ({first_line(root_cause(error))})"


def blamed_place(error: BaseException) -> str:
    """Where the error that came first was raised, as `place_of` has it."""
    frames = [f for f in traceback.extract_tb(root_cause(error).__traceback__) if is_users(f.filename)]
    return place_of(frames[-1].filename, frames[-1].lineno or 0) if frames else "an unknown line"


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its type if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def root_cause(error: BaseException) -> BaseException:
    """The error that came first: a broken capture raises at the operation, then again when it ends."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def place_of(path: str, line: int) -> str:
    """`folder/file.py:LINE "source text"`, without the text where there is no source."""
    place = f"{'/'.join(Path(path).parts[-2:])}:{line}"
    source = linecache.getline(path, line).strip()
    return f'{place} "{source}"' if source else place


@lru_cache(maxsize=4096)
def is_users(path: str) -> bool:
    """Whether code of this file name is the user's or a model's: not torch's, Python's or this package's.

    What was typed into Python or IPython is the user's. Code without a file, such as `python -c` or what
    dataclasses generate, is nobody's.
    """
    if path.startswith("<"):
        return path.startswith(("<stdin>", "<ipython"))
    file = Path(path)
    if not file.is_absolute():
        return file.suffix == ".py"  # Cython gives its frames relative names: numpy/random/mtrand.pyx
    if file.is_relative_to(_TORCH) or file.is_relative_to(_HERE):
        return False
    if not file.is_relative_to(_STDLIB):
        return True
    # Installed packages lie below the standard library, yet a model in one of them is the user's.
    return file.relative_to(_STDLIB).parts[0].endswith("-packages")
