"""The environment that the pipeline's jobs are started with."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from commandline import STARTER_VARIABLE

_NO_BYTECODE, _BYTECODE_IN = "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"


def prepare_environment(project: str, environ: MutableMapping[str, str]) -> None:
    """Let `python -m scripts.NAME` in a rule mean this project and the Python that runs Snakemake.

    Holds whatever the work folder is. A conda environment (`--sdm conda`) still comes before that Python.
    """
    for name, first in (("PYTHONPATH", project), ("PATH", str(Path(sys.executable).parent))):
        environ[name] = os.pathsep.join(filter(None, [first, environ.get(name)]))
    environ[STARTER_VARIABLE] = str(os.getpid())
    _keep_bytecode(environ)


def _keep_bytecode(environ: MutableMapping[str, str]) -> None:
    """Where Python must not write bytecode beside modules, as in many containers, let it in the user's cache.

    Each job is a Python of its own and imports torch and transformers. Without bytecode it compiles their
    modules every time, which took half of a trace's seconds (docs/sweeps.md).
    """
    home, cache = environ.get("HOME"), environ.get("XDG_CACHE_HOME")
    if environ.get(_NO_BYTECODE) and (home or cache):
        folder = Path(cache or f"{home}/.cache", "launchgap", "bytecode").absolute()
        environ.setdefault(_BYTECODE_IN, str(folder))
        del environ[_NO_BYTECODE]
