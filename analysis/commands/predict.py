"""Predict what a CUDA graph would take, from the trace of the eager run alone.

BASELINE is the eager run's trace, as for `python -m analysis TRACE`. Its requests are launchgap's own ranges,
or those that --range names. The calibration of the GPU is made once, without any model, by
`python -m scripts.calibrate`; without one, that of an NVIDIA H200 is taken, which comes with launchgap. With
--latency the prediction is put beside the measurement.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.telling import add_output_options, check_outputs, rows_shown, tell
from commandline import Parser, run_command, write_text_atomic
from contract import LaunchgapError

# pandas takes longer to load than --help may take, so what needs it is imported where it is used.
if TYPE_CHECKING:
    from analysis.commands.predict_view import Request


def main(argv: Sequence[str] | None = None) -> int:
    """Predict one trace.

    Raises:
        LaunchgapError: no calibration, or the trace is no baseline.
    """
    arguments = _parse(argv)
    _check_outputs(arguments)
    from analysis.commands.predict_view import predict_view
    from analysis.tables import csv_text

    view, history = predict_view(arguments.baseline, _request(arguments))
    if arguments.scores is not None and history is not None:
        write_text_atomic(arguments.scores, csv_text(history))
    tell(view, arguments)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m analysis predict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("baseline", type=Path, metavar="BASELINE", help=".sqlite(.gz), .nsys-rep or .json(.gz) file")
    add("--range", metavar="NAME", help="what requests are named (default: launchgap's own, request)")
    add("--domain", metavar="NAME", help="their NVTX domain, where several have the name")
    add("--device", type=int, metavar="N", help="only GPU work on this CUDA device")
    add(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="what scripts.calibrate wrote on that GPU (default: an H200's)",
    )
    add("--latency", type=Path, metavar="FILE", help="latency.json of the case, to compare with")
    add("--scores", type=Path, metavar="FILE", help="CSV history to put that comparison into")
    add(
        "--keep",
        action="append",
        default=[],
        choices=("input-copy", "read-back", "packed-question"),
        help="take this for nodes of the graph, which is left out otherwise; may be given more than once",
    )
    add(
        "--extra-nodes",
        type=int,
        default=0,
        metavar="N",
        help="small kernels that the capture adds, such as an attention mask's (docs/prediction.md)",
    )
    add(
        "--level",
        choices=("lowest", "highest"),
        help="of the levels that graphs replay at: the highest is that of a process that ran kernels on "
        "other streams too, as torch's own captures do (default: by --latency, else the lowest)",
    )
    add_output_options(parser)
    return parser.parse_args(argv)


def _check_outputs(arguments: argparse.Namespace) -> None:
    rows_shown(arguments)
    if arguments.extra_nodes < 0:
        raise LaunchgapError(f"--extra-nodes {arguments.extra_nodes}: is negative; give 0 or more")
    if arguments.scores is not None and arguments.latency is None:
        raise LaunchgapError("--scores: there is no measurement to score by; give --latency FILE as well")
    inputs = (arguments.baseline, arguments.calibration, arguments.latency)
    check_outputs((arguments.output, arguments.scores), inputs)


def _request(arguments: argparse.Namespace) -> Request:
    from analysis.calibration import shipped_calibration
    from analysis.commands.predict_view import Request

    return Request(
        range_name=arguments.range,
        domain=arguments.domain,
        device=arguments.device,
        calibration=arguments.calibration or shipped_calibration(),
        latency=arguments.latency,
        scores=arguments.scores,
        keep=tuple(dict.fromkeys(arguments.keep)),
        extra_nodes=arguments.extra_nodes,
        level=arguments.level,
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
