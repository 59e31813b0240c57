"""What qualifies a prediction, and what it takes from the records beside the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.calibration import Calibration
from analysis.finding import Finding
from analysis.overhead import Level
from analysis.predict_work import EagerWork
from contract import WITHOUT_GRAPH, Strategy


def weight_bytes(latency: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> float | None:
    """Bytes that a forward pass reads of the weights; where that is not recorded, all of them."""
    read = ((latency or {}).get("floor") or {}).get("weight_bytes_read")
    if read is not None:
        return float(read)
    model = (latency or own or {}).get("model") or {}
    return float(model["weight_bytes"]) if model.get("weight_bytes") else None


def level_of(latency: Mapping[str, Any] | None, streams: int = 1) -> Level:
    """The level at which a process of this record replays: the lowest, unless kernels ran on other streams.

    Records from before `other_streams` are of captures that ran some themselves: a process with one graph was
    below the number that matters, one with more was not. Without a record it is the lowest, as `graph` runs
    it, unless the eager requests themselves ran on several `streams`.
    """
    record = latency or {}
    strategies = record.get("strategies") or {}
    graphs = {name for name, fields in strategies.items() if fields.get("event_ms")} - WITHOUT_GRAPH
    elsewhere = streams > 1 or record.get("other_streams", len(graphs) > 1)
    return "highest" if elsewhere else "lowest"


def calibration_findings(
    calibration: Calibration, gpu_names: Sequence[str], own: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Where the calibration is of another GPU, driver or torch than the trace; `own` is its record."""
    environment = (own or {}).get("environment") or {}
    traced = [str(environment["gpu"])] if environment.get("gpu") else [*gpu_names]
    if traced and calibration.gpu not in traced:
        yield Finding(
            "warning",
            f"the calibration is of {calibration.gpu}, the trace of {', '.join(dict.fromkeys(traced))}",
            1,
            "gaps and launches of another GPU may be another length",
            "calibrate the GPU that was traced",
        )
    for name, ours in (("driver", calibration.driver), ("torch", calibration.torch)):
        theirs = environment.get(name)
        if theirs and ours and theirs != ours:
            yield Finding(
                "warning",
                f"calibrated under {name} {ours}, traced under {theirs}",
                1,
                "launches may cost something else",
                "calibrate again",
            )


def work_findings(work: EagerWork) -> Iterator[Finding]:
    """Work on several streams, whose overlap in a graph is not known."""
    if work.streams > 1:
        yield Finding(
            "warning",
            f"the requests' work is on {work.streams} streams",
            work.streams,
            "a graph may overlap more or less of it than eager did, and gaps overlap as well",
            "take the bound for the least and the prediction for a guess",
        )


def mask_findings(latency: Mapping[str, Any] | None) -> Iterator[Finding]:
    """A graph that was measured with an attention mask, which the eager trace does not show."""
    fields = ((latency or {}).get("strategies") or {}).get(Strategy.GRAPH.value) or {}
    if fields.get("attention_mask") == "explicit":
        yield Finding(
            "warning",
            "the measured graph builds an attention mask, which eager skips",
            1,
            "the eager trace does not show those kernels, and the prediction is too low",
            "add them by --extra-nodes",
        )
