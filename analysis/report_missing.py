"""What a report lacks, why, and how to get it; and where tables and record disagree. A sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.report_explained import Explained
from analysis.report_tables import ANALYSE_AGAIN, CaseTables
from contract import LatencyRecord, LaunchgapError, PreflightRecord

INSTALL_HINT = "install Nsight Systems with `bash envs/install-nsys.sh`, then run `snakemake --cores 1` again"
GPU_HINT = "run `snakemake --cores 1` on a machine with an NVIDIA GPU"
ALL_TRACES = "Kernel counts, launches and GPU times"
EXPLANATIONS = "Ledgers, match of kernels, blockers and prediction"
TIMELINE = "Timeline of a request"
RERUN_HINT = "run `snakemake --cores 1` to make them"


@dataclass(frozen=True)
class Missing:
    """A part that the report lacks: what, why, and how to get it (empty where the reason says so already)."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Unread:
    """A part whose files could not be read: as the report tells it, and the error with paths as given."""

    part: Missing
    error: str


def unread(what: str, error: LaunchgapError, folder: Path, output_dir: Path) -> Unread:
    """The part that is lost to an error about a file in `folder`."""
    return Unread(Missing(what, told(error, folder, output_dir), ""), str(error))


def absent_parts(found: Explained) -> list[Missing]:
    """Explanations that could not be made, those of one reason together."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for one in found.absent:
        of_reason = by_reason.setdefault(one.reason.rstrip("."), {})
        of_reason.setdefault(f"{one.strategy} ({one.trace_mode} mode)", []).append(one.part)
    if len(by_reason) == 1 and not found.ledger:
        return [Missing(EXPLANATIONS, reason, "") for reason in by_reason]
    told = {
        reason: "; ".join(f"{trace}: {', '.join(parts)}" for trace, parts in traces.items())
        for reason, traces in by_reason.items()
    }
    return [Missing(what, reason, "") for reason, what in told.items()]


def told(error: LaunchgapError, folder: Path, output_dir: Path) -> str:
    """An error's sentence with the folder as seen from the report."""
    return str(error).replace(str(folder), relative(folder, output_dir))


def relative(path: Path, folder: Path) -> str:
    """The path as seen from the folder, with forward slashes: no machine's folders end up in a report."""
    return Path(os.path.relpath(path, folder)).as_posix()


def unusable_traces(tables: CaseTables) -> list[Missing]:
    """What the traces lack, grouped by reason, since a host without nsys lacks all for one reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for trace in tables.traces:
        if trace.status != "ok":
            reason = (trace.reason or f"status {trace.status}").rstrip(".")
            by_reason.setdefault((trace.status, reason), []).append(
                f"{trace.strategy} ({trace.trace_mode} mode)"
            )
    missing = []
    for (status, reason), names in by_reason.items():
        what = ALL_TRACES if len(names) == len(tables.traces) else f"traces of {', '.join(names)}"
        # A failed or missing trace's reason ends with what to do.
        missing.append(Missing(what, reason, GPU_HINT if status == "no gpu" else ""))
    return missing


def why_not_traced(record: LatencyRecord, preflight: PreflightRecord | None) -> Missing:
    """Why a case has no tables at all."""
    if preflight is not None and not preflight["can_trace"]:
        why = " ".join(preflight["findings"]) or "this host cannot trace"
        return Missing(
            ALL_TRACES, why, GPU_HINT if record["simulated"] and preflight["nsys_path"] else INSTALL_HINT
        )
    if record["simulated"]:
        return Missing(ALL_TRACES, "the simulation on the CPU launches no kernels", GPU_HINT)
    return Missing(ALL_TRACES, "there are no tables for this case", RERUN_HINT)


def disagreements(tables: CaseTables, record: LatencyRecord) -> list[str]:
    """Where the tables of a case cannot be of the same run as its record, or of their own traces."""
    return [*_unmeasured(tables, record), *_counted_otherwise(tables)]


def _unmeasured(tables: CaseTables, record: LatencyRecord) -> Iterator[str]:
    traced = dict.fromkeys(trace.strategy for trace in tables.traces)
    others = [name for name in traced if name not in record["strategies"]]
    if others:
        yield (
            f"Traced but not measured: {', '.join(others)}. The latency record has only "
            f"{', '.join(record['strategies'])}, so it may be of another run; measure and trace again."
        )


def _counted_otherwise(tables: CaseTables) -> Iterator[str]:
    for trace in tables.traces:
        key = (trace.strategy, trace.trace_mode)
        found = sum((row.strategy, row.trace_mode) == key for row in tables.requests)
        if trace.status in ("ok", "no gpu") and trace.requests is not None and trace.requests != found:
            yield (
                f"{trace.strategy} ({trace.trace_mode} mode): requests.csv has {found} requests, traces.json "
                f"says {trace.requests}, so they are not of one analysis; {ANALYSE_AGAIN}."
            )
