"""Compare two runs: changed latency with intervals, launches and kernels, and what explains it; gate a build.

OLD and NEW are results folders, report.json or latency.json files, or two traces as for
`python -m analysis TRACE`. Cases and strategies are matched by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.commands.telling import add_output_options, check_outputs, rows_shown, tell
from commandline import Parser, run_command
from contract import LaunchgapError

_EPILOG = """\
look       python -m analysis compare main/results results
gate       python -m analysis compare main/results results --fail-on regression=5% --fail-on missing
traces     python -m analysis compare old.sqlite new.sqlite --range forward --fail-on kernels=0

--fail-on  regression=5%  latency's interval is all above 5 % and above the noise of these runs; of strategies
                          that replay a graph unless --strategies names others: eager is the host's time
           launches=0     more launches per request than so many above OLD's; kernels=0 the same of kernels
           missing        a case or strategy of OLD is gone or failed
           output         a strategy's output differs from eager's

exit code 0  nothing that was asked for fails
exit code 1  something does; one line each on stderr
exit code 2  a file cannot be used, the two cannot be compared, or what was asked for cannot be told

docs/compare.md says how it decides and has a workflow for GitHub."""

EXIT_FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two sides; the exit code is 1 where a gate fails.

    Raises:
        LaunchgapError: a file cannot be read or used, or the two cannot be compared.
    """
    arguments = _parse(argv)
    rows_shown(arguments)
    paths = [arguments.old, arguments.new, *arguments.again]
    check_outputs((arguments.output,), paths)
    from analysis.commands.compare_input import read_sides
    from analysis.commands.compare_view import compare_view
    from analysis.compare import compare
    from analysis.compare_gate import failures, parse_gate
    from analysis.finding import one_line

    gate = parse_gate(arguments.fail_on)
    _check_gate(arguments)
    old, new, *again = read_sides(paths, arguments.range, arguments.domain)
    found = compare(old, new, again)
    reasons = tuple(map(one_line, failures(found, gate, arguments.strategies)))
    tell(compare_view(old, new, found, tuple(arguments.fail_on), reasons), arguments, reasons)
    sys.stdout.flush()
    sys.stderr.write("".join(f"{reason}\n" for reason in reasons))
    return EXIT_FAILED if reasons else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis compare",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("old", type=Path, metavar="OLD", help="the run to compare with")
    add("new", type=Path, metavar="NEW", help="the run that is judged, of the same kind as OLD")
    add(
        "--fail-on",
        action="append",
        default=[],
        metavar="WHAT",
        help="see below; may be given more than once",
    )
    add(
        "--strategies",
        nargs="+",
        default=[],
        metavar="NAME",
        help="strategies that --fail-on looks at (default: see below)",
    )
    add(
        "--again",
        action="append",
        type=Path,
        default=[],
        metavar="RUN",
        help="another run of OLD's code on the same machine: its distance from OLD counts as noise; may be "
        "given more than once",
    )
    add("--range", metavar="NAME", help="traces: the range of one request (default: launchgap's own)")
    add("--domain", metavar="NAME", help="traces: its NVTX domain; '' is the one without a name")
    add_output_options(parser)
    return parser.parse_args(argv)


def _check_gate(arguments: argparse.Namespace) -> None:
    if arguments.strategies and not arguments.fail_on:
        raise LaunchgapError("--strategies: is what --fail-on looks at; give --fail-on as well")


if __name__ == "__main__":
    sys.exit(run_command(main))
