"""Write a trace that may be shared, or look for what a file would give away.

nsys keeps the environment of every process of the host in a trace, host and user names, paths and GPU
identifiers. The copy holds what counting needs: GPU work, CUDA calls, NVTX ranges and the strings that they
use. `nsys stats` says the same of both. A copy that would still give something away is not written.

  python -m analysis scrub trace.sqlite -o clean.sqlite    write a copy (packed if its name ends in .gz)
  python -m analysis scrub --check clean.sqlite            exit code 1 if anything is found
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis.attribute import RangeSelector
from analysis.chrome_events import is_chrome_trace
from analysis.commands.export import readable
from analysis.finding import one_line
from analysis.leaks import find_leaks
from analysis.scrub import scrub_to
from commandline import Parser, require_writable, run_command
from contract import LaunchgapError

FOUND = 1
"""Exit code of a check that found something."""


def main(argv: Sequence[str] | None = None) -> int:
    """Scrub one trace, or check one file; 0, or 1 for a check that found something."""
    arguments = _parse(argv)
    if arguments.check is not None:
        return _check(arguments.check, arguments.name)
    selector = RangeSelector(arguments.range_name, arguments.range_domain)
    _scrub(arguments.trace, arguments.output, selector if arguments.only_requests else None, arguments.name)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis scrub",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("trace", type=Path, nargs="?", metavar="IN", help="trace: .sqlite, .sqlite.gz or .nsys-rep")
    add("-o", "--output", type=Path, metavar="FILE", help="to write, .sqlite or .sqlite.gz")
    add("--check", type=Path, metavar="FILE", help="only say what FILE gives away, without printing it")
    add(
        "--name",
        action="append",
        default=[],
        metavar="TEXT",
        help="a name that must not be left, besides those of this host and user and those that the trace "
        "records; repeat for more",
    )
    add(
        "--only-requests",
        action="store_true",
        help="leave out what ran before the first and after the last one",
    )
    request = RangeSelector()
    add(
        "--range-name", default=request.name, metavar="TEXT", help=f"what requests are named ({request.name})"
    )
    domain = f"their NVTX domain ({request.domain}); '' is the default one"
    add("--range-domain", default=request.domain, metavar="TEXT", help=domain)
    arguments = parser.parse_args(argv)
    given = [path for path in (arguments.trace, arguments.output) if path is not None]
    if len(given) != (0 if arguments.check is not None else 2):
        parser.error("give IN and -o FILE, or --check FILE alone")
    return arguments


def _refuse_chrome(path: Path) -> None:
    """Refuse what has no tables to scrub.

    Raises:
        LaunchgapError: the file is a Chrome trace; says how to get a copy with little in it.
    """
    if is_chrome_trace(path):
        raise LaunchgapError(
            f"{path}: is a Chrome trace, and scrub knows the tables of nsys only; `python -m analysis "
            "perfetto` copies nothing but CUDA calls, GPU work, ranges and their names; look these through"
        )


def _check(path: Path, names: Sequence[str]) -> int:
    _refuse_chrome(path)
    with readable(path) as export:
        leaks = find_leaks(export, names)
    for leak in leaks:
        sys.stdout.write(f"{one_line(leak)}\n")
    if not leaks:
        sys.stdout.write(f"{path}: no environment, path, identifier, host or user name found\n")
    return FOUND if leaks else 0


def _scrub(source: Path, target: Path, selector: RangeSelector | None, names: Sequence[str]) -> None:
    """Write beside the target, look for leaks, and only then give it its name."""
    _refuse_chrome(source)
    if target.exists() and target.samefile(source):
        raise LaunchgapError(f"{target}: is the input; give another name, the original is not overwritten")
    target = target.resolve() if target.is_symlink() else target
    if target.exists() and not target.is_file():
        raise LaunchgapError(f"{target}: is no file to replace; give the path of one")
    with readable(source) as export:
        require_writable(target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            clean = Path(folder) / "clean.sqlite"
            scrub_to(export, clean, only_requests=selector is not None, selector=selector)
            leaks = find_leaks(clean, names)
            if leaks:
                raise LaunchgapError(
                    f"{target}: not written, it would give away {len(leaks)} kinds of text, "
                    f"first {leaks[0]}; rename the ranges or kernels that hold them"
                )
            if target.suffix == ".gz":
                clean = _packed(clean)
            clean.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
            clean.replace(target)
    sizes = (path.stat().st_size // 1000 for path in (target, source))
    sys.stderr.write("{}: {} kB from {} kB\n".format(target, *sizes))


def _packed(path: Path) -> Path:
    packed = path.with_suffix(".gz")
    # Without a name and a time in its header, the same trace is the same file.
    with (
        path.open("rb") as plain,
        packed.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as file,
    ):
        shutil.copyfileobj(plain, file, 1 << 20)
    return packed


if __name__ == "__main__":
    sys.exit(run_command(main))
