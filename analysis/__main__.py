"""`python -m analysis TRACE`, or one of the commands below: `python -m analysis ledger ...`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from commandline import run_command

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
    """Run the command that the first word names."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        return int(importlib.import_module(DEFAULT).main(words))
    return int(importlib.import_module(command).main(words[1:]))


if __name__ == "__main__":
    sys.exit(run_command(main))
