"""Show what each layer of a model launches and runs per request, eager and as a graph.

EAGER is a trace that was captured with --annotate modules, so that every module of the model has a range. The
graph's must hold its capture too and be recorded with --cuda-graph-trace=node.
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
one trace        python -m analysis layers eager.node.sqlite
before, after    python -m analysis layers eager.node.sqlite --graph graph.node.sqlite --figure layers.svg
parts of blocks  python -m analysis layers eager.node.sqlite --merge --depth 4

A layer is the start of a module's path: up to the first number (transformer.h.3), or --depth parts of it.
docs/explain.md says how work finds its layer. Ranges of modules slow the host down: no time is a latency."""


def main(argv: Sequence[str] | None = None) -> int:
    """Show the layers of one trace, and those of the graph's beside them.

    Raises:
        LaunchgapError: a file cannot be read or used, or has no ranges of modules.
    """
    arguments = _parse(argv)
    _check(arguments)
    from analysis.commands.layers_view import Request, layers_view

    request = Request(
        range_name=arguments.range,
        domain=arguments.domain,
        graph=arguments.graph,
        graph_range=arguments.graph_range,
        depth=arguments.depth,
        merge=arguments.merge,
    )
    view, picture = layers_view(arguments.trace, request)
    if arguments.figure is not None:
        # Loading matplotlib takes a second, which only those who want a figure should wait.
        from analysis.figures_layers import figure_bytes

        write_bytes_atomic(arguments.figure, figure_bytes(picture, arguments.figure.suffix))
    tell(view, arguments)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis layers",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="EAGER", help=".sqlite(.gz) or .nsys-rep file")
    add("--graph", type=Path, metavar="GRAPH", help="trace of the same requests as graphs, to put beside it")
    add("--depth", type=int, metavar="N", help="parts of a module's path (default: up to the first number)")
    add("--merge", action="store_true", help="all blocks are one layer: transformer.h.*")
    add("--range", metavar="NAME", help="the range of one request (default: launchgap's own)")
    add("--graph-range", metavar="NAME", help="the range of one request in GRAPH (default: as --range)")
    add("--domain", metavar="NAME", help="their NVTX domain; '' is the one without a name")
    add("--figure", type=Path, metavar="FILE", help="draw time and launches as stacked bars: .svg or .png")
    add_output_options(parser)
    return parser.parse_args(argv)


def _check(arguments: argparse.Namespace) -> None:
    rows_shown(arguments)
    check_figure(arguments.figure)
    if arguments.graph_range is not None and arguments.graph is None:
        raise LaunchgapError("--graph-range: there is no graph's trace; give --graph GRAPH as well")
    if arguments.depth is not None and arguments.depth < 1:
        raise LaunchgapError(f"--depth {arguments.depth}: must be 1 or more; give parts of a path to keep")
    check_outputs((arguments.output, arguments.figure), (arguments.trace, arguments.graph))


if __name__ == "__main__":
    sys.exit(run_command(main))
