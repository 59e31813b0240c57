"""How a report is soon built: read by a process of its own, while this one loads what draws it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from analysis.report_data import ReportData, gather
from analysis.report_failures import Failure


@contextmanager
def gathering(
    latency_dir: Path,
    tables_dir: Path,
    preflight_path: Path | None,
    output_dir: Path,
    names: Sequence[str],
    failures: Mapping[str, Failure],
) -> Iterator[Callable[[], ReportData]]:
    """Start to gather; what is given waits for the data, and raises what `gather` raises.

    One core gathers in this process, when the data are asked for.
    """
    sources = (latency_dir, tables_dir, preflight_path, output_dir, names, failures)
    if len(os.sched_getaffinity(0)) < 2:
        yield lambda: gather(*sources)
        return
    with warnings.catch_warnings():
        # Python warns of threads at a fork: those of the matrix library, which reading does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            yield pool.submit(gather, *sources).result


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for garbage a hundred times less often, which otherwise takes an eighth of a report's time."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] * 100, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
