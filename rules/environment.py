"""The environment that the pipeline's jobs are started with."""

from __future__ import annotations

import os
import stat
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
    modules every time: 2 to 4 s of an H200 host's (docs/sweeps.md).
    """
    if not environ.get(_NO_BYTECODE):
        return
    folder = environ.get(_BYTECODE_IN) or _cache(environ.get("HOME"), environ.get("XDG_CACHE_HOME"))
    if folder:
        environ[_BYTECODE_IN] = folder
        del environ[_NO_BYTECODE]


def _cache(home: str | None, cache: str | None) -> str | None:
    """A folder for bytecode below the user's own cache; None where that is anybody's, as is /tmp."""
    user = cache or home
    if not user or not Path(user).is_dir():
        return None
    found = Path(user).stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return str(Path(cache or Path(user, ".cache"), "launchgap", "bytecode").absolute())
