"""Draws the figures that are written as files, several at once in processes of their own.

Drawing takes most of a report's time. The processes are forked, since figures are closures over the tables of
their case; they draw and end, and nothing else runs in them.
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
from analysis.report_figures import CaseFigure, case_figures

Files = dict[str, bytes]
Job = tuple[str, CaseFigure]
"""A figure and the name of its files, without the suffix."""

_jobs: Sequence[Job] = ()
"""What a process that draws was forked with; empty in the one that it was forked from."""


@contextmanager
def drawing(cases: Sequence[CaseReport]) -> Iterator[Callable[[], Files]]:
    """Start to draw; what is given waits for the files, path to content, in the order of the cases.

    One figure, or one core, is drawn by this process when the files are asked for.
    """
    jobs = [(figure_file(case, one), one) for case in cases for one in case_figures(case)]
    cores = len(os.sched_getaffinity(0))
    if len(jobs) < 2 or cores < 2:
        yield lambda: _merged(map(drawn_files, jobs))
        return
    pool = ProcessPoolExecutor(min(cores, len(jobs)), _FORK, initializer=_hold, initargs=(jobs,))
    with warnings.catch_warnings(), pool:
        # Python warns of threads at a fork: those of the matrix library, which drawing does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        results = pool.map(_draw_number, range(len(jobs)))
        yield lambda: _merged(results)


def figure_file(case: CaseReport, figure: CaseFigure) -> str:
    """Path of a figure below the report's folder, without the suffix."""
    return f"figures/{case.name}.{figure.name}"


def drawn_files(job: Job) -> Files:
    """A figure as SVG and as PNG: path to content."""
    name, one = job
    figure = one.draw(WIDE_IN, True)
    return {f"{name}.svg": render_svg(figure), f"{name}.png": render_png(figure)}


_FORK = multiprocessing.get_context("fork")


def _hold(jobs: Sequence[Job]) -> None:
    global _jobs  # noqa: PLW0603 - see `_jobs`
    _jobs = jobs


def _draw_number(number: int) -> Files:
    return drawn_files(_jobs[number])


def _merged(parts: Iterator[Files]) -> Files:
    return {name: content for part in parts for name, content in part.items()}
