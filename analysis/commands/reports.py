"""NVIDIA's own reports of any trace: `python -m analysis TRACE --report cuda_gpu_kern_sum`.

What they count is defined in `analysis.nvidia`; here they are named, refused where the trace cannot answer,
and made into tables.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from analysis.commands.words import shown
from contract import LaunchgapError

# --list-reports and a wrong name are answered at once, so pandas is loaded where it is needed.
if TYPE_CHECKING:
    from analysis.commands.sections import Section
    from analysis.trace import Trace

TITLES = {
    "cuda_gpu_kern_sum": "Kernels by name",
    "cuda_gpu_kern_gb_sum": "Kernels by name, grid and block size",
    "cuda_api_sum": "CUDA calls by recorded name",
    "cuda_kern_exec_sum": "Kernels by launching call: time to launch, to wait and to run",
    "cuda_gpu_mem_time_sum": "Copies by direction, and fills",
    "nvtx_gpu_proj_sum": "NVTX ranges as the GPU ran what they launched, by name",
    "nvtx_gpu_proj_trace": "NVTX ranges as the GPU ran what they launched, one by one",
    "nvtx_kern_sum": "Kernels by the NVTX ranges that they were launched in",
    "gpu_gaps": "Pauses of a GPU longer than 500 ms",
    "cuda_api_sync": "Calls that wait for a device or a stream",
}
"""Reports by NVIDIA's name, and what each one says; `analysis.nvidia.REPORTS` makes them."""

NOTE = "Counted as nsys counts; docs/nvidia-numbers.md says where launchgap's own tables differ, and why."

_CLOSE_NAMES = 3
_LIKENESS = 0.5


def list_reports() -> str:
    """The reports there are, a line each."""
    wide = max(map(len, TITLES))
    return "".join(f"{name.ljust(wide)}  {title}\n" for name, title in TITLES.items())


def check_names(names: Sequence[str]) -> None:
    """Refuse a name that no report has.

    Raises:
        LaunchgapError: names close ones, also to what nsys called a report until 2022.
    """
    for name in names:
        if name not in TITLES:
            close = " or ".join(map(repr, _close_names(name)))
            lead = f"--report {shown(name)!r}: there is no such report"
            raise LaunchgapError(
                f"{lead}; did you mean {close}?" if close else f"{lead}; --list-reports names all of them"
            )


def report_sections(trace: Trace, names: Sequence[str]) -> dict[str, Callable[[], Section]]:
    """The reports of a trace, each made only when it is called for; the trace's file must still be there.

    Raises:
        LaunchgapError: a report needs what the trace does not hold.
    """
    for name in names:
        lacking = _lacking(trace, name)
        if lacking:
            raise LaunchgapError(f"--report {name}: {lacking}")
    return {name: _maker(trace, name) for name in names}


def _maker(trace: Trace, name: str) -> Callable[[], Section]:
    from analysis.commands.sections import Section
    from analysis.nvidia import REPORTS

    return lambda: Section(name, f"{name}: {TITLES[name]}", REPORTS[name](trace), NOTE)


def _lacking(trace: Trace, name: str) -> str | None:
    """Why a trace cannot answer a report; None where it can."""
    from analysis.chrome_trace import ChromeTrace
    from analysis.tracers import tracer_of

    tracer = tracer_of(trace)
    if name == "cuda_api_sum" and not tracer.all_calls:
        return (
            f"counts every CUDA call, and {tracer.name} leaves some out (such as cudaGetDevice); "
            "--table launches has the launches, which are all there"
        )
    if name == "gpu_gaps" and isinstance(trace, ChromeTrace):
        return (
            "takes the profiler's own overhead for busy time, which this kind of file does not tell, so "
            "gaps would be too long; give a trace of nsys"
        )
    if name == "cuda_gpu_kern_gb_sum" and (trace.kernels["grid_x"] == 0).any():
        return (
            "goes by grid and block size, which the trace does not tell of every kernel; cuda_gpu_kern_sum "
            "goes by name alone"
        )
    return None


def _close_names(name: str) -> list[str]:
    """Reports that may have been meant; `gpukernsum` and `GPU-Gaps` are close to theirs."""
    plain = {_plain(report): report for report in TITLES}
    wanted = _plain(name[:100])
    close = difflib.get_close_matches(wanted, plain, _CLOSE_NAMES, _LIKENESS) if wanted else []
    inside = [key for key in plain if wanted and wanted in key and key not in close]
    return [plain[key] for key in (*inside, *close)][:_CLOSE_NAMES]


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
