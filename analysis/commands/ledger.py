"""Show where the time of each request went: on the GPU and on the host, in parts that add up to its range.

TRACE is a trace as for `python -m analysis TRACE`, of any program. Its requests are launchgap's own ranges,
or those that --range names; where it has neither, the ranges that look like a request are told.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.commands.telling import add_output_options, check_figure, check_outputs, rows_shown, tell
from commandline import Parser, run_command, write_bytes_atomic
from contract import LaunchgapError

_EPILOG = """\
one trace        python -m analysis ledger eager.node.sqlite.gz
another program  python -m analysis ledger trace.nsys-rep --range forward
before, after    python -m analysis ledger eager.node.sqlite.gz --graph graph.graph.sqlite.gz --figure it.svg

docs/explain.md has the formulas. All times are as traced: a profiler stretches them, so none is a latency."""


def main(argv: Sequence[str] | None = None) -> int:
    """Show the ledgers of one trace, and those of the graph's beside them.

    Raises:
        LaunchgapError: a file cannot be read or used, or the range is not there.
    """
    arguments = _parse(argv)
    _check(arguments)
    from analysis.commands.ledger_view import Request, ledger_view

    request = Request(
        range_name=arguments.range,
        domain=arguments.domain,
        graph=arguments.graph,
        graph_range=arguments.graph_range,
        latency=arguments.latency,
    )
    view, picture = ledger_view(arguments.trace, request)
    if arguments.figure is not None:
        # Loading matplotlib takes a second, which only those who want a figure should wait.
        from analysis.figures_ledger import figure_bytes

        drawn = figure_bytes(picture, arguments.figure.suffix)
        write_bytes_atomic(arguments.figure, drawn)
    tell(view, arguments)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis ledger",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE", help=".sqlite(.gz), .nsys-rep or .json(.gz) file")
    add("--range", metavar="NAME", help="the range of one request (default: launchgap's own)")
    add("--domain", metavar="NAME", help="its NVTX domain; '' is the one without a name")
    add("--graph", type=Path, metavar="TRACE2", help="trace of the same requests as graphs, to put beside it")
    add("--graph-range", metavar="NAME", help="the range of one request there (default: as --range)")
    add("--latency", type=Path, metavar="FILE", help="latency.json of the case, for the floor")
    add("--figure", type=Path, metavar="FILE", help="draw the median request as a waterfall: .svg or .png")
    add_output_options(parser)
    return parser.parse_args(argv)


def _check(arguments: argparse.Namespace) -> None:
    rows_shown(arguments)
    check_figure(arguments.figure)
    if arguments.graph_range is not None and arguments.graph is None:
        raise LaunchgapError("--graph-range: there is no graph's trace; give --graph TRACE2 as well")
    inputs = (arguments.trace, arguments.graph, arguments.latency)
    check_outputs((arguments.output, arguments.figure), inputs)


if __name__ == "__main__":
    sys.exit(run_command(main))
