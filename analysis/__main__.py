"""`python -m analysis TRACE`, or one of the commands below: `python -m analysis ledger ...`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from commandline import run_command
from contract import LaunchgapError

COMMANDS = {
    "scrub": "analysis.commands.scrub",
    "perfetto": "analysis.commands.perfetto",
    "blockers": "analysis.commands.blockers",
    "predict": "analysis.commands.predict",
    "ledger": "analysis.commands.ledger",
    "match": "analysis.commands.match",
    "layers": "analysis.commands.layers",
    "compare": "analysis.commands.compare",
}
"""First words that are commands; any other first word is a trace to look at."""

DEFAULT = "analysis.commands.show"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first word names.

    Raises:
        LaunchgapError: the first word is no file, and almost a command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        _check_spelling(words[0] if words else "")
        return int(importlib.import_module(DEFAULT).main(words))
    return int(importlib.import_module(command).main(words[1:]))


def _check_spelling(word: str) -> None:
    """Refuse a misspelt command, which would be taken for a trace with words too many."""
    from difflib import get_close_matches  # here, since --help and the commands do without it

    close = get_close_matches(word, COMMANDS, 1, cutoff=0.75)
    if close and not Path(word).exists():
        raise LaunchgapError(f"{word}: neither a command nor a file; did you mean {close[0]!r}? See --help")


if __name__ == "__main__":
    sys.exit(run_command(main))
