"""Draws the figures that are written as files, those of several cases in several processes at once.

Drawing takes most of a report's time. The processes are forked, since a case's figures are closures over its
tables; they draw and end, and nothing else runs in them.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from analysis.figures import WIDE_IN, render_png, render_svg
from analysis.report_data import CaseReport
from analysis.report_figures import case_figures

Files = dict[str, bytes]

_cases: Sequence[CaseReport] = ()
"""What a process that draws was forked with; empty in the one that it was forked from."""


@contextmanager
def drawing(cases: Sequence[CaseReport]) -> Iterator[Callable[[], Files]]:
    """Start to draw; what is given waits for the files, path to content, in the order of the cases.

    One case, or one core, is drawn by this process when the files are asked for.
    """
    cores = len(os.sched_getaffinity(0))
    if len(cases) < 2 or cores < 2:
        yield lambda: _merged(_draw_case(case) for case in cases)
        return
    pool = ProcessPoolExecutor(min(cores, len(cases)), _FORK, initializer=_hold, initargs=(cases,))
    with warnings.catch_warnings(), pool:
        # Python warns of threads at a fork: those of the matrix library, which drawing does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        results = pool.map(_draw_number, range(len(cases)))
        yield lambda: _merged(results)


_FORK = multiprocessing.get_context("fork")


def _hold(cases: Sequence[CaseReport]) -> None:
    global _cases  # noqa: PLW0603 - see `_cases`
    _cases = cases


def _draw_number(number: int) -> Files:
    return _draw_case(_cases[number])


def _draw_case(case: CaseReport) -> Files:
    files = {}
    for one in case_figures(case):
        figure = one.draw(WIDE_IN, True)
        files[f"figures/{case.name}.{one.name}.svg"] = render_svg(figure)
        files[f"figures/{case.name}.{one.name}.png"] = render_png(figure)
    return files


def _merged(parts: Iterator[Files]) -> Files:
    return {name: content for part in parts for name, content in part.items()}
