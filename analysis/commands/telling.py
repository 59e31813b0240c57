"""Options and output that the commands about one or two traces share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from analysis.commands.show import FORMAT_OF_SUFFIX, FORMATS
from commandline import require_writable, write_bytes_atomic
from contract import LaunchgapError

if TYPE_CHECKING:
    from analysis.commands.sections import View

_TOP = 10
_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """--format, --top and -o, as `python -m analysis TRACE` has them."""
    add = parser.add_argument_group("how to show it").add_argument
    add("--format", choices=FORMATS, help="(default: by the ending of -o FILE, else table)")
    add(
        "--top",
        type=int,
        metavar="N",
        help=f"rows of each long table, 0 for all (default: {_TOP} in table and md, all in csv and json)",
    )
    add("-o", "--output", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def check_figure(figure: Path | None) -> None:
    """Refuse a figure's file of another kind.

    Raises:
        LaunchgapError: it ends neither in .svg nor in .png.
    """
    if figure is not None and figure.suffix not in (".svg", ".png"):
        raise LaunchgapError(f"--figure {figure}: is neither .svg nor .png; give a name with one of these")


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuse, before any work, outputs that cannot be written or would overwrite what is read.

    Raises:
        LaunchgapError: an output is a folder, an input, or given twice.
        OSError: an output's folder cannot be made or written to.
    """
    given = [path for path in outputs if path is not None]
    for output in given:
        if output.is_dir():
            raise LaunchgapError(f"{output}: is a folder; give the name of a file in it")
        there = [path for path in inputs if path is not None and path.exists() and output.exists()]
        if any(output.samefile(path) for path in there):
            raise LaunchgapError(f"{output}: is one of the inputs; give another name, it is not overwritten")
        if sum(output.resolve() == other.resolve() for other in given) > 1:
            raise LaunchgapError(f"{output}: is to hold two outputs; give each its own name")
        require_writable(output.parent)


def rows_shown(arguments: argparse.Namespace) -> None:
    """Check --top.

    Raises:
        LaunchgapError: it is negative.
    """
    if arguments.top is not None and arguments.top < 0:
        raise LaunchgapError(f"--top {arguments.top}: is negative; give a number of rows, or 0 for all")


def tell(view: View, arguments: argparse.Namespace, alarms: Collection[str] = ()) -> None:
    """Write a view where the options say; lines that are `alarms` are red on a terminal.

    Findings go to stderr as well where the view goes to a file or is CSV.
    """
    from analysis.commands.render import Format, finding_line, render, to_bytes

    suffix = arguments.output.suffix if arguments.output is not None else ""
    form = Format(arguments.format or FORMAT_OF_SUFFIX.get(suffix, "table"))
    top = arguments.top
    if top is None and form in (Format.TABLE, Format.MARKDOWN):
        top = _TOP
    text = render(view, form, top or None)
    if arguments.output is not None or form is Format.CSV:
        found = "".join(f"{finding_line(finding)}\n" for finding in view.findings)
        sys.stderr.write(in_red(found, alarms) if takes_colour(sys.stderr) else found)
    if arguments.output is not None:
        write_bytes_atomic(arguments.output, to_bytes(text))
        return
    if form is Format.TABLE and takes_colour(sys.stdout):
        text = in_red(text, alarms)
    sys.stdout.flush()
    sys.stdout.buffer.write(to_bytes(text))


def takes_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours and whose user wants them (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def in_red(text: str, alarms: Collection[str]) -> str:
    """The text with those of its lines in red that end with an alarm."""
    told = tuple(alarms)
    return "".join(
        f"{_RED}{line.rstrip()}{_PLAIN}\n" if told and line.rstrip().endswith(told) else line
        for line in text.splitlines(keepends=True)
    )
