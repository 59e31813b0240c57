"""What code a step runs, in one word: Snakemake does not see edits of files behind a `python -m`.

As inputs of the rules the files would be seen too, but a hundred inputs a job cost seconds a job: Snakemake
asks for each file's time and size many times over, and keeps a checksum of it for every output.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_CHARACTERS = 16


@cache
def fingerprint(root: Path, *patterns: str) -> str:
    """A digest of names and contents of the files below `root` that match; what Python compiled is left out.

    As a parameter of a rule it makes the rule run again when a file is edited, added or removed, wherever the
    project lies and whenever its files were written.
    """
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_CHARACTERS]
