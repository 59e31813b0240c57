"""Match the work of an eager request with that of the graph's: same, changed, missing or extra, and why.

EAGER and GRAPH are traces as for `python -m analysis TRACE`, of one model, the graph's recorded with
--cuda-graph-trace=node. Their requests are launchgap's own ranges, or those that --range names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.commands.telling import add_output_options, check_outputs, rows_shown, tell
from commandline import Parser, run_command

_EPILOG = """\
exit code 0  all of eager's work is in the graph's requests, or it is known why not, and nothing ran beside
             the replay but the input, the output and padding
exit code 1  work of eager is missing for no known reason, or work escaped the replay
exit code 2  a file cannot be used, or the two cannot be compared

What makes the exit code 1 is red on a terminal, unless NO_COLOR is set. Names of kernels are no proof: that
outputs are equal shows only in a comparison of outputs. docs/explain.md says how kernels are matched."""

EXIT_ESCAPED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Match two traces; the exit code is 1 where the graph does less than eager or not all by replay.

    Raises:
        LaunchgapError: a file cannot be read or used, or the two cannot be compared.
    """
    arguments = _parse(argv)
    rows_shown(arguments)
    check_outputs((arguments.output,), (arguments.eager, arguments.graph))
    from analysis.commands.match_view import Request, match_view

    request = Request(arguments.range, arguments.graph_range, arguments.domain)
    view, alarms = match_view(arguments.eager, arguments.graph, request)
    tell(view, arguments, alarms)
    return EXIT_ESCAPED if alarms else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis match",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("eager", type=Path, metavar="EAGER", help="the eager run: .sqlite(.gz), .nsys-rep or .json(.gz) file")
    add("graph", type=Path, metavar="GRAPH", help="the run with graphs, traced node by node")
    add("--range", metavar="NAME", help="the range of one request (default: launchgap's own)")
    add("--graph-range", metavar="NAME", help="the range of one request in GRAPH (default: as --range)")
    add("--domain", metavar="NAME", help="their NVTX domain; '' is the one without a name")
    add_output_options(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(run_command(main))
