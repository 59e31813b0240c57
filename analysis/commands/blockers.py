"""`python -m analysis blockers TRACE`: what would break or corrupt a capture of the requests of a trace."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.telling import add_output_options, check_outputs, rows_shown, tell
from commandline import EXIT_USER_ERROR, Parser, run_command

# pandas takes longer to load than --help may take, so what needs it is imported where it is used.
if TYPE_CHECKING:
    from analysis.commands.sections import View

_DESCRIPTION = """\
Find what would break a CUDA graph's capture of the requests of a trace, or corrupt it in silence: waits,
reads by the host, pageable copies, allocations, the legacy stream, other threads, launches and shapes that
change.

Give the trace of an eager run: a .sqlite(.gz) export, a .nsys-rep report, or torch.profiler's .json(.gz)."""
_EPILOG = """\
`breaks`: the capture fails. `corrupts`: it succeeds, and replays are wrong. `check`: depends on what a trace
does not tell. The lines of code are for `python -m scripts.doctor` to find; docs/doctor.md explains both.
Exit code 2 for a trace that cannot be used, else 0, whatever was found."""
_NOTE = (
    "Host time is that of the calls, GPU time that of the work. `after` is the kernel that was most often "
    "launched before it, and after how many launches of the request. A '-' is not known."
)
_LONG = ("requests", "after_launches", "remedy")
_CHANGES = (
    "Kernels, copies and fills that are not the same in all requests; a graph has those of one request."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Show what stands in the way of a capture.

    Raises:
        LaunchgapError: the trace cannot be used, or has no such range.
    """
    arguments = _parse(argv)
    rows_shown(arguments)
    check_outputs((arguments.output,), (arguments.trace,))
    view, fatal = _view(arguments.trace, arguments.range, arguments.domain)
    tell(view, arguments)
    return EXIT_USER_ERROR if fatal else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis blockers",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE", help=".sqlite(.gz), .nsys-rep or .json(.gz) file")
    add("--range", metavar="NAME", help="the range of one request (default: launchgap's own)")
    add("--domain", metavar="NAME", help="its NVTX domain; '' is the one without a name")
    add_output_options(parser)
    return parser.parse_args(argv)


def _view(path: Path, name: str | None, domain: str | None) -> tuple[View, bool]:
    """What is shown, and whether a fatal finding keeps the rest back."""
    from analysis.blocker_facts import read_capture_facts
    from analysis.blockers import blocker_findings, find_blockers
    from analysis.chrome_trace import read_any_trace
    from analysis.commands.export import readable
    from analysis.commands.facts import reader_findings
    from analysis.commands.progress import Steps
    from analysis.commands.requests import request_range
    from analysis.commands.sections import Fact, Section, View
    from analysis.findings import inspect
    from analysis.tracers import tracer_of

    with readable(path) as export, Steps(2) as steps:
        steps.begin(f"reading {path.name}")
        trace = read_any_trace(export)
        told = (*reader_findings(trace), *inspect(trace))
        facts: dict[str, Fact] = {"tracer": tracer_of(trace).name}
        if any(finding.severity == "fatal" for finding in told):
            return View("trace-findings", str(path), facts, told, ()), True
        selector = request_range(trace, path, name, domain)
        steps.begin("looking for what a capture would not take")
        found = find_blockers(trace, selector, read_capture_facts(export))
    facts |= {"range": selector.name, "domain": selector.domain or "(default)", "requests": found.requests}
    for harm in ("breaks", "corrupts", "check"):
        facts[harm] = int((found.table["harm"] == harm).sum())
    shown = found.table.drop(columns="effect")
    blockers = Section("blockers", "What a capture would meet", shown, _NOTE, _LONG, whole=True)
    changes = Section("changes", "What changes between requests", found.changes, _CHANGES, ("full_name",))
    findings = (*told, *found.findings, *blocker_findings(found.table))
    return View("trace-blockers", str(path), facts, findings, (blockers, changes)), False


if __name__ == "__main__":
    sys.exit(run_command(main))
