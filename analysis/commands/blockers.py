"""`python -m analysis blockers TRACE`: what would break or corrupt a capture of the requests of a trace."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commandline import EXIT_USER_ERROR, Parser, require_writable, run_command, write_bytes_atomic
from contract import NVTX_DOMAIN, LaunchgapError, RangeName

# pandas takes longer to load than --help may take, so what needs it is imported where it is used.
if TYPE_CHECKING:
    from analysis.attribute import RangeSelector
    from analysis.commands.sections import View
    from analysis.trace import Trace

_DESCRIPTION = """\
Find what would break a CUDA graph's capture of the requests of a trace, or corrupt it in silence: waits,
reads by the host, pageable copies, allocations, the legacy stream, other threads, launches and shapes that
change.

Give the trace of an eager run: a .sqlite(.gz) export, a .nsys-rep report, or torch.profiler's .json(.gz)."""
_EPILOG = """\
`breaks`: the capture fails. `corrupts`: it succeeds, and replays are wrong. `check`: depends on what a trace
does not tell. The lines of code are for `python -m scripts.doctor` to find; docs/doctor.md explains both.
Exit code 2 for a trace that cannot be used, else 0, whatever was found."""
_FORMATS = ("table", "csv", "json", "md")
_FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".md": "md"}
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
    output: Path | None = arguments.output
    if output is not None:
        if output.is_dir() or (output.exists() and output.samefile(arguments.trace)):
            raise LaunchgapError(f"{output}: is a folder or the trace itself; give another file's name")
        require_writable(output.parent)
    from analysis.commands.render import Format, render, to_bytes

    view, fatal = _view(arguments.trace, arguments.range, arguments.domain)
    suffix = output.suffix if output is not None else ""
    form = Format(arguments.format or _FORMAT_OF_SUFFIX.get(suffix, "table"))
    told = to_bytes(render(view, form, None))
    if output is not None:
        write_bytes_atomic(output, told)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(told)
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
    add("--format", choices=_FORMATS, help="(default: by the ending of -o FILE, else table)")
    add("-o", "--output", type=Path, metavar="FILE", help="write to a file instead of the terminal")
    return parser.parse_args(argv)


def _view(path: Path, name: str | None, domain: str | None) -> tuple[View, bool]:
    """What is shown, and whether a fatal finding keeps the rest back."""
    from analysis.blocker_facts import read_capture_facts
    from analysis.blockers import blocker_findings, find_blockers
    from analysis.chrome_trace import read_any_trace
    from analysis.commands.export import readable
    from analysis.commands.facts import reader_findings
    from analysis.commands.progress import Steps
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
        selector = _selector(trace, path, name, domain)
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


def _selector(trace: Trace, path: Path, name: str | None, domain: str | None) -> RangeSelector:
    """The range that is asked for, launchgap's own if none is.

    Raises:
        LaunchgapError: there is none, or several domains have it.
    """
    from analysis.commands.ranges import find_range, proposals, ranges_table
    from analysis.commands.select import Selection, domain_name, select
    from analysis.commands.words import shown
    from analysis.overview import work_of

    request = RangeName.REQUEST.value
    if name is None and ((trace.ranges["name"] == request) & (trace.ranges["domain"] == NVTX_DOMAIN)).any():
        name, domain = request, NVTX_DOMAIN if domain is None else domain
    elif name is None:
        better = ", ".join(repr(shown(str(each))) for each in proposals(ranges_table(work_of(trace)))["name"])
        told = f"name the range of one with --range: {better}" if better else "no range repeats and launches"
        raise LaunchgapError(f"{path}: has no requests of launchgap; {told}")
    within = select(trace, Selection(domain=domain))
    chosen = None if domain is None else domain_name(domain, sorted(trace.ranges["domain"].unique()))
    return find_range(trace, within, name, chosen)


if __name__ == "__main__":
    sys.exit(run_command(main))
