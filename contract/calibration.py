"""The record of a GPU's launch costs, which predictions are made from."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

CALIBRATION = "calibration"
"""Kind of the record."""

NodeKind = Literal["kernel", "memset", "memcpy"]

LAYER: Literal["layer"] = "layer"
"""Kind of a probe whose steps are decoder layers, so many kernels unlike one another."""


class SeriesFields(TypedDict):
    """Raw samples in the order they were taken in, and their median. The unit is in the series' name."""

    median: float
    samples: list[float]


class GraphSizeFields(TypedDict):
    """One captured graph of a chain of `nodes` equal nodes, replayed again and again; microseconds.

    `event_us` is the replay by CUDA events where the GPU was idle, as a latency is measured, and `wall_us`
    the whole request around it, input copy and wait included. `launch_us` is the host's time in the launch
    call. `queued_us` is the replay by events behind work that kept the GPU busy until the launch call had
    returned: the device's own time.
    """

    nodes: int
    event_us: SeriesFields
    wall_us: SeriesFields
    launch_us: SeriesFields
    queued_us: SeriesFields


class ProbeFields(TypedDict):
    """One operation, launched eagerly and as the nodes of graphs of many sizes.

    `kinds` are the operations that one step launches, in order. A `kernel` probe is a chain of that kernel
    alone, a `layer` probe one of decoder layers, whose durations are those of all operations. A `memset` or
    `memcpy` probe takes turns with the kernel of the probe `small`: half of its nodes are of its kind.
    `eager_duration_us` and `graph_duration_us` are single operations of that kind as a tracer records them,
    launched one by one and replayed.
    `eager_launch_us` is the host's time to launch one step from Python, `eager_period_us` the device's time
    for one step where launches wait in the queue.
    """

    kind: NodeKind | Literal["layer"]
    kinds: list[NodeKind]
    sizes: list[GraphSizeFields]
    eager_duration_us: SeriesFields
    graph_duration_us: SeriesFields
    eager_launch_us: SeriesFields
    eager_period_us: SeriesFields


class CopyFields(TypedDict):
    """Token ids copied from the host to the device; host microseconds of the call alone, and with a wait."""

    tokens: int
    call_us: SeriesFields
    wall_us: SeriesFields


class CalibrationRecord(TypedDict):
    """`calibration.json`: what launching costs on one GPU, under one driver and torch, without a model.

    The samples of every graph were taken in `settings["stretches"]` stretches of equal length, between which
    the process did something else. `read_bandwidth_bytes_per_s` is None where too little memory was free to
    measure it.
    """

    schema_version: int
    kind: Literal["calibration"]
    gpu: str
    environment: dict[str, Any]
    settings: dict[str, Any]
    probes: dict[str, ProbeFields]
    copies: list[CopyFields]
    read_bandwidth_bytes_per_s: SeriesFields | None
    command: list[str]
