"""`cuda_api_sum`: CUDA runtime and driver calls of the whole trace by recorded name."""

from __future__ import annotations

import pandas as pd

from analysis.nvidia.durations import api_titles, durations_ns, time_summary
from analysis.trace import Trace


def cuda_api_sum(trace: Trace) -> pd.DataFrame:
    """API calls by the name that was recorded, most time first.

    Calls are told apart by their full name and shown without a four-character version suffix, so two rows may
    show one name: `cudaLaunchKernel` and `cudaLaunchKernel_v7000`, as in nsys itself.
    """
    calls = trace.api_calls
    table = time_summary(durations_ns(calls), {"Name": calls["name"]}, "Num Calls")
    return table.assign(Name=api_titles(table["Name"]))
