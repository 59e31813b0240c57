"""`python -m analysis TRACE`: what a trace of any program holds, or one of its NVTX ranges in detail."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.reports import check_names, list_reports
from commandline import EXIT_USER_ERROR, Parser, require_writable, write_bytes_atomic
from contract import LaunchgapError

# pandas takes longer to load than --help may take, so what needs it is imported where it is used.
if TYPE_CHECKING:
    from analysis.commands.select import Selection
    from analysis.commands.views import Request

FORMATS = ("table", "csv", "json", "md")
TABLES = (
    *("devices", "processes", "streams", "domains", "ranges", "proposals", "launches", "kernels", "graphs"),
    *("summary", "instances", "instance_launches"),
)
"""What `--table` knows: nine of a whole trace, and with `--range` launches, kernels and the last three."""

_TOP_OF_TEXT = 10
FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".md": "md"}
_DESCRIPTION = """\
Show what a trace of Nsight Systems or torch.profiler holds: GPUs, processes, streams, ranges, launches,
kernels, graphs.

TRACE is a .sqlite file that `nsys export --type sqlite` wrote, the same packed as .sqlite.gz, a .nsys-rep
report, which is exported on the fly with the nsys of this machine, or the .json or .json.gz of torch.profiler
(export_chrome_trace). It is never changed. Traces of any program will do, not only launchgap's own."""
_EPILOG = """\
first look       python -m analysis trace.nsys-rep
                 an overview; under "Ranges worth looking at" it proposes what to ask for next
one range        python -m analysis trace.sqlite --range forward
                 each instance of the range: kernels, launches, time in launch calls, GPU busy time
part of a trace  python -m analysis trace.sqlite --device 0 --between 1.5 2
                 device 0, launched between 1.5 and 2 seconds after the session's start
for a program    python -m analysis trace.sqlite --table kernels --format csv -o kernels.csv
NVIDIA's report  python -m analysis trace.sqlite --report cuda_gpu_kern_sum
                 the numbers of `nsys stats`, without nsys; --list-reports names all of them

Findings (fatal, warning, note) say what the numbers cannot be trusted for and come before them. After a fatal
one no numbers are shown and the exit code is 2. docs/any-trace.md explains every table and column.

Other commands, each with --help:
                 python -m analysis ledger, match, blockers, predict, layers, compare, perfetto, scrub"""


def main(argv: Sequence[str] | None = None) -> int:
    """Show one trace; the exit code is 2 where a fatal finding keeps its numbers back."""
    arguments = _parse(argv)
    _check_reports(arguments)
    if arguments.output is not None:
        _check_output(arguments.output, arguments.trace)
    from analysis.commands.render import Format, finding_line, render, to_bytes
    from analysis.commands.views import view_trace

    if arguments.output is None and sys.stdout is None:
        raise LaunchgapError("standard output is closed; write to a file with -o FILE")
    view, fatal = view_trace(arguments.trace, _request(arguments))
    form = Format(arguments.format)
    told = to_bytes(render(view, form, _top(arguments.top, form is Format.TABLE or form is Format.MARKDOWN)))
    if arguments.output is not None or form is Format.CSV:
        sys.stderr.write("".join(f"{finding_line(finding)}\n" for finding in view.findings))
    if arguments.output is not None:
        write_bytes_atomic(arguments.output, told)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(told)
    return EXIT_USER_ERROR if fatal else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "trace", type=Path, metavar="TRACE", help=".sqlite(.gz), .nsys-rep or .json(.gz) file"
    )
    _add_selection(parser)
    _add_output(parser)
    arguments = parser.parse_args(_spaced(sys.argv[1:] if argv is None else argv))
    if arguments.format is None:
        suffix = arguments.output.suffix if arguments.output is not None else ""
        arguments.format = FORMAT_OF_SUFFIX.get(suffix, "table")
    return arguments


class _ListReports(argparse.Action):
    """Like --help: it needs no trace."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=others["help"])

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(list_reports())
        parser.exit()


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what to look at").add_argument
    add("--range", metavar="NAME", help="the instances of this range, by its whole name")
    add(
        "--report",
        action="append",
        metavar="NAME",
        help="a report as `nsys stats` or `nsys analyze` makes it; may be given more than once",
    )
    add("--list-reports", action=_ListReports, help="name all reports and exit")
    add("--domain", metavar="NAME", help="only ranges of this NVTX domain; '' is the one without a name")
    add("--process", type=int, metavar="PID", help="only what this process did")
    add("--device", type=int, metavar="N", help="only GPU work on this CUDA device, and its launches")
    add(
        "--between",
        nargs=2,
        metavar=("START", "END"),
        help="only launches and ranges that lie whole in this span, with all the GPU work they started; "
        "seconds since the session's start, or with a unit: 1.5, 250ms, 40us, 1200ns",
    )
    add("--full", action="store_true", help="look at every event of a trace of more than five million")
    add("--force", action="store_true", help="show numbers in spite of a fatal finding")


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how to show it").add_argument
    add(
        "--format",
        choices=FORMATS,
        help="table to read, csv, json, md for Markdown (default: by the ending of -o FILE, else table)",
    )
    add(
        "--table",
        action="append",
        choices=TABLES,
        metavar="NAME",
        help=f"only this table; may be given more than once: {', '.join(TABLES)}",
    )
    add(
        "--top",
        type=int,
        metavar="N",
        help=f"rows of each table, 0 for all (default: {_TOP_OF_TEXT} in table and md, all in csv and json)",
    )
    add("-o", "--output", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def _spaced(words: Sequence[str]) -> list[str]:
    """A negative time such as -5ms with a space before it, or argparse takes it for an option."""
    spaced = list(words)
    for position, word in enumerate(words):
        if word == "--between":
            for place in range(position + 1, min(position + 3, len(words))):
                if spaced[place][:2].strip("-") and spaced[place].startswith("-"):
                    spaced[place] = f" {spaced[place]}"
    return spaced


def _check_reports(arguments: argparse.Namespace) -> None:
    """Refuse wrong names, and what does not go with reports, before anything is read."""
    if arguments.report is None:
        return
    check_names(arguments.report)
    if arguments.range is not None:
        raise LaunchgapError(
            "--report and --range: a report is of a trace or a part of it, never of one range; leave one of "
            "them out, or cut the trace with --between"
        )
    if arguments.table is not None:
        raise LaunchgapError("--report and --table: a report is a table of its own; leave one of them out")


def _check_output(output: Path, trace: Path) -> None:
    if output.is_dir():
        raise LaunchgapError(f"{output}: is a folder; give the name of a file in it")
    if output.exists() and trace.exists() and output.samefile(trace):
        raise LaunchgapError(f"{output}: is the trace itself; give another name, it is not overwritten")
    require_writable(output.parent)


def _request(arguments: argparse.Namespace) -> Request:
    from analysis.commands.views import Request

    return Request(
        selection=_selection(arguments),
        range_name=arguments.range,
        tables=tuple(arguments.table or ()),
        force=arguments.force,
        full=arguments.full,
        reports=tuple(dict.fromkeys(arguments.report or ())),
    )


def _selection(arguments: argparse.Namespace) -> Selection:
    from analysis.commands.select import Selection, parse_time_ns

    between = None
    if arguments.between is not None:
        try:
            start, end = map(parse_time_ns, arguments.between)
        except ValueError as error:
            raise LaunchgapError(f"--between: {error}") from error
        if end <= start:
            given = " ".join(text.strip() for text in arguments.between)
            raise LaunchgapError(f"--between {given}: it ends before it starts; give the earlier time first")
        between = (start, end)
    return Selection(arguments.process, arguments.device, between, arguments.domain)


def _top(given: int | None, is_text: bool) -> int | None:
    if given is None:
        return _TOP_OF_TEXT if is_text else None
    if given < 0:
        raise LaunchgapError(f"--top {given}: is negative; give a number of rows, or 0 for all")
    return given or None
